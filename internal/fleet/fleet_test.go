package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

const a, b = "10.0.0.1:8000", "[fd00::2]:8000"

func TestLearnsFromTheAddressAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{Replicas: list(a, b)}, map[string]*fakeReplica{a: fake(1, 3), b: fake(2, 0)})
		w.pass(2 * time.Second)
		s := w.fleet.Snapshot()
		if !s.Settled || s.Ready != 2 || len(s.Replicas) != 2 {
			t.Fatalf("%+v", s)
		}
		r := s.Replica(a)
		if r.Version != "0.32.0" || r.BlockSize != 16 || !r.Render || r.HashAlgorithm != "sha256" || r.Why != "" || r.Joined == 0 ||
			!reflect.DeepEqual(r.Ranks, []int{0}) || !reflect.DeepEqual(r.Models, []Model{{ID: "m", Base: "m", Root: "/m"}}) ||
			!reflect.DeepEqual(r.Events, []EventSource{{0, "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5558", "kv"}}) {
			t.Errorf("%+v", r)
		}
		if l, ok := r.LoadOf(0); !ok || l.Running != 3 || l.PrefixQueries != 100 || time.Since(l.At) > 1200*time.Millisecond {
			t.Errorf("load %+v", r.Load)
		}
		if _, ok := r.LoadOf(1); ok {
			t.Error("a rank that is not there has a load")
		}
		if e := s.Replica(b).Events[0].Endpoint; e != "tcp://[fd00::2]:5557" {
			t.Errorf("IPv6 endpoint %q", e)
		}
		w.expectServing(a, b)
		if w.serving("other", "") != nil || s.Replica("1.1.1.1:1") != nil || r.Model("x") != nil || r.Model("m") == nil {
			t.Error("what is not there was found")
		}
	})
}

// TestSidecar: a replica with a sidecar names its ranks, but nothing to subscribe to.
func TestSidecar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{Replicas: []ReplicaOptions{{Address: a, Sidecar: true}}}, map[string]*fakeReplica{a: fake(1, 0)})
		r := w.fleet.Snapshot().Replica(a)
		if !r.Ready || !r.Sidecar || len(r.Events) != 0 || !reflect.DeepEqual(r.Ranks, []int{0}) {
			t.Errorf("%+v", r)
		}
	})
}

// TestModelsAreKnownBeforeTheirReplicasAnswer: from the file, else from what an earlier process
// saw; what a replica answers replaces the latter, and stays when it no longer answers, also with
// other settings, until it is no longer listed.
func TestModelsAreKnownBeforeTheirReplicasAnswer(t *testing.T) {
	const c = "10.0.0.9:8000"
	served := func(id string) []Model { return []Model{{ID: id, Base: id}} }
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{
			Replicas: append(list(a, c), ReplicaOptions{Address: b, Models: []ModelOptions{{ID: "file"}}}),
			Served:   map[string][]Model{a: served("earlier"), b: served("other"), "1.1.1.1:1": served("gone")},
		}, map[string]*fakeReplica{})
		check := func(want map[string]string) {
			t.Helper()
			for addr, id := range want {
				r := w.fleet.Snapshot().Replica(addr)
				if got := r.Models; id == "" && len(got) != 0 || id != "" && (len(got) != 1 || got[0].ID != id) {
					t.Errorf("%s (%s): %+v, want %q", addr, r.Why, got, id)
				}
			}
		}
		check(map[string]string{a: "earlier", b: "file", c: ""})
		w.pass(10 * time.Second)
		check(map[string]string{a: "earlier", b: "file", c: ""})
		w.net.change(func() { w.net.replicas[a] = fake(1, 0) })
		w.pass(10 * time.Second)
		check(map[string]string{a: "m", b: "file", c: ""})
		w.net.change(func() { delete(w.net.replicas, a) })
		w.pass(10 * time.Second)
		check(map[string]string{a: "m"})
		must.Do(t, w.fleet.Set(Options{Replicas: []ReplicaOptions{{Address: a, Name: "other"}}}))
		w.pass(10 * time.Second)
		if r := w.fleet.Snapshot().Replica(a); r.Name != "other" || r.Ready {
			t.Errorf("its settings are not others: %+v", r)
		}
		check(map[string]string{a: "m"})
	})
}

