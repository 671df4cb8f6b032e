package extprocwire

import (
	"bytes"
	"iter"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/render/testkit/must"
)

// hint is an answer with headers and dynamic metadata.
func hint(to, rank string) *response {
	set := []*corev3.HeaderValueOption{overwritten("x-gateway-destination-endpoint", to)}
	if rank != "" {
		set = append(set, overwritten("x-data-parallel-rank", rank))
	}
	lb := &structpb.Struct{Fields: map[string]*structpb.Value{"x-gateway-destination-endpoint": structpb.NewStringValue(to)}}
	return &response{
		Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{
			Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: set}},
		}},
		DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"envoy.lb": structpb.NewStructValue(lb)}},
	}
}

func overwritten(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD, Header: &corev3.HeaderValue{Key: name, RawValue: []byte(value)},
	}
}

// bodyHint is hint in answer to a body.
func bodyHint(to, rank string) *response {
	h := hint(to, rank)
	h.Response = &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: h.GetRequestHeaders().Response}}
	return h
}

func reason(text string) *response {
	return &response{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{
		Response: &extprocv3.CommonResponse{HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{overwritten("x-reason", text)}}},
	}}}
}

// chunk is an answer that gives a part of a body back.
func chunk(body []byte, end, request bool) *response {
	b := &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{BodyMutation: &extprocv3.BodyMutation{
		Mutation: &extprocv3.BodyMutation_StreamedResponse{StreamedResponse: &extprocv3.StreamedBodyResponse{Body: body, EndOfStream: end}},
	}}}
	if request {
		return &response{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: b}}
	}
	return &response{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: b}}
}

// wait asks Envoy to wait.
func wait(d time.Duration) *response {
	return &response{OverrideMessageTimeout: durationpb.New(d)}
}

// plainAnswers only let the stream go on.
func plainAnswers() []*response {
	return []*response{
		{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}},
		{Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{}}},
		{Response: &extprocv3.ProcessingResponse_ResponseHeaders{ResponseHeaders: &extprocv3.HeadersResponse{}}},
		{Response: &extprocv3.ProcessingResponse_ResponseBody{ResponseBody: &extprocv3.BodyResponse{}}},
	}
}

