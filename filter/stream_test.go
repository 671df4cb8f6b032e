package filter

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
)

const (
	buffered = modev3.ProcessingMode_BUFFERED
	partial  = modev3.ProcessingMode_BUFFERED_PARTIAL
	streamed = modev3.ProcessingMode_STREAMED
	duplex   = modev3.ProcessingMode_FULL_DUPLEX_STREAMED
)

// Messages as Envoy sends them.

func headers(mode modev3.ProcessingMode_BodySendMode, method, path string, end bool) *request {
	hs := []*corev3.HeaderValue{
		{Key: ":method", RawValue: []byte(method)}, {Key: ":path", RawValue: []byte(path)},
		{Key: "x-request-id", RawValue: []byte("id-1")}, {Key: "x-tenant", RawValue: []byte("blue")},
	}
	return &request{
		ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode},
		Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{
			Headers: &corev3.HeaderMap{Headers: hs}, EndOfStream: end,
		}},
	}
}

func body(b string, end bool) *request {
	return &request{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: []byte(b), EndOfStream: end}}}
}

// bodyAlone is the first message where Envoy's request_header_mode is SKIP.
func bodyAlone(mode modev3.ProcessingMode_BodySendMode, b string) *request {
	m := body(b, true)
	m.ProtocolConfig = &extprocv3.ProtocolConfiguration{RequestBodyMode: mode, ResponseBodyMode: mode}
	return m
}

func trailers() *request {
	return &request{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}}
}

func responseHeaders() *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: &extprocv3.HttpHeaders{}}}
}

func responseBody(b string, end bool) *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte(b), EndOfStream: end}}}
}

func responseTrailers() *request {
	return &request{Request: &extprocv3.ProcessingRequest_ResponseTrailers{ResponseTrailers: &extprocv3.HttpTrailers{}}}
}

// describe writes a response in one word each: the message that it answers, hint or not,
// and the body bytes that it gives back.
func describe(r *response) string {
	hint := ""
	common := func(c *extprocv3.CommonResponse) string {
		for _, h := range c.GetHeaderMutation().GetSetHeaders() {
			if h.AppendAction != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
				hint += "!append"
			}
			hint += "+" + h.Header.Key[strings.LastIndexByte(h.Header.Key, '-')+1:]
		}
		if s := c.GetBodyMutation().GetStreamedResponse(); s != nil {
			hint += fmt.Sprintf("(%d", len(s.Body))
			if s.EndOfStream {
				hint += " end"
			}
			hint += ")"
		}
		if c.GetStatus() == extprocv3.CommonResponse_CONTINUE_AND_REPLACE {
			hint += fmt.Sprintf("(%d whole)", len(c.GetBodyMutation().GetBody()))
		}
		return hint
	}
	switch v := r.Response.(type) {
	case *extprocv3.ProcessingResponse_RequestHeaders:
		return "headers" + common(v.RequestHeaders.Response)
	case *extprocv3.ProcessingResponse_RequestBody:
		return "body" + common(v.RequestBody.Response)
	case *extprocv3.ProcessingResponse_RequestTrailers:
		return "trailers"
	case *extprocv3.ProcessingResponse_ResponseHeaders:
		return "rheaders" + common(v.ResponseHeaders.Response)
	case *extprocv3.ProcessingResponse_ResponseBody:
		return "rbody" + common(v.ResponseBody.Response)
	case *extprocv3.ProcessingResponse_ResponseTrailers:
		return "rtrailers"
	case *extprocv3.ProcessingResponse_ImmediateResponse:
		return fmt.Sprint("immediate", int(v.ImmediateResponse.Status.Code))
	}
	return "?"
}