// TestModelsOfSourcesWithoutReplicas: what the settings of a source name is known without any of its
// replicas, what an earlier process saw of others only until each source has named its own.
func TestModelsOfSourcesWithoutReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: map[string][]string{}}
		w := start(t, Options{
			Replicas: list(a), Resolver: z, Served: map[string][]Model{"1.1.1.1:1": {{ID: "earlier", Base: "earlier"}}},
			DNS:       []DNSOptions{{Name: "vllm:8000", Replica: ReplicaOptions{Models: []ModelOptions{{ID: "dns"}}}}},
			Templates: []ReplicaOptions{{Models: []ModelOptions{{ID: "pool"}}}},
		}, map[string]*fakeReplica{a: fake(1, 0)})
		check := func(want ...string) {
			t.Helper()
			s := w.fleet.Snapshot()
			var got []string
			for _, m := range s.Models() {
				got = append(got, fmt.Sprintf("%s %d of %d", m.Base, m.Ready, m.All))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		check("dns 0 of 0", "earlier 0 of 0", "m 1 of 1", "pool 0 of 0")
		z.set(nil, "vllm", "10.0.0.7")
		w.pass(30 * time.Second)
		check("dns 0 of 1", "m 1 of 1", "pool 0 of 0")
	})
}

func TestConfigurationOverridesLearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seed := "42"
		old := fake(1, 0) // as vLLM 0.21
		delete(old.answer, "/kv_event_sources")
		delete(old.answer, "/v1/completions/render")
		old.answer["/metrics"] += pageOf(1)
		w := start(t, Options{Replicas: []ReplicaOptions{{
			Address: a, Tenant: "acme", BlockSize: 64, HashSeed: &seed, KVReportFull: true,
			Models: []ModelOptions{{ID: "x", MaxLen: 9}, {ID: "l", Base: "x", LoRA: true, LoRAPath: "/l"}},
			Events: []EventSource{{1, "tcp://*:7", "tcp://*:8", "t"}, {0, "tcp://10.9.9.9:5", "", ""}},
		}}}, map[string]*fakeReplica{a: old})
		want := &Replica{
			Addr: a, Configured: Configured{Tenant: "acme", HashSeed: &seed, KVReportFull: true}, Ready: true, Joined: 1, Reported: Reported{Version: "0.32.0", BlockSize: 64, Models: []Model{{ID: "l", Base: "x", LoRA: prefixhash.LoRA{Name: "l", Path: "/l", Set: true}}, {ID: "x", Base: "x", MaxLen: 9}}, Events: []EventSource{{0, "tcp://10.9.9.9:5", "", ""}, {1, "tcp://10.0.0.1:7", "tcp://10.0.0.1:8", "t"}}, HashAlgorithm: "sha256", Draftless: true}, Ranks: []int{0, 1},
			told: true,
		}
		got := *w.fleet.Snapshot().Replica(a)
		got.Load = nil
		if !reflect.DeepEqual(&got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		if w.serving("x", "") != nil || w.serving("x", "other") != nil || len(w.serving("x", "acme")) != 1 {
			t.Error("a tenant's replica is its own")
		}
	})
}