// answers are the shapes that are given to requests; handmade are written without
// the library.
func answers() (handmade, others []*response) {
	long := strings.Repeat("10.0.0.1:8000,", 40)
	for _, d := range [][2]string{{"10.0.0.1:8000", ""}, {"10.0.0.1:8000,10.0.0.2:8000", "3"}, {long, ""}} {
		handmade = append(handmade, hint(d[0], d[1]), bodyHint(d[0], d[1]))
	}
	for _, a := range []*response{hint("a:1", ""), bodyHint("a:1", "")} { // the model alone: no header is set
		for _, c := range []*extprocv3.CommonResponse{a.GetRequestHeaders().GetResponse(), a.GetRequestBody().GetResponse()} {
			if c != nil {
				c.HeaderMutation = &extprocv3.HeaderMutation{}
			}
		}
		handmade = append(handmade, a)
	}
	for _, size := range []int{0, 1, 100, 127, 128, 16383, 62000} {
		body := bytes.Repeat([]byte("x"), size)
		handmade = append(handmade, chunk(body, true, true), chunk(body, false, true), chunk(body, true, false), chunk(body, false, false))
	}
	handmade = append(append(handmade, reason("warm")), plainAnswers()...)
	trailers := []*response{
		{Response: &extprocv3.ProcessingResponse_RequestTrailers{RequestTrailers: &extprocv3.TrailersResponse{}}},
		{Response: &extprocv3.ProcessingResponse_ResponseTrailers{ResponseTrailers: &extprocv3.TrailersResponse{}}},
	}
	odd := hint("a:1", "")
	odd.DynamicMetadata.Fields["more"] = structpb.NewBoolValue(true)
	for _, a := range plainAnswers()[:2] { // the metadata of a request without a hint
		own := &structpb.Struct{Fields: map[string]*structpb.Value{
			"reason": structpb.NewStringValue("cold"), "model": structpb.NewStringValue("m"), "prompt_tokens": structpb.NewNumberValue(4711), "a": structpb.NewNumberValue(0),
		}}
		a.DynamicMetadata = &structpb.Struct{Fields: map[string]*structpb.Value{"warmroute": structpb.NewStructValue(own), "envoy.lb": hint("a:1", "").DynamicMetadata.Fields["envoy.lb"]}}
		handmade = append(handmade, a)
	}
	full := &structpb.Struct{Fields: map[string]*structpb.Value{}}
	for i := range 14 { // as many as the router has values for access logs
		full.Fields[strings.Repeat("x", i+1)] = structpb.NewNumberValue(1)
	}
	many := hint("a:1", "")
	many.DynamicMetadata.Fields["warmroute"] = structpb.NewStructValue(full)
	handmade = append(handmade, many)
	drain := hint("a:1", "")
	drain.RequestDrain = true //nolint:staticcheck // deprecated, and to be written all the same
	remove := hint("a:1", "")
	remove.GetRequestHeaders().Response.HeaderMutation.RemoveHeaders = []string{"x"}
	whole := hint("a:1", "")
	whole.GetRequestHeaders().Response.Status = extprocv3.CommonResponse_CONTINUE_AND_REPLACE
	whole.GetRequestHeaders().Response.BodyMutation = &extprocv3.BodyMutation{Mutation: &extprocv3.BodyMutation_Body{Body: []byte("{}")}}
	refusal := &response{Response: &extprocv3.ProcessingResponse_ImmediateResponse{
		ImmediateResponse: &extprocv3.ImmediateResponse{Status: &typev3.HttpStatus{Code: 503}, Body: []byte("no\n"), Details: "no"},
	}}
	neither := hint("a:1", "")
	neither.GetRequestHeaders().Response.HeaderMutation = nil
	return handmade, append(trailers, refusal, whole, odd, drain, remove, neither, wait(30*time.Second), wait(-time.Second), &response{})
}

// TestAnswersAreAsProtobufWritesThem: byte for byte.
func TestAnswersAreAsProtobufWritesThem(t *testing.T) {
	c := NewCodec()
	handmade, others := answers()
	for i, r := range append(handmade, others...) {
		want := must.Get(proto.MarshalOptions{Deterministic: true}.Marshal(r))(t)
		if _, ok := encodeResponse(r); ok != (i < len(handmade)) {
			t.Errorf("%v: written by hand is %v", r, ok)
		}
		got := must.Get(c.Marshal(r))(t)
		if i >= len(handmade) { // maps have no order in the usual way
			var back response
			if err := proto.Unmarshal(got.Materialize(), &back); err != nil || !proto.Equal(&back, r) {
				t.Errorf("%v: came back as %v, %v", r, &back, err)
			}
		} else if !bytes.Equal(got.Materialize(), want) {
			t.Errorf("%v:\n got %x\nwant %x", r, got.Materialize(), want)
		}
	}
}

// TestEveryOtherFieldGoesTheUsualWay: whatever else is set in an answer, on any
// level, is written too.
func TestEveryOtherFieldGoesTheUsualWay(t *testing.T) {
	tried := 0
	for _, base := range append(plainAnswers(), hint("a:1", ""), chunk([]byte("x"), true, true), reason("warm"), wait(time.Second)) {
		for path := range levels(base.ProtoReflect()) {
			fields := path(base.ProtoReflect()).Descriptor().Fields()
			for i := range fields.Len() {
				r := proto.Clone(base).(*response)
				m := path(r.ProtoReflect())
				f := fields.Get(i)
				if m.Has(f) || f.ContainingOneof() != nil {
					continue
				}
				setAny(m, f)
				tried++
				b, err := NewCodec().Marshal(r)
				if err != nil {
					continue // the usual way refuses it
				}
				var back response
				if err := proto.Unmarshal(b.Materialize(), &back); err != nil || !proto.Equal(&back, r) {
					t.Errorf("%s: %v came back as %v, %v", f.FullName(), r, &back, err)
				}
			}
		}
	}
	if tried < 30 {
		t.Errorf("only %d fields tried", tried)
	}
}