const chat = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`

const chatPath = "/v1/chat/completions"

// sequence is a table entry: the answers to a sequence of messages. Answers to one message
// are joined by commas, messages by bars.
type sequence struct {
	name   string
	send   []*request
	want   string
	reason decision.Reason
}

// sequences is the protocol, per body mode.
func sequences() []sequence {
	big := strings.Repeat("x", 64<<10)
	return []sequence{
		{"buffered", []*request{headers(buffered, "POST", chatPath, false), body(chat, true)},
			"headers | body+endpoint", decision.ReasonCold},
		{"buffered, query string", []*request{headers(buffered, "POST", chatPath+"?x=1", false), body(chat, true)},
			"headers | body+endpoint", decision.ReasonCold},
		{"buffered, response phases", []*request{headers(buffered, "POST", chatPath, false), body(chat, true), responseHeaders(), responseTrailers()},
			"headers | body+endpoint | rheaders | rtrailers", decision.ReasonCold},
		{"buffered, trailers after the body", []*request{headers(buffered, "POST", chatPath, false), body(chat, false), trailers()},
			"headers | body+endpoint | trailers", decision.ReasonCold},
		{"buffered, duplicate end of stream", []*request{headers(buffered, "POST", chatPath, false), body(chat, true), body("", true)},
			"headers | body+endpoint | body", decision.ReasonCold},
		{"buffered, unreadable", []*request{headers(buffered, "POST", chatPath, false), body(`{"model":`, true)},
			"headers | body", "unreadable_json"},
		{"buffered, empty", []*request{headers(buffered, "POST", chatPath, false), body("", true)},
			"headers | body", "unreadable_json"},
		{"buffered, unknown model", []*request{headers(buffered, "POST", chatPath, false), body(strings.Replace(chat, `"m"`, `"x"`, 1), true)},
			"headers | body", decision.ReasonUnknownModel},
		{"get", []*request{headers(buffered, "GET", "/v1/models", true)},
			"headers", decision.ReasonNotOurs},
		{"post without a body", []*request{headers(buffered, "POST", chatPath, true)},
			"headers", decision.ReasonNotOurs},
		{"another route with a body", []*request{headers(buffered, "POST", "/v1/embeddings", false)},
			"headers", decision.ReasonNotOurs},
		{"buffered, the path is not sent", []*request{headers(buffered, "POST", "", false), body(chat, true)},
			"headers | body", decision.ReasonNoHeaders},
		{"duplex, headers are not sent", []*request{bodyAlone(duplex, chat)},
			"body(57 end)", decision.ReasonNoHeaders},
		{"duplex, the path is not sent", []*request{headers(duplex, "POST", "", false), body(chat, true)},
			"headers | body(57 end)", decision.ReasonNoHeaders},
		{"partial, whole", []*request{headers(partial, "POST", chatPath, false), body(chat, true)},
			"headers | body+endpoint", decision.ReasonCold},
		{"partial, cut", []*request{headers(partial, "POST", chatPath, false), body(chat[:20], false)},
			"headers | body", decision.ReasonBodyCut},
		{"streamed", []*request{headers(streamed, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], true)},
			"headers | body | body", decision.ReasonMode},
		{"duplex", []*request{headers(duplex, "POST", chatPath, false), body(chat, true)},
			" | headers+endpoint,body(57 end)", decision.ReasonCold},
		{"duplex, chunks", []*request{headers(duplex, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], true)},
			" |  | headers+endpoint,body(20),body(37 end)", decision.ReasonCold},
		{"duplex, empty last chunk", []*request{headers(duplex, "POST", chatPath, false), body(chat, false), body("", true)},
			" |  | headers+endpoint,body(57),body(0 end)", decision.ReasonCold},
		{"duplex, duplicate end of stream", []*request{headers(duplex, "POST", chatPath, false), body(chat, true), body("x", true), body("", true)},
			" | headers+endpoint,body(57 end) |  | ", decision.ReasonCold},
		{"duplex, ended by trailers", []*request{headers(duplex, "POST", chatPath, false), body(chat, false), trailers()},
			" |  | headers+endpoint(57 whole)", decision.ReasonCold},
		{"duplex, chunks ended by trailers", []*request{headers(duplex, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], false), body("", false), trailers()},
			" |  |  |  | headers+endpoint(57 whole)", decision.ReasonCold},
		{"duplex, unreadable, ended by trailers", []*request{headers(duplex, "POST", chatPath, false), body("{", false), trailers()},
			" |  | headers(1 whole)", "unreadable_json"},
		{"duplex, trailers alone", []*request{headers(duplex, "POST", chatPath, false), trailers()},
			" | headers(0 whole)", "unreadable_json"},
		{"duplex, get", []*request{headers(duplex, "GET", "/v1/models", true)},
			"headers", decision.ReasonNotOurs},
		{"duplex, another route", []*request{headers(duplex, "POST", "/v1/embeddings", false), body("abc", false), body("", true)},
			"headers | body(3) | body(0 end)", decision.ReasonNotOurs},
		{"duplex, large chunk is split", []*request{headers(duplex, "POST", "/v1/embeddings", false), body(big, true)},
			"headers | body(62000),body(3536 end)", decision.ReasonNotOurs},
		{"duplex, too large", []*request{headers(duplex, "POST", chatPath, false), body(big, false), body(big, false), body(big, false), body("", true)},
			" |  | headers,body(62000),body(3536),body(62000),body(3536) | body(62000),body(3536) | body(0 end)", decision.ReasonBodyTooLarge},
		{"duplex, responses", []*request{headers(duplex, "POST", chatPath, false), body(chat, true), responseHeaders(), responseBody("abc", false), responseBody("", true), responseTrailers()},
			" | headers+endpoint,body(57 end) | rheaders | rbody(3) | rbody(0 end) | rtrailers", decision.ReasonCold},
		{"buffered, too large", []*request{headers(buffered, "POST", chatPath, false), body(big+big, true)},
			"headers | body", decision.ReasonBodyTooLarge},
		{"buffered, empty last chunk", []*request{headers(buffered, "POST", chatPath, false), body(chat, false), body("", true)},
			"headers | body+endpoint | body", decision.ReasonCold},
		{"buffered, trailers alone", []*request{headers(buffered, "POST", chatPath, false), trailers()},
			"headers | trailers", decision.ReasonUnfinished},
		{"buffered, responses streamed", []*request{headers(buffered, "POST", chatPath, false), body(chat, true), responseHeaders(), responseBody("abc", false), responseBody("", true)},
			"headers | body+endpoint | rheaders | rbody | rbody", decision.ReasonCold},
		{"answered by Envoy itself", []*request{headers(buffered, "POST", chatPath, false), responseHeaders(), responseBody("abc", true)},
			"headers | rheaders | rbody", decision.ReasonUnfinished},
		{"the client leaves", []*request{headers(buffered, "POST", chatPath, false)},
			"headers", decision.ReasonUnfinished},
		{"partial, the client leaves", []*request{headers(partial, "POST", chatPath, false)},
			"headers", decision.ReasonUnfinished},
		{"streamed, the client leaves", []*request{headers(streamed, "POST", chatPath, false), body(chat[:20], false)},
			"headers | body", decision.ReasonMode},
		{"duplex, the client leaves", []*request{headers(duplex, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], false)},
			" |  | ", decision.ReasonUnfinished},
		{"nothing comes", nil, "", ""},
		{"none", []*request{headers(modev3.ProcessingMode_NONE, "POST", chatPath, false), responseHeaders()},
			"headers | rheaders", decision.ReasonMode},
		{"streamed, trailers", []*request{headers(streamed, "POST", chatPath, false), body(chat, false), trailers()},
			"headers | body | trailers", decision.ReasonMode},
		{"partial, trailers", []*request{headers(partial, "POST", chatPath, false), body(chat, false), trailers()},
			"headers | body | trailers", decision.ReasonBodyCut},
		{"duplex, three ends", []*request{headers(duplex, "POST", chatPath, false), body(chat, true), body("", true), trailers()},
			" | headers+endpoint,body(57 end) |  | trailers", decision.ReasonCold},
		{"duplex, ended by trailers after too much", []*request{headers(duplex, "POST", chatPath, false), body(big, false), body(big, false), trailers()},
			" |  | headers,body(62000),body(3536),body(62000),body(3536) | trailers", decision.ReasonBodyTooLarge},
		{"duplex, empty", []*request{headers(duplex, "POST", chatPath, false), body("", true)},
			" | headers,body(0 end)", "unreadable_json"},
		{"duplex, one byte at a time", append([]*request{headers(duplex, "POST", chatPath, false)}, bytewise("{}")...),
			" |  | headers,body(1),body(1 end)", "no_prompt"},
		{"duplex, another route ended by trailers", []*request{headers(duplex, "POST", "/v1/embeddings", false), body("abc", false), trailers()},
			"headers | body(3) | trailers", decision.ReasonNotOurs},
		{"duplex, trailers before the headers' answer, then an end", []*request{headers(duplex, "POST", chatPath, false), trailers(), body("", true)},
			" | headers(0 whole) | ", "unreadable_json"},
		{"duplex, empty chunks", []*request{headers(duplex, "POST", chatPath, false), body("", false), body(chat, false), body("", false), body("", true)},
			" |  |  |  | headers+endpoint,body(57),body(0 end)", decision.ReasonCold},
		{"duplex, headers end the stream, then trailers", []*request{headers(duplex, "POST", chatPath, true), trailers()},
			"headers | trailers", decision.ReasonNotOurs},
		{"buffered, an end over 1 MB twice", []*request{headers(buffered, "POST", chatPath, false), body(chat, true), body(strings.Repeat("x", 1<<20), true)},
			"headers | body+endpoint | body", decision.ReasonCold},
		{"duplex, an end over 1 MB twice", []*request{headers(duplex, "POST", chatPath, false), body(chat, true), body(strings.Repeat("x", 1<<20), true)},
			" | headers+endpoint,body(57 end) | ", decision.ReasonCold},
		{"partial, duplicate end of stream", []*request{headers(partial, "POST", chatPath, false), body(chat, true), body("", true)},
			"headers | body+endpoint | body", decision.ReasonCold},
		{"partial, cut, the rest follows", []*request{headers(partial, "POST", chatPath, false), body(chat[:20], false), body(chat[20:], true)},
			"headers | body | body", decision.ReasonBodyCut},
		{"streamed, duplicate end of stream", []*request{headers(streamed, "POST", chatPath, false), body(chat, true), body("", true)},
			"headers | body | body", decision.ReasonMode},
		{"streamed, get", []*request{headers(streamed, "GET", "/v1/models", true)},
			"headers", decision.ReasonNotOurs},
		{"an Envoy that does not tell its mode", []*request{untold(headers(buffered, "POST", chatPath, false)), body(chat, true)},
			"headers | body+endpoint", decision.ReasonCold},
		{"a body without headers", []*request{body(chat, true)},
			"body", decision.ReasonNoHeaders},
		{"trailers without headers", []*request{trailers()},
			"trailers", ""},
		{"nothing inside", []*request{{}, headers(buffered, "GET", "/", true)},
			" | headers", decision.ReasonNotOurs},
	}
}

// untold is m as an Envoy without ProtocolConfiguration sends it.
func untold(m *request) *request {
	m.ProtocolConfig = nil
	return m
}

// bytewise sends s in chunks of one byte.
func bytewise(s string) []*request {
	var out []*request
	for i := range len(s) {
		out = append(out, body(s[i:i+1], i == len(s)-1))
	}
	return out
}

// TestSequences takes every sequence step by step, to the end of its stream. A
// request whose headers came has one reason, counted once, and recorded unless
// its route carries no prompt.
func TestSequences(t *testing.T) {
	for _, tt := range sequences() {
		t.Run(tt.name, func(t *testing.T) {
			b := newBench(t, fakeTokens{n: 100}, replica(1), replica(2))
			st := NewServer(b.router, ServerOptions{MaxBody: 100_000}).stream(buffered, new(hint))
			var got []string
			for _, m := range tt.send {
				var one []string
				for _, r := range st.step(context.Background(), m, nil) {
					one = append(one, describe(r))
					checkMetadata(t, r)
				}
				got = append(got, strings.Join(one, ","))
			}
			if s := strings.Join(got, " | "); s != tt.want {
				t.Errorf("answers\n got %s\nwant %s", s, tt.want)
			}
			st.close()
			if st.d.Reason != tt.reason {
				t.Errorf("reason %q, want %q", st.d.Reason, tt.reason)
			}
			b.reasoned(t, tt.reason)
			b.idle(t)
		})
	}
}

// ranked is a replica with two ranks.
func ranked(i int) *fleet.Replica {
	r := replica(i)
	r.Ranks = []int{0, 1}
	return r
}

// TestNearEnvoysLimits: a request whose headers are near Envoy's limits has its hint in the metadata
// alone, in every form of answer, and names no rank, unless its cluster needs the header.
func TestNearEnvoysLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		more              headerSize
		always            bool
		set, choosesRoute bool
	}{
		"small":         {headerSize{20, 2000}, false, true, true},
		"near":          {headerSize{97 - 5, 59<<10 - 200}, false, true, true},
		"many":          {headerSize{98, 2000}, false, false, true},
		"beyond many":   {headerSize{101, 2000}, false, false, false},
		"long":          {headerSize{1, 59 << 10}, false, false, true},
		"beyond long":   {headerSize{1, 60 << 10}, false, false, false},
		"header needed": {headerSize{101, 60 << 10}, true, true, true},
	} {
		for form, messages := range map[string][]*request{
			"buffered": {headers(buffered, "POST", chatPath, false), body(chat, true)},
			"duplex":   {headers(duplex, "POST", chatPath, false), body(chat, true)},
			"trailers": {headers(duplex, "POST", chatPath, false), body(chat, false), trailers()},
		} {
			of := messages[0].GetRequestHeaders().Headers
			of.Headers = append(of.Headers, &corev3.HeaderValue{Key: "x", RawValue: make([]byte, tt.more.bytes)})
			for len(of.Headers) < tt.more.fields {
				of.Headers = append(of.Headers, &corev3.HeaderValue{})
			}
			b := newBench(t, fakeTokens{n: 100}, ranked(1), ranked(2))
			st := NewServer(b.router, ServerOptions{AlwaysPick: tt.always}).stream(buffered, new(hint))
			set, route, named := false, false, ""
			for _, m := range messages {
				for _, r := range st.step(context.Background(), m, nil) {
					set = set || strings.Contains(describe(r), "+endpoint")
					route = route || r.GetRequestHeaders().GetResponse().GetHeaderMutation() != nil || r.GetRequestBody().GetResponse().GetHeaderMutation() != nil
					named += r.GetDynamicMetadata().GetFields()[envoy.MetadataLB].GetStructValue().GetFields()[envoy.HeaderDestination].GetStringValue()
				}
			}
			if (st.d.Rank != "") != tt.set {
				t.Errorf("%s, %s: rank %q", name, form, st.d.Rank)
			}
			if st.close(); set != tt.set || route != tt.choosesRoute || named == "" || named != st.d.Chosen {
				t.Errorf("%s, %s: header %v, route chosen again %v, metadata %q", name, form, set, route, named)
			}
		}
	}
}

// reasoned fails unless the only request so far was counted with that reason,
// "" for none, and recorded.
func (b *bench) reasoned(t *testing.T, want decision.Reason) {
	t.Helper()
	for _, r := range decision.Reasons() {
		got := 0.0
		for _, base := range []string{"", "m"} {
			got += read(t, b.router.metrics.models.Of(base).reasons[r])
		}
		if (got == 1) != (r == want) || got > 1 {
			t.Errorf("%s counted %v times, the reason is %q", r, got, want)
		}
	}
	last := b.ring.Last(2, nil)
	switch {
	case want == "" || want == decision.ReasonNotOurs:
		if len(last) > 0 {
			t.Errorf("recorded: %+v", last)
		}
	case len(last) != 1 || last[0].Reason != want || last[0].ID != "id-1" && want != decision.ReasonNoHeaders || last[0].Route == "":
		t.Errorf("recorded %+v, want one with %s", last, want)
	}
}

// idle fails where a request keeps its charge after its stream has ended.
func (b *bench) idle(t *testing.T) {
	t.Helper()
	for h, l := range b.ledger.All() {
		if l.InFlight() != 0 || l.Awaiting() != 0 || l.Pending() != 0 || l.Live() != 0 {
			t.Errorf("%v keeps a charge after the stream has ended", h)
		}
	}
}

// checkMetadata holds header and metadata to the same value.
func checkMetadata(t *testing.T, r *response) {
	t.Helper()
	var header string
	for _, c := range []*extprocv3.CommonResponse{r.GetRequestHeaders().GetResponse(), r.GetRequestBody().GetResponse()} {
		for _, h := range c.GetHeaderMutation().GetSetHeaders() {
			if h.Header.Key == envoy.HeaderDestination {
				header = string(h.Header.RawValue)
			}
		}
	}
	meta := r.GetDynamicMetadata().GetFields()[envoy.MetadataLB].GetStructValue().GetFields()[envoy.HeaderDestination].GetStringValue()
	if meta != header {
		t.Errorf("metadata %q, header %q", meta, header)
	}
}

// FuzzDuplexGivesBytesBack sends bodies in random chunks and expects the same bytes.
func FuzzDuplexGivesBytesBack(f *testing.F) {
	f.Add([]byte(chat), 7)
	f.Add([]byte(`{"seed":9223372036854775807,"model":"m","model":"n"}`), 1)
	f.Add([]byte("\xff\xfe{"), 3)
	f.Add(bytes.Repeat([]byte("y"), 130_000), 65536)
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		if size < 1 {
			size = 1
		}
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{MaxBody: 1 << 20}).stream(buffered, new(hint))
		out := st.step(context.Background(), headers(duplex, "POST", chatPath, false), nil)
		for at := 0; ; at += size {
			end := min(at+size, len(in))
			out = st.step(context.Background(), body(string(in[at:end]), end == len(in)), out)
			if end == len(in) {
				break
			}
		}
		var got []byte
		ended := 0
		for i, r := range out {
			s := r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
			if (s == nil) != (i == 0) {
				t.Fatalf("answer %d of %d is %s", i, len(out), describe(r))
			}
			got = append(got, s.GetBody()...)
			if s.GetEndOfStream() {
				ended++
			}
		}
		if !bytes.Equal(got, in) || ended != 1 {
			t.Fatalf("gave back %d of %d bytes, %d ends", len(got), len(in), ended)
		}
	})
}

// FuzzSequences sends headers and then messages in any order, one per byte of
// script, and holds the answers to what Envoy would accept: no panic, no charge left over, in
// duplex mode never more than was received and one end at most, in the others
// one answer per message; and one reason per request.
func FuzzSequences(f *testing.F) {
	f.Add([]byte("hbBtra"), byte(2))
	f.Add([]byte("hbbbt"), byte(4))
	f.Add([]byte("hBBBt"), byte(4))
	f.Add([]byte("HtbBrRT"), byte(4))
	f.Add([]byte("hxbt"), byte(4))
	f.Add([]byte("sbBe"), byte(3))
	modes := []modev3.ProcessingMode_BodySendMode{modev3.ProcessingMode_NONE, streamed, buffered, partial, duplex}
	f.Fuzz(func(t *testing.T, script []byte, m byte) {
		mode := modes[int(m)%len(modes)]
		bench := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(bench.router, ServerOptions{MaxBody: 1000, Picker: true}).stream(mode, new(hint))
		var received, given, ends int
		for i, c := range script {
			msg, expire := scripted(c, i == 0, mode)
			var out []*response
			if expire {
				if mode == duplex {
					out = st.expire(nil)
				}
			} else {
				received += len(msg.GetRequestBody().GetBody())
				out = st.step(context.Background(), msg, nil)
			}
			if known := msg != nil && msg.Request != nil; mode != duplex && known && !st.refused && len(out) != 1 {
				t.Fatalf("%q in %v: %d answers to %q", script, mode, len(out), c)
			}
			for _, r := range out {
				if st.refused && r.GetImmediateResponse() == nil {
					t.Fatalf("%q: %s after a refusal", script, describe(r))
				}
				checkMetadata(t, r)
				common := r.GetRequestBody().GetResponse().GetBodyMutation().GetStreamedResponse()
				given += len(common.GetBody()) + len(r.GetRequestHeaders().GetResponse().GetBodyMutation().GetBody())
				if common.GetEndOfStream() {
					ends++
				}
			}
		}
		if given > received || ends > 1 || mode != duplex && given+ends > 0 {
			t.Fatalf("%q in %v: %d of %d bytes given back, %d ends", script, mode, given, received, ends)
		}
		st.close()
		bench.reasoned(t, st.d.Reason)
		bench.idle(t)
	})
}

// scripted is the message that c stands for, headers as the first one, or the
// end of a body's wait.
func scripted(c byte, first bool, mode modev3.ProcessingMode_BodySendMode) (m *request, expire bool) {
	if first {
		switch c {
		case 'H':
			return headers(mode, "GET", "/v1/models", true), false
		case 'o':
			return headers(mode, "POST", "/v1/embeddings", false), false
		case 's':
			m = headers(mode, "POST", chatPath, false)
			m.MetadataContext = subset([]any{"10.9.9.9:1"})
			return m, false
		}
		return headers(mode, "POST", chatPath, false), false
	}
	switch c {
	case 'b':
		return body(chat, false), false
	case 'B':
		return body(chat, true), false
	case 'l':
		return body(strings.Repeat("x", 2000), false), false
	case 'e':
		return body("", true), false
	case 't':
		return trailers(), false
	case 'r':
		return responseHeaders(), false
	case 'R':
		return responseTrailers(), false
	case 'x':
		return nil, true
	}
	return &request{}, false
}