// The promise: gone from the candidates within 3 s, Left called once, and back
// under a new number.
func TestSilentReplicaLeavesWithin3s(t *testing.T) {
	for name, fail := range map[string]func(*fakeReplica){
		"refuses": func(r *fakeReplica) { r.refuse = true },
		"hangs":   func(r *fakeReplica) { r.hang = true },
		"503":     func(r *fakeReplica) { r.status["/metrics"], r.status["/health"] = 503, 503 },
		"half":    func(r *fakeReplica) { r.slow["/metrics"] = true; r.status["/health"] = 500 },
	} {
		t.Run(name, func(t *testing.T) {
			for offset := range 10 { // of the failure within the scrape interval
				synctest.Test(t, func(t *testing.T) {
					dying, good := fake(1, 0), fake(2, 0)
					w := start(t, Options{Replicas: list(a, b)}, map[string]*fakeReplica{a: dying, b: good})
					w.pass(40*time.Second + time.Duration(offset)*100*time.Millisecond)
					w.take()
					w.net.change(func() { fail(dying) })
					died := time.Now()
					for len(w.serving("m", "")) == 2 {
						w.pass(10 * time.Millisecond)
						if time.Since(died) > 3*time.Second {
							t.Fatal("still offered after 3 s")
						}
					}
					w.expectServing(b)
					if events := w.take(); len(events) != 1 || !strings.HasPrefix(events[0], "left "+a) {
						t.Fatalf("events %q", events)
					}
					if r := w.fleet.Snapshot().Replica(a); r.Ready || r.Why == "" || r.Load != nil || r.Model("m") == nil {
						t.Errorf("%+v", r)
					}
					w.pass(time.Minute)
					w.expect() // nothing more, however long it is away
					w.net.change(func() { dying.refuse, dying.hang = false, false; clear(dying.status); clear(dying.slow) })
					w.pass(8 * time.Second) // the backoff, and a learning that hung
					w.expect("joined " + a + " 3")
					w.expectServing(a, b)
				})
			}
		})
	}
}

// A replica whose /metrics is slow or missing is not gone.
func TestHealthAloneKeepsAReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 3)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		w.net.change(func() { r.slow["/metrics"] = true })
		w.pass(20 * time.Second)
		w.expect()
		w.expectServing(a)
		if l, _ := w.fleet.Snapshot().Replica(a).LoadOf(0); time.Since(l.At) < 15*time.Second {
			t.Errorf("the load is %v old, and must say so", time.Since(l.At))
		}
		w.net.change(func() { delete(r.answer, "/metrics"); delete(r.answer, "/health"); clear(r.slow) })
		w.pass(time.Minute)
		w.expect()
	})
}

// One late answer is not a death.
func TestShortHangIsForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		for range 20 {
			w.net.change(func() { r.hang = true })
			w.pass(1200 * time.Millisecond)
			w.net.change(func() { r.hang = false })
			w.pass(2 * time.Second)
		}
		w.expect()
	})
}

// Another process at the same address is another replica, however quickly it
// came up.
func TestRestartIsANewJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		w.net.change(func() { r.answer["/metrics"] = metricsText(2, 0, 500) })
		w.pass(2 * time.Second)
		w.expect("left "+a+" 1", "joined "+a+" 2")
		w.net.change(func() { r.answer["/metrics"] = metricsText(0, 0, 700) }) // no start time: another kind of server
		w.pass(2 * time.Second)
		w.expect()
		w.net.change(func() { r.answer["/metrics"] = metricsText(0, 0, 699) }) // a counter went back
		w.pass(2 * time.Second)
		w.expect("left "+a+" 2", "joined "+a+" 3")
		w.pass(time.Minute)
		w.expect()
		w.expectServing(a)
	})
}

// TestAnAddressOfSeveralServersIsNamed, and not one whose server restarts.
func TestAnAddressOfSeveralServersIsNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, other := fake(1, 0), fake(1, 0)
		w := start(t, Options{Replicas: list(a, b)}, map[string]*fakeReplica{a: r, b: other})
		for i := range 5 {
			w.net.change(func() { r.answer["/metrics"] = metricsText(2+i%2, 0, 500) })
			w.pass(2 * time.Second)
			if i == 0 {
				w.net.change(func() { other.answer["/metrics"] = metricsText(2, 0, 500) })
			}
		}
		if notes := w.fleet.Snapshot().Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "replicas whose address leads to several servers") || !strings.HasSuffix(notes[0], "list the servers' own addresses: "+a+" (another process each time)") {
			t.Errorf("notes %q", notes)
		}
		if w.pass(2 * time.Minute); len(w.fleet.Snapshot().Notes) > 0 {
			t.Errorf("notes %q long after", w.fleet.Snapshot().Notes)
		}
		w.take()
	})
}