// levels are the ways from a message to the messages in it.
func levels(m protoreflect.Message) iter.Seq[func(protoreflect.Message) protoreflect.Message] {
	return func(yield func(func(protoreflect.Message) protoreflect.Message) bool) {
		if !yield(func(m protoreflect.Message) protoreflect.Message { return m }) {
			return
		}
		for f, v := range m.Range {
			if f.Kind() != protoreflect.MessageKind || f.IsMap() {
				continue
			}
			step := func(m protoreflect.Message) protoreflect.Message { return m.Mutable(f).Message() }
			child := v
			if f.IsList() {
				step = func(m protoreflect.Message) protoreflect.Message { return m.Mutable(f).List().Get(0).Message() }
				child = v.List().Get(0)
			}
			for next := range levels(child.Message()) {
				if !yield(func(m protoreflect.Message) protoreflect.Message { return next(step(m)) }) {
					return
				}
			}
		}
	}
}

// setAny gives a field some value that is not its default.
func setAny(m protoreflect.Message, f protoreflect.FieldDescriptor) {
	switch {
	case f.IsList() && f.Kind() == protoreflect.MessageKind:
		m.Mutable(f).List().AppendMutable()
	case f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString("v"))
	case f.IsMap():
		m.Mutable(f).Map().Mutable(protoreflect.ValueOfString("k").MapKey())
	case f.Kind() == protoreflect.MessageKind:
		m.Mutable(f)
	case f.Kind() == protoreflect.BoolKind:
		m.Set(f, protoreflect.ValueOfBool(true))
	case f.Kind() == protoreflect.EnumKind:
		m.Set(f, protoreflect.ValueOfEnum(1))
	case f.Kind() == protoreflect.StringKind:
		m.Set(f, protoreflect.ValueOfString("v"))
	case f.Kind() == protoreflect.BytesKind:
		m.Set(f, protoreflect.ValueOfBytes([]byte("v")))
	}
}

func headerMap(pairs ...string) *extprocv3.HttpHeaders {
	h := &extprocv3.HttpHeaders{Headers: &corev3.HeaderMap{}}
	for i := 0; i < len(pairs); i += 2 {
		h.Headers.Headers = append(h.Headers.Headers, &corev3.HeaderValue{Key: pairs[i], RawValue: []byte(pairs[i+1])})
	}
	return h
}

// messages returns the messages that Envoy sends, and others that no client should send.
func messages(t testing.TB) (out [][]byte) {
	many := headerMap()
	for range 3*typicalHeaders + 1 {
		many.Headers.Headers = append(many.Headers.Headers, headerMap("x-many", "v").Headers.Headers...)
	}
	end := headerMap(":method", "GET")
	end.EndOfStream = true
	odd := headerMap("a", "b")
	odd.Attributes = map[string]*structpb.Struct{"x": {}} //nolint:staticcheck // deprecated, and to be read all the same
	lb := must.Get(structpb.NewStruct(map[string]any{"k": "v"}))(t)
	for _, m := range []*request{
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: headerMap(":method", "POST", ":path", "/v1/x", "empty", "")},
			ProtocolConfig: &extprocv3.ProtocolConfiguration{RequestBodyMode: modev3.ProcessingMode_FULL_DUPLEX_STREAMED}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: many}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: end}, MetadataContext: &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{"envoy.lb": lb}}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: odd}},
		{Request: &extprocv3.ProcessingRequest_ResponseHeaders{ResponseHeaders: headerMap(":status", "200")}, Attributes: map[string]*structpb.Struct{"envoy.filters.http.ext_proc": lb}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte("body "), 3000), EndOfStream: true}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{}}},
		{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{EndOfStream: true, EndOfStreamWithoutMessage: true}}},
		{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: &extprocv3.HttpHeaders{}}, ObservabilityMode: true},
		{Request: &extprocv3.ProcessingRequest_RequestTrailers{RequestTrailers: &extprocv3.HttpTrailers{}}},
		{Request: &extprocv3.ProcessingRequest_ResponseBody{ResponseBody: &extprocv3.HttpBody{Body: []byte("r")}}},
		{},
	} {
		b := must.Get(proto.Marshal(m))(t)
		out = append(out, b)
	}
	first := out[0]
	return append(out, append(bytes.Clone(first), first...), first[:len(first)-1], []byte{0x12, 0xff, 0xff, 0xff, 0xff, 0x0f},
		[]byte{0x12, 0x06, 0x0a, 0x04, 0x0a, 0x02, 0x0a, 0x00}, []byte{0x12, 0x07, 0x0a, 0x05, 0x0a, 0x03, 0x0a, 0x01, 0xff})
}

