package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// reads returns how many bodies Envoy itself has read for their model.
func (f *follower) reads() int {
	f.t.Helper()
	return testenv.EnvoyStat(f.t, f.page, "json_to_metadata.rq.success")
}

// unrouted returns how many requests Envoy has sent to the cluster of all replicas, where a
// hint alone finds a replica of the right model.
func (f *follower) unrouted() int {
	f.t.Helper()
	return testenv.EnvoyStat(f.t, f.page, "cluster."+envoy.AllReplicas+".upstream_rq_total")
}

// several is a fleet of several models behind Envoy in a body mode.
func several(t *testing.T, mode envoy.Mode, more string) *follower {
	t.Helper()
	f := unfollowedIn(t, mode, more, models()...)
	f.startEnvoy()
	f.has("replicas", f.addrs...)
	f.has("model:org/a", f.addrs[:2]...)
	return f
}

// asks sends a completion for every model name to path, and fails unless a replica that
// serves the name gets it, by the cluster of its model. It returns the number of requests.
func (f *follower) asks(when, path, padding string) (sent int) {
	f.t.Helper()
	serves := map[string][]string{"org/a": f.addrs[:2], "a": f.addrs[:2], "gpt": f.addrs[:2], "b": f.addrs[2:4], "sql": f.addrs[2:4], "c": f.addrs[4:], "only": f.addrs[4:5]}
	before := f.unrouted()
	for name, replicas := range serves {
		for i := range 2 {
			body := fmt.Sprintf(`{"max_tokens":1,"prompt":[%d,2,3,4],"user":%q,"model":%q}`, i, padding, name)
			sent++
			if a := f.post(path, []byte(body)); a.status >= 500 || !slices.Contains(replicas, a.replica) {
				f.t.Errorf("%s: %s for %s: status %d by %s, want one of %v", when, path, name, a.status, a.replica, replicas)
			}
		}
	}
	if n := f.unrouted() - before; n != 0 {
		f.t.Errorf("%s: %s: %d of %d requests went to the cluster of all replicas", when, path, n, sent)
	}
	return sent
}

// TestEnvoyReadsTheModelItself only of requests that the router has named no model for:
// of those that it does not read, and of all while it is dead. In BUFFERED_PARTIAL mode Envoy
// may send the headers on before it chooses the route again, so it reads every body there.
func TestEnvoyReadsTheModelItself(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			f := several(t, mode, "filter: {max_body: 1000000, "+patient+"}\n")
			read := f.reads()
			expect := func(when string, sent, want int) {
				t.Helper()
				if mode == envoy.BufferedPartial {
					want = sent
				}
				now := f.reads()
				if now-read != want {
					t.Errorf("%s: Envoy has read %d of %d bodies, want %d", when, now-read, sent, want)
				}
				read = now
			}
			expect("alive", f.asks("alive", "/v1/completions", ""), 0)
			expect("alive, in many frames", f.asks("alive, in many frames", "/v1/completions", strings.Repeat("x", 900_000)), 0)
			if mode != envoy.BufferedPartial { // which fails to name the model of a body that trailers end
				expect("ended by trailers", f.trailers(), 0)
			}
			n := f.asks("not ours", "/v1/embeddings", "")
			expect("not ours", n, n)
			n = f.asks("too large", "/v1/completions", strings.Repeat("x", 2_000_000))
			expect("too large", n, n)
			if a := f.post("/v1/completions", []byte(`{"prompt":"x","model":"nobody's"}`)); a.status != http.StatusNotFound {
				t.Errorf("a model nobody serves: status %d", a.status)
			}
			expect("unknown", 1, 1)
			if mode == envoy.FullDuplex {
				return // fails closed
			}
			f.extproc.Kill()
			n = f.asks("dead", "/v1/completions", "")
			expect("dead", n, n)
		})
	}
}

// trailers sends bodies that trailers end, as asks does others.
func (f *follower) trailers() (sent int) {
	f.t.Helper()
	before := f.unrouted()
	for ; sent < 4; sent++ {
		body := fmt.Appendf(nil, `{"max_tokens":1,"prompt":[%d,2,3,4],"model":"b"}`, sent)
		req := must.Get(http.NewRequest(http.MethodPost, f.envoy.URL+"/v1/completions", only{bytes.NewReader(body)}))(f.t)
		req.Header.Set("Content-Type", "application/json")
		req.Trailer = http.Header{"X-End": {"yes"}}
		resp := must.Get(http.DefaultClient.Do(req))(f.t)
		resp.Body.Close()
		if served := resp.Header.Get(envoy.HeaderServed); resp.StatusCode != http.StatusOK || !slices.Contains(f.addrs[2:4], served) {
			f.t.Errorf("ended by trailers: status %d by %s", resp.StatusCode, served)
		}
	}
	if n := f.unrouted() - before; n != 0 {
		f.t.Errorf("ended by trailers: %d requests went to the cluster of all replicas", n)
	}
	return sent
}