// An answer may tell that a replica has become another one: it is read at once, and no more than
// once a second however many tell it.
func TestLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(0, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		w.pass(5 * time.Second)
		w.net.change(func() { r.answer["/v1/models"] = `{"data":[{"id":"n","root":"/n"}]}` })
		w.fleet.Look(a)
		w.fleet.Look("10.9.9.9:1")
		w.pass(time.Millisecond)
		w.expect("left "+a+" 1", "joined "+a+" 2")
		before := w.net.count("/version")
		for range 1000 {
			w.fleet.Look(a)
			w.pass(10 * time.Millisecond)
		}
		if n := w.net.count("/version") - before; n < 5 || n > 11 {
			t.Errorf("it is learned %d times in 10 s", n)
		}
	})
}

// Adapters come and go without disturbing cached blocks; another block size, base
// model or event endpoint is another cache.
func TestRelearning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		models := r.answer["/v1/models"]
		w.net.change(func() {
			r.answer["/v1/models"] = `{"data":[{"id":"m","root":"/m"},{"id":"l","root":"/l","parent":"m"}]}`
		})
		w.pass(32 * time.Second)
		w.expect()
		if c := w.fleet.Snapshot().Serving("l", ""); len(c) != 1 || c[0].Model.LoRA.Name != "l" || c[0].Replica.Joined != 1 {
			t.Errorf("%+v", c)
		}
		w.net.change(func() {
			r.answer["/v1/models"] = models
			r.status["/kv_event_sources"], r.status["/version"] = 500, 503 // for now
		})
		w.pass(60 * time.Second)
		w.expect()
		if s := w.fleet.Snapshot(); s.Serving("l", "") != nil || len(s.Replicas[0].Events) != 1 || s.Replicas[0].Version != "0.32.0" {
			t.Errorf("%+v", s.Replicas[0])
		}
		w.net.change(func() {
			clear(r.status)
			r.answer["/kv_event_sources"] = `{"0":{"endpoint":"tcp://*:9999"}}`
		})
		w.pass(32 * time.Second)
		w.expect("left "+a+" 1", "joined "+a+" 2")
		w.net.change(func() { r.answer["/metrics"] = strings.Replace(r.answer["/metrics"], `"16"`, `"32"`, 1) })
		w.pass(3 * time.Second) // the scrape shows it
		w.expect("left "+a+" 2", "joined "+a+" 3")
		w.net.change(func() { r.answer["/v1/models"] = `{"data":[{"id":"n","root":"/n"}]}` })
		w.pass(32 * time.Second)
		w.expect("left "+a+" 3", "joined "+a+" 4")
	})
}

// An answer that failed at the join is requested again soon.
func TestIncompleteLearningIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		r.status["/kv_event_sources"], r.status["/v1/completions/render"] = 500, 500
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		w.net.change(func() { clear(r.status) })
		w.pass(4 * time.Second)
		w.expect("left "+a+" 1", "joined "+a+" 2")
		if r := w.fleet.Snapshot().Replica(a); len(r.Events) != 1 || !r.Render {
			t.Errorf("%+v", r)
		}
	})
}

