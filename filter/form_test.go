package filter

import (
	"context"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/render/openai"
)

// form is an upload for a model, "" for none.
func form(model string) string {
	out := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\r\n"
	if model != "" {
		out += "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n" + model + "\r\n"
	}
	return out + "--b--\r\n"
}

// TestModelsOfRequestsWithoutAPrompt: where replicas serve different models, the model of a
// form or of an upgrade's query reaches Envoy's routes, with an answer that makes Envoy choose
// the route again. Where they serve the same ones, no body is waited for.
func TestModelsOfRequestsWithoutAPrompt(t *testing.T) {
	other := replica(2)
	other.Models = []fleet.Model{{ID: "other", Base: "other"}}
	const upload, kind = "/v1/audio/transcriptions", "multipart/form-data; boundary=b"
	for _, tt := range []struct {
		name         string
		method, path string
		kind, body   string
		end          bool
		mode         modev3.ProcessingMode_BodySendMode
		alike        bool // the replicas serve the same
		model, want  string
	}{
		{"upload", "POST", upload, kind, form("other"), false, buffered, false, "other", "headers | body"},
		{"upload, in duplex", "POST", upload, kind, form("other"), false, duplex, false, "other", " | headers,body(168 end)"},
		{"translation", "POST", "/v1/audio/translations", strings.ToUpper(kind[:19]) + kind[19:], form("m"), false, buffered, false, "m", "headers | body"},
		{"no model", "POST", upload, kind, form(""), false, buffered, false, "", "headers | body"},
		{"not the form it says", "POST", upload, kind, "{}", false, buffered, false, "", "headers | body"},
		{"too large", "POST", upload, kind, form(strings.Repeat("x", 2000)), false, buffered, false, "", "headers | body"},
		{"one model", "POST", upload, kind, "", false, buffered, true, "", "headers"},
		{"partial", "POST", upload, kind, "", false, partial, false, "", "headers"},
		{"another body", "POST", upload, "application/json", "", false, buffered, false, "", "headers"},
		{"without a body", "POST", upload, kind, "", true, buffered, false, "", "headers"},
		{"upgrade", "GET", "/v1/realtime?intent=x&model=other%2Fx", "", "", false, buffered, false, "other/x", "headers"},
		{"upgrade, in duplex", "GET", "/v1/realtime?model=other", "", "", false, duplex, false, "other", "headers"},
		{"upgrade, one model", "GET", "/v1/realtime?model=other", "", "", false, buffered, true, "", "headers"},
		{"upgrade of a chat", "POST", "/v1/chat/completions", "", "", false, buffered, false, "", "headers"},
		{"upgrade, not UTF-8", "GET", "/v1/realtime?model=%ff", "", "", false, buffered, false, "", "headers"},
		{"a body names its own", "POST", "/v1/embeddings?model=other", "", "", false, buffered, false, "", "headers"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			replicas := []*fleet.Replica{replica(1), other}
			if tt.alike {
				replicas[1] = replica(2)
			}
			b := newBench(t, fakeTokens{n: 100}, replicas...)
			s := NewServer(b.router, ServerOptions{MaxBody: 1000})
			st := s.stream(buffered, new(hint))
			s.crowd.enter(&st.place, st.o, b.router.o.Now())
			h := headers(tt.mode, tt.method, tt.path, tt.end)
			list := h.GetRequestHeaders().Headers
			list.Headers = append(list.Headers, &corev3.HeaderValue{Key: "content-type", RawValue: []byte(tt.kind)})
			if strings.HasPrefix(tt.name, "upgrade") {
				list.Headers = append(list.Headers, &corev3.HeaderValue{Key: "connection", RawValue: []byte("Upgrade")})
			}
			send := []*request{h}
			if tt.body != "" {
				send = append(send, body(tt.body, true))
			}
			var got []string
			model, again := "", false
			for _, m := range send {
				var one []string
				for _, r := range st.step(context.Background(), m, nil) {
					one = append(one, describe(r))
					f := r.GetDynamicMetadata().GetFields()
					if v := f[envoy.MetadataBody].GetStructValue().GetFields()[envoy.KeyModel].GetStringValue(); v != "" {
						model, again = v, r.GetRequestHeaders().GetResponse().GetHeaderMutation() != nil || r.GetRequestBody().GetResponse().GetHeaderMutation() != nil
					}
					if own := f[envoy.MetadataOwn].GetStructValue().GetFields(); own[envoy.KeyPrompt] != nil || own["model"] != nil {
						t.Errorf("a request without a prompt has numbers: %v", own)
					}
				}
				got = append(got, strings.Join(one, ","))
			}
			if s := strings.Join(got, " | "); s != tt.want || model != tt.model || again != (tt.model != "") {
				t.Errorf("%s, model %q, route chosen again: %v; want %s, %q", s, model, again, tt.want, tt.model)
			}
			st.close()
			b.reasoned(t, decision.ReasonNotOurs)
			if n := s.crowd.size(); n != 0 {
				t.Errorf("%d requests count", n)
			}
		})
	}
}

// TestModelsOfBodiesThatAreNotRead: Envoy reads no model in a body with half a surrogate pair,
// which the model's replicas may answer. Where replicas serve different models, the router names it.
func TestModelsOfBodiesThatAreNotRead(t *testing.T) {
	other := replica(2)
	other.Models = []fleet.Model{{ID: "other", Base: "other"}}
	half := `{"messages":[{"role":"user","content":"\ud800"}],"model":`
	for _, tt := range []struct {
		body    string
		encoded bool
		second  *fleet.Replica
		want    string
	}{
		{half + `"other"}`, false, other, "other"},
		{`{"model":"m","messages":[],"model":"other"}`, false, other, "other"}, // the last counts
		{half + `"unknown"}`, false, other, ""},
		{half + `5}`, false, other, ""},
		{half + `"other"`, false, other, ""},
		{half + `"other"}`, true, other, ""},
		{half + `"other"}` + strings.Repeat(" ", maxUnread), false, other, ""},
		{half + `"m"}`, false, replica(2), ""}, // every replica serves it
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1), tt.second)
		d := b.router.Route(t.Context(), &Query{Route: openai.Chat, Body: []byte(tt.body), Encoded: tt.encoded})
		if d.Model != tt.want || d.Chosen != "" {
			t.Errorf("%.80s: model %q for %q (%s), want %q", tt.body, d.Model, d.Chosen, d.Reason, tt.want)
		}
	}
}
