package fleet

import (
	"testing"
	"testing/synctest"
	"time"

	"warmroute/internal/certs"
	"warmroute/render/testkit/must"
)

// Whatever else changes, replicas stay as long as some source names them.
func TestSetOtherOptions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: map[string][]string{"vllm": {"10.0.0.1"}}}
		w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}}, map[string]*fakeReplica{a: fake(1, 0), b: fake(1, 0)})
		w.expect("joined " + a + " 1")
		set := func(o Options) {
			t.Helper()
			must.Do(t, w.fleet.Set(o))
		}
		scrapes := func(during time.Duration) int {
			before := w.net.count(a)
			w.pass(during)
			return w.net.count(a) - before
		}
		slow := scrapes(10 * time.Second)
		set(Options{DNS: []DNSOptions{{Name: "vllm:8000"}}, ScrapeInterval: 100 * time.Millisecond})
		w.pass(time.Second)
		if fast := scrapes(10 * time.Second); fast < 5*slow {
			t.Errorf("%d requests in 10 s with an interval of 100 ms, %d with 1 s", fast, slow)
		}
		w.expect()                      // another way to ask for the same name
		set(Options{Replicas: list(a)}) // from DNS to the list
		w.pass(5 * time.Second)
		w.expect()
		w.expectServing(a)
		z.set(nil, "vllm", "10.0.0.1")
		set(Options{DNS: []DNSOptions{{Name: "nobody:8000"}, {Name: "vllm:8000"}}, Replicas: list(a, b)})
		w.pass(5 * time.Second)
		w.expect("joined " + b + " 2")
		if !w.fleet.Snapshot().Settled {
			t.Error("a name that came with a reload and cannot be resolved is waited for")
		}
		if err := w.fleet.Set(Options{Replicas: list(a), HTTP: HTTPOptions{TLS: certs.ClientOptions{CAFile: "/nowhere"}}}); err == nil {
			t.Error("taken")
		}
		w.pass(5 * time.Second)
		w.expect()
		set(Options{DNS: []DNSOptions{{Name: "vllm:8000"}}})
		w.pass(5 * time.Second)
		w.expect("left " + b + " 2")
		w.expectServing(a)
	})
}