// TestAReplicaThatIsGoneIsNamed until it is back, or is not listed any more.
func TestAReplicaThatIsGoneIsNamed(t *testing.T) {
	for name, ends := range map[string]func(w *world, r *fakeReplica){
		"back":       func(w *world, r *fakeReplica) { w.net.change(func() { r.refuse = false }) },
		"not listed": func(w *world, r *fakeReplica) { _ = w.fleet.Set(Options{Replicas: list(b)}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := fake(1, 0)
			w := start(t, Options{Replicas: list(a, b)}, map[string]*fakeReplica{a: r, b: fake(1, 0)})
			named := func() bool {
				w.pass(6 * time.Second)
				return slices.ContainsFunc(w.fleet.Snapshot().Notes, func(n string) bool {
					return strings.HasPrefix(n, "replicas that were ready and are not any more: "+a+" (unreachable: ")
				})
			}
			if named() {
				t.Error("it is ready, and named")
			}
			if w.net.change(func() { r.refuse = true }); !named() {
				t.Errorf("notes %q", w.fleet.Snapshot().Notes)
			}
			if ends(w, r); named() {
				t.Errorf("%s: notes %q", name, w.fleet.Snapshot().Notes)
			}
			w.take()
		})
	}
}

func TestWhyNotReady(t *testing.T) {
	for want, change := range map[string]func(*fakeReplica){
		"unreachable: ":                     func(r *fakeReplica) { r.refuse = true },
		"timeout: ":                         func(r *fakeReplica) { r.hang = true },
		"loading: ":                         func(r *fakeReplica) { r.status["/v1/models"] = 503 },
		"unauthorized: ":                    func(r *fakeReplica) { r.status["/v1/models"] = 401 },
		"no models: ":                       func(r *fakeReplica) { r.answer["/v1/models"] = `{"data":[]}` },
		"bad answer: ":                      func(r *fakeReplica) { r.answer["/v1/models"] = `nonsense` },
		"bad answer: /v1/models: HTTP stat": func(r *fakeReplica) { r.status["/v1/models"] = 404 },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := fake(1, 0)
			change(r)
			w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
			w.pass(6 * time.Second)
			s := w.fleet.Snapshot()
			if got := s.Replica(a); got.Ready || !strings.HasPrefix(got.Why, want) || !s.Settled || s.Ready != 0 || len(got.Why) > 250 {
				t.Errorf("%q: %+v", want, got)
			}
			if len(s.Notes) != 1 || !strings.HasPrefix(s.Notes[0], "replicas that have never been ready, so that their address or port may be wrong: "+a+" ("+want) {
				t.Errorf("%q: the notes are %q", want, s.Notes)
			}
			w.expect()
		})
	}
}

// Replicas that never answer get fewer and fewer requests, few at a time.
func TestBackoff(t *testing.T) {
	const replicas, minutes = 40, 4
	synctest.Test(t, func(t *testing.T) {
		var dead []string
		for i := range replicas {
			dead = append(dead, fmt.Sprintf("10.1.0.%d:1", i+1))
		}
		hung := map[string]*fakeReplica{b: fake(1, 0)}
		for _, d := range dead[:replicas/2] {
			hung[d] = fake(1, 0)
			hung[d].hang = true
		}
		w := start(t, Options{Replicas: list(append(dead, b)...)}, hung)
		w.pass(minutes * time.Minute)
		if w.serving("m", "") == nil {
			t.Fatal("the one that answers is not offered")
		}
		w.net.change(func() {
			// two questions (/metrics, /v1/models) per attempt, 2.5 to 5 s apart
			for _, d := range dead {
				if n := w.net.asked[d]; n < 3*minutes || n > 2*26*minutes {
					t.Errorf("%s was asked %d times in %d min", d, n, minutes)
				}
			}
		})
		w.net.change(func() { w.net.replicas[dead[replicas-1]] = fake(1, 0) })
		w.pass(40 * time.Second)
		w.expectServing(dead[replicas-1], b)
	})
}

