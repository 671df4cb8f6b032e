package filter

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/tokens"
	"warmroute/render/testkit/must"
)

func subset(v any) *corev3.Metadata {
	s, err := structpb.NewStruct(map[string]any{envoy.KeySubset: v})
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{envoy.MetadataSubset: s}}
}

// TestHeadersOfTenantAndPriority: the configured header alone counts, if it is given once, a
// priority as a whole number.
func TestHeadersOfTenantAndPriority(t *testing.T) {
	for _, tc := range []struct {
		header   string
		values   []string
		tenant   string
		priority int
	}{
		{"x-a", []string{"2"}, "2", 2}, {"x-a", []string{"-1"}, "-1", -1}, {"x-a", []string{"high"}, "high", 0},
		{"x-a", []string{"99999999999999999999"}, "99999999999999999999", 0}, {"x-a", []string{"1", "2"}, "", 0}, {"x-a", nil, "", 0},
		{"", []string{"2"}, "", 0}, {"x-other", []string{"2"}, "", 0},
	} {
		b := newBench(t, fakeTokens{n: 100}, replica(1))
		m := headers(buffered, "POST", chatPath, false)
		h := m.GetRequestHeaders().Headers
		for _, v := range tc.values {
			h.Headers = append(h.Headers, &corev3.HeaderValue{Key: "x-a", RawValue: []byte(v)})
		}
		tenant := NewServer(b.router, ServerOptions{TenantHeader: tc.header}).stream(buffered, new(hint))
		tenant.step(context.Background(), m, nil)
		priority := NewServer(b.router, ServerOptions{PriorityHeader: tc.header}).stream(buffered, new(hint))
		priority.step(context.Background(), m, nil)
		if tenant.q.Tenant != tc.tenant || priority.q.Priority != tc.priority {
			t.Errorf("header %q, values %q: tenant %q, priority %d; want %q, %d", tc.header, tc.values, tenant.q.Tenant, priority.q.Priority, tc.tenant, tc.priority)
		}
	}
}

// TestLongIDs: a client's id of a request takes little memory in the records.
func TestLongIDs(t *testing.T) {
	b := newBench(t, tokens.Body{}, replica(1))
	m := headers(buffered, "POST", "/v1/models", false)
	for _, h := range m.GetRequestHeaders().Headers.Headers {
		if h.Key == "x-request-id" {
			h.RawValue = bytes.Repeat([]byte("long"), 10_000)
		}
	}
	st := NewServer(b.router, ServerOptions{}).stream(buffered, new(hint))
	if st.step(t.Context(), m, nil); len(st.q.ID) > 1000 || len(st.q.ID) == 0 {
		t.Errorf("the id has %d bytes", len(st.q.ID))
	}
}

// TestHeaderOfSessions: requests with one id in the configured header are of one session, although their
// prompts share nothing.
func TestHeaderOfSessions(t *testing.T) {
	for name, tc := range map[string]struct {
		header, tenant string
		ids            [2]string
		turn           int
	}{
		"one id": {"x-a", "", [2]string{"7", "7"}, 2}, "two ids": {"x-a", "", [2]string{"7", "8"}, 1}, "another header": {"x-b", "", [2]string{"7", "7"}, 1},
		"a tenant's id": {"x-a", "x-a", [2]string{"7", "7"}, 2},
	} {
		b := newBench(t, tokens.Body{}, replica(1))
		must.Get(b.book.Replace(policy.Config{Sessions: policy.Sessions{Share: 0.1}}))(t)
		s := NewServer(b.router, ServerOptions{TenantHeader: tc.tenant, Hold: HoldOptions{MaxWait: time.Minute, Header: tc.header}})
		turn := 0
		for i, id := range tc.ids {
			m := headers(buffered, "POST", "/v1/completions", false)
			h := m.GetRequestHeaders().Headers
			h.Headers = append(h.Headers, &corev3.HeaderValue{Key: "x-a", RawValue: []byte(id)})
			st := s.stream(buffered, new(hint))
			st.step(t.Context(), body(`{"model":"m","prompt":[`+strings.Repeat(strconv.Itoa(i)+",", 200)+`1]}`, true), st.step(t.Context(), m, nil))
			if st.d.Reservation == nil {
				t.Fatalf("%s: %s", name, st.d.Reason)
			}
			_, turn = st.d.Reservation.Session()
			st.d.Reservation.Release()
		}
		if turn != tc.turn {
			t.Errorf("%s: the second request is turn %d, want %d", name, turn, tc.turn)
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

// TestARedirectToAnotherPathRefusesNothing: vLLM redirects a path with a slash at its end, and the client
// sends the prompt again, which goes where it was to go. On another path a redirect is a refusal.
func TestARedirectToAnotherPathRefusesNothing(t *testing.T) {
	for path, want := range map[string]string{chatPath + "/": "10.0.0.1:8000", chatPath: "10.0.0.2:8000"} {
		b := newBench(t, fakeTokens{n: 100}, replica(1), replica(2))
		b.holds("10.0.0.1:8000", 0, 5)
		st := NewServer(b.router, ServerOptions{}).stream(buffered, new(hint))
		st.step(t.Context(), headers(buffered, "POST", path, false), nil)
		d := b.router.Route(t.Context(), &Query{ID: "id", Route: st.q.Route, Slash: st.q.Slash, Body: []byte(chat)})
		d.Reservation.Release()
		b.router.Tried(&d, "id", "10.0.0.1:8000", http.StatusTemporaryRedirect)
		if again := b.route(query()); !strings.HasPrefix(again.Chosen, want) {
			t.Errorf("redirected on %s, then %s is named, want %s", path, again.Chosen, want)
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