// full is a message that uses all memory of an Incoming.
var full = func() []byte {
	m := headerMap()
	for range typicalHeaders + 1 {
		m.Headers.Headers = append(m.Headers.Headers, &corev3.HeaderValue{Key: "old", Value: "old", RawValue: []byte("old")})
	}
	m.EndOfStream = true
	b, err := proto.Marshal(&request{Request: &extprocv3.ProcessingRequest_RequestHeaders{RequestHeaders: m}})
	if err != nil {
		panic(err)
	}
	return b
}()

// sameAsProtobuf fails unless the codec reads b as the protobuf library does, into
// memory of another message.
func sameAsProtobuf(t *testing.T, c Codec, b []byte) {
	t.Helper()
	var want request
	var got Incoming
	if !decodeRequest(&got, full) {
		t.Fatal("the first message is not read")
	}
	wantErr := proto.Unmarshal(b, &want)
	half := len(b) / 2
	gotErr := c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(bytes.Clone(b[:half])), mem.SliceBuffer(bytes.Clone(b[half:]))}, &got)
	if (wantErr == nil) != (gotErr == nil) {
		t.Fatalf("%x: %v, protobuf says %v", b, gotErr, wantErr)
	}
	if wantErr == nil && !proto.Equal(&want, &got.ProcessingRequest) {
		t.Fatalf("%x: %v, protobuf says %v", b, &got.ProcessingRequest, &want)
	}
}

func TestRequestsAreReadAsProtobufReadsThem(t *testing.T) {
	c := NewCodec()
	for _, b := range messages(t) {
		sameAsProtobuf(t, c, b)
	}
	quick := 0
	var m Incoming
	for _, b := range messages(t) {
		decodeRequest(&m, full)
		if m.Clear(); decodeRequest(&m, b) {
			quick++
		}
		m.Clear()
	}
	if quick < 6 {
		t.Errorf("%d messages read without the library: the usual ones should be", quick)
	}
}

func FuzzRequest(f *testing.F) {
	for _, b := range messages(f) {
		f.Add(b)
	}
	c := NewCodec()
	f.Fuzz(func(t *testing.T, b []byte) { sameAsProtobuf(t, c, b) })
}

// TestBodiesAreNotShared: a body that was recycled is overwritten only by the
// next message.
func TestBodiesAreNotShared(t *testing.T) {
	c := NewCodec()
	read := func(fill byte, size int) []byte {
		b := must.Get(proto.Marshal(&request{Request: &extprocv3.ProcessingRequest_RequestBody{RequestBody: &extprocv3.HttpBody{Body: bytes.Repeat([]byte{fill}, size)}}}))(t)
		var m Incoming
		must.Do(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, &m))
		return m.GetRequestBody().Body
	}
	a := read('a', 20_000)
	b := read('b', 20_000)
	Recycle(a)
	d := read('d', 19_000)
	for name, got := range map[string][]byte{"b": b, "d": d} {
		if strings.Trim(string(got), name) != "" || len(got) < 19_000 {
			t.Errorf("body %s was overwritten", name)
		}
	}
}