// A router that was stopped for a while (a debugger, a suspended machine) finds
// every answer old, and sends requests before it drops its fleet.
func TestOwnPauseIsNotTheirDeath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{replicas: map[string]*fakeReplica{a: fake(1, 0)}, asked: map[string]int{}}
		f := must.Get(New(Options{Transport: n}, Hooks{}))(t)
		w := newWorker(f, a, ReplicaOptions{Address: a})
		w.up, w.answered, w.nextLearn = true, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
		go w.refresh(t.Context())
		if r := <-f.notices; r.change != updated {
			t.Errorf("%+v", r)
		}
		n.change(func() { n.replicas[a].refuse = true })
		w.answered = time.Now().Add(-time.Hour)
		go w.refresh(t.Context())
		if r := <-f.notices; r.change != left {
			t.Errorf("%+v", r)
		}
	})
}

// Changing the list disturbs only the changed replicas.
func TestSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const c = "10.0.0.3:1"
		w := start(t, Options{Replicas: list(a, b)}, map[string]*fakeReplica{a: fake(1, 0), b: fake(1, 0), c: fake(1, 0)})
		w.take()
		joined := w.fleet.Snapshot().Replica(a).Joined
		if err := w.fleet.Set(Options{Replicas: list(a, "nonsense")}); err == nil || !strings.Contains(err.Error(), `replicas[1].address: "nonsense"`) {
			t.Errorf("a bad list: %v", err)
		}
		w.pass(time.Second)
		w.expect()
		must.Do(t, w.fleet.Set(Options{Replicas: list(b, c)}))
		w.pass(time.Second)
		w.expect(fmt.Sprintf("left %s %d", a, joined), "joined "+c+" 3")
		w.expectServing(c, b)
		if w.fleet.Snapshot().Replica(a) != nil {
			t.Error("a removed replica is still listed")
		}
		must.Do(t, w.fleet.Set(Options{Replicas: []ReplicaOptions{{Address: b, Tenant: "acme"}, {Address: c}}}))
		w.pass(time.Second)
		if events := w.take(); len(events) != 2 || events[1] != "joined "+b+" 4" {
			t.Errorf("changed settings are a new join: %q", events)
		}
		if got := w.serving("m", "acme"); !reflect.DeepEqual(got, []string{c, b}) {
			t.Errorf("acme may use %q", got)
		}
		w.expectServing(c)
		must.Do(t, w.fleet.Set(Options{Replicas: nil}))
		w.pass(time.Second)
		if events := w.take(); len(events) != 2 || len(w.fleet.Snapshot().Replicas) != 0 {
			t.Errorf("an empty list: %q", events)
		}
	})
}

// flaky is a Source that fails now and then.
type flaky struct {
	lists chan []ReplicaOptions
	fail  chan error
}

func (f *flaky) Watch(ctx context.Context, set func([]ReplicaOptions)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case l := <-f.lists:
			set(l)
		case err := <-f.fail:
			return err
		}
	}
}

