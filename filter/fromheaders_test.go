package filter

import (
	"context"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/tokens"
)

func subset(v any) *corev3.Metadata {
	s, err := structpb.NewStruct(map[string]any{envoy.KeySubset: v})
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.MetadataSubset: s}}
}

func TestPickerAnswers503WhenTheSubsetIsEmpty(t *testing.T) {
	for _, mode := range []modev3.ProcessingMode_BodySendMode{buffered, duplex} {
		for name, meant := range map[string]any{"stranger": []any{"10.9.9.9:1"}, "empty": []any{}} {
			var asked tokens.Served
			b := newBench(t, fakeTokens{n: 100, of: &asked}, replica(1))
			st := NewServer(b.router, ServerOptions{Picker: true}).stream(mode, new(hint))
			first := headers(mode, "POST", chatPath, false)
			first.MetadataContext = subset(meant)
			out := st.step(context.Background(), first, nil)
			out = st.step(context.Background(), body(chat, true), out)
			if got := describe(out[len(out)-1]); got != "immediate503" {
				t.Errorf("%v, %s: %s", mode, name, got)
			}
			if asked.Subset == nil || len(asked.Subset) != len(meant.([]any)) {
				t.Errorf("%v, %s: replicas %q may be asked for its token ids", mode, name, asked.Subset)
			}
		}
	}
}

func TestTenantComesFromTheConfiguredHeaderOnly(t *testing.T) {
	for header, want := range map[string]string{"": "", "x-tenant": "blue", "x-other": ""} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{TenantHeader: header}).stream(buffered, new(hint))
		st.step(context.Background(), headers(buffered, "POST", chatPath, false), nil)
		if st.q.Tenant != want {
			t.Errorf("header %q: tenant %q, want %q", header, st.q.Tenant, want)
		}
	}
}

// TestPriorityComesFromTheConfiguredHeaderOnly, as one whole number.
func TestPriorityComesFromTheConfiguredHeaderOnly(t *testing.T) {
	for _, tc := range []struct {
		header string
		values []string
		want   int
	}{
		{"x-priority", []string{"2"}, 2}, {"x-priority", []string{"-1"}, -1}, {"x-priority", []string{"high"}, 0},
		{"x-priority", []string{"99999999999999999999"}, 0}, {"x-priority", []string{"1", "2"}, 0}, {"x-priority", nil, 0},
		{"", []string{"2"}, 0}, {"x-other", []string{"2"}, 0},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{PriorityHeader: tc.header}).stream(buffered, new(hint))
		m := headers(buffered, "POST", chatPath, false)
		h := m.GetRequestHeaders().Headers
		for _, v := range tc.values {
			h.Headers = append(h.Headers, &corev3.HeaderValue{Key: "x-priority", RawValue: []byte(v)})
		}
		st.step(context.Background(), m, nil)
		if st.q.Priority != tc.want {
			t.Errorf("header %q, values %q: priority %d, want %d", tc.header, tc.values, st.q.Priority, tc.want)
		}
	}
}

// TestCompressedBodies: a body that the headers call compressed and that is no JSON has a
// reason of its own. A body that is JSON all the same is what vLLM reads.
func TestCompressedBodies(t *testing.T) {
	gzipped := "\x1f\x8b\x08\x00\x00\x00"
	for _, tc := range []struct {
		encoding, body string
		want           decision.Reason
	}{
		{"gzip", gzipped, decision.ReasonEncoded}, {"zstd", "\x28\xb5\x2f\xfd", decision.ReasonEncoded}, {"br", "\x8b", decision.ReasonEncoded},
		{"GZIP, br", gzipped, decision.ReasonEncoded}, {"gzip", chat, decision.ReasonCold},
		{"identity", gzipped, "unreadable_json"}, {"", gzipped, "unreadable_json"}, {"Identity", "{", "unreadable_json"},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		st := NewServer(b.router, ServerOptions{}).stream(buffered, new(hint))
		m := headers(buffered, "POST", chatPath, false)
		h := m.GetRequestHeaders().Headers
		h.Headers = append(h.Headers, &corev3.HeaderValue{Key: "content-encoding", RawValue: []byte(tc.encoding)})
		st.step(t.Context(), body(tc.body, true), st.step(t.Context(), m, nil))
		if st.d.Reason != tc.want {
			t.Errorf("%q, %q: %s, want %s", tc.encoding, tc.body, st.d.Reason, tc.want)
		}
	}
}

// TestPathPrefixes: a configured prefix, and a slash at the end, do not change
// the kind of a request; a request with another prefix is not the router's.
func TestPathPrefixes(t *testing.T) {
	b := newBench(t, fakeTokens{n: 100}, replica(1))
	for path, ours := range map[string]bool{
		chatPath: true, chatPath + "/": true, "/openai" + chatPath: true, "/openai" + chatPath + "/?x=1": true,
		"/openaiX" + chatPath: false, "/other" + chatPath: false, "/openai": false, "/openai/openai" + chatPath: false,
	} {
		st := NewServer(b.router, ServerOptions{PathPrefixes: []string{"/openai"}}).stream(buffered, new(hint))
		st.step(t.Context(), headers(buffered, "POST", path, false), nil)
		if st.ours != ours {
			t.Errorf("%s: judged %v, want %v", path, st.ours, ours)
		}
	}
}