// TestSettlesWithoutASource: a source that fails, or says nothing, is waited for until then, or
// for a while. It is named, and its replicas count when they come.
func TestSettlesWithoutASource(t *testing.T) {
	noName := &net.DNSError{Err: "no such host", Name: "vllm", IsNotFound: true}
	for name, c := range map[string]struct {
		options func(*zone, *flaky) Options
		fails   func(*zone, *flaky) // once more, if it has not yet
		after   time.Duration       // it is settled then, and not a second before
		note    string
		comes   func(*zone, *flaky)
	}{
		"a name that does not resolve": {
			func(z *zone, _ *flaky) Options {
				z.err = noName
				return Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}}
			},
			func(*zone, *flaky) {}, 0, `source "dns vllm:8000" of replicas has named none yet: fleet: dns vllm:8000: lookup vllm: no such host`,
			func(z *zone, _ *flaky) { z.set(nil, "vllm", "fd00::2") },
		},
		"a name without addresses": {
			func(z *zone, _ *flaky) Options { return Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}} },
			func(*zone, *flaky) {}, 0, `source "dns vllm:8000" of replicas has named none yet: fleet: dns vllm:8000: no addresses`,
			func(z *zone, _ *flaky) { z.set(nil, "vllm", "fd00::2") },
		},
		"a source that fails": {
			func(_ *zone, f *flaky) Options { return Options{Sources: []Source{f}} },
			func(_ *zone, f *flaky) { f.fail <- errors.New("forbidden") }, 0, `source "*fleet.flaky" of replicas has named none yet: forbidden`,
			func(_ *zone, f *flaky) { f.lists <- []ReplicaOptions{{Address: b}} },
		},
		"a source that says nothing": {
			func(_ *zone, f *flaky) Options { return Options{Sources: []Source{f}} },
			func(*zone, *flaky) {}, settleAfter, `source "*fleet.flaky" of replicas has not answered yet`,
			func(_ *zone, f *flaky) { f.lists <- []ReplicaOptions{{Address: b}} },
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z, f := &zone{ips: map[string][]string{}}, &flaky{make(chan []ReplicaOptions), make(chan error)}
				o := c.options(z, f)
				o.Replicas = []ReplicaOptions{{Address: a}}
				w := start(t, o, map[string]*fakeReplica{a: fake(1, 0), b: fake(1, 0)})
				if c.after > 0 {
					w.pass(c.after - 2*time.Second)
					if w.fleet.Snapshot().Settled {
						t.Error("it is settled too early")
					}
				}
				c.fails(z, f)
				w.pass(3 * time.Second)
				s := w.fleet.Snapshot()
				if !s.Settled || s.Ready != 1 || len(s.Notes) != 1 || s.Notes[0] != c.note {
					t.Errorf("settled: %t, ready: %d, notes: %q", s.Settled, s.Ready, s.Notes)
				}
				if n := testutil.CollectAndCount(w.fleet.metrics.sourceFailures); (n == 1) != (c.after == 0) {
					t.Errorf("failures of %d sources are counted", n)
				}
				w.pass(10 * time.Second) // the source is watched again
				c.comes(z, f)
				w.pass(15 * time.Second)
				if s := w.fleet.Snapshot(); len(s.Replicas) != 2 || s.Ready != 2 || len(s.Notes) > 0 {
					t.Errorf("when it has come: %d replicas, notes %q", len(s.Replicas), s.Notes)
				}
			})
		})
	}
}

func TestServingDoesNotAllocate(t *testing.T) {
	mk := func(addr, tenant string) *Replica {
		return &Replica{Addr: addr, Configured: Configured{Tenant: tenant}, Ready: true, Reported: Reported{Models: []Model{{ID: "l", Base: "m"}, {ID: "m", Base: "m"}}}}
	}
	s := newSnapshot([]*Replica{mk("1", ""), mk("2", "acme"), mk("3", ""), mk("4", "beta"), {Addr: "5", Reported: Reported{Models: []Model{{ID: "m"}}}}}, true)
	for tenant, want := range map[string]string{"": "13", "acme": "123", "beta": "134", "new": "13"} {
		got := ""
		for _, c := range s.Serving("m", tenant) {
			got += c.Replica.Addr
			if c.Model.ID != "m" {
				t.Errorf("model %q", c.Model.ID)
			}
		}
		if got != want {
			t.Errorf("tenant %q may use %q, want %q", tenant, got, want)
		}
	}
	if s.Ready != 4 {
		t.Errorf("%d ready", s.Ready)
	}
	n := 0
	if allocs := testing.AllocsPerRun(100, func() { n += len(s.Serving("m", "acme")) + len(s.Serving("x", "y")) }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestRunOnce(t *testing.T) {
	f := must.Get(New(Options{}, Hooks{}))(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := f.Run(ctx); err != nil {
		t.Error(err)
	}
	if err := f.Run(ctx); err == nil {
		t.Error("a second Run is accepted")
	}
	if _, err := New(Options{ScrapeInterval: -1}, Hooks{}); err == nil {
		t.Error("bad options are accepted")
	}
}
