package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"warmroute/envoy"
	"warmroute/lab/vllmsim"
)

// family is a prompt that begins as all of its family do, and ends as its own.
func family(name string, words, own int) []message {
	return []message{{"user", strings.Repeat(name+" ", words) + fmt.Sprintf("question %d", own)}}
}

// steady is fast with steps of 10 ms, as an engine has them: a replica that answers
// sooner than any engine can, and stores nothing, counts as failing.
func steady() vllmsim.Options {
	o := fast()
	o.DecodeRate = 100
	return o
}

// heard waits until extproc has applied every batch that sim published.
func (st *stack) heard(sim *vllmsim.Sim) {
	st.t.Helper()
	st.until("the events of "+sim.Addr(), func() bool {
		got := 0.0
		for name, v := range st.metrics() {
			if strings.HasPrefix(name, "warmroute_kv_batches_total{") && strings.Contains(name, sim.Addr()) && strings.Contains(name, `result="applied"`) {
				got += v
			}
		}
		return got >= float64(sim.Published(0))
	})
}

// at is the simulated replica with an address.
func (st *stack) at(addr string) *vllmsim.Sim {
	for _, sim := range st.sims {
		if sim.Addr() == addr {
			return sim
		}
	}
	st.t.Fatalf("no replica has served: %q", addr)
	return nil
}

// TestColdThenObserved: a new prompt is placed by load, and is warm from the
// replica's own events on.
func TestColdThenObserved(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 3, sim: fast()})
	a := st.chat(firstTurn(7), 1)
	st.settled()
	if r := st.reasons(); r["cold"] != 1 || a.cached != 0 {
		t.Fatalf("the first of its kind: %+v, reasons %v", a, r)
	}
	b := st.chat(firstTurn(7), 1)
	if r := st.reasons(); b.replica != a.replica || b.cached == 0 || r["warm"] != 1 {
		t.Errorf("first on %s; again: %+v, reasons %v", a.replica, b, r)
	}
	st.wantReasons(2, 1)
}

// TestSharedPrefix: different requests with one system prompt go where it is
// cached, as long as no request waits there.
func TestSharedPrefix(t *testing.T) {
	t.Parallel()
	const requests = 12
	st := start(t, setup{replicas: 3, sim: steady()})
	home := st.chat(family("shared", 400, 0), 2).replica
	for i := 1; i < requests; i++ {
		st.settled()
		a := st.chat(family("shared", 400, i), 2)
		if a.replica != home || a.cached*10 < a.prompt*8 {
			t.Errorf("request %d: %+v, the prefix is on %s", i, a, home)
		}
	}
	if r := st.wantReasons(requests, 1); r["warm"] != requests-1 {
		t.Errorf("reasons %v", r)
	}
}

// TestHotPrefixSpreads: a burst with one prefix, more than a replica should
// have, finds it on several and piles up on none.
func TestHotPrefixSpreads(t *testing.T) {
	const burst, replicas = 64, 4
	sim := fast()
	sim.DecodeRate = 20 // answers of 20 tokens take a second: all are in flight together
	st := start(t, setup{replicas: replicas, sim: sim})
	send := func(own int) answer { // token ids: this does not test 64 renderings at once
		ids := strings.Repeat("7,", 1200) + fmt.Sprint(100+own)
		return st.post("/v1/completions", []byte(`{"model":"sim","max_tokens":20,"prompt":[`+ids+`]}`))
	}
	send(0)
	st.settled()
	var mu sync.Mutex
	served, hits := map[string]int{}, 0
	var wg sync.WaitGroup
	for i := range burst {
		wg.Go(func() {
			a := send(i + 1)
			mu.Lock()
			defer mu.Unlock()
			served[a.replica]++
			if a.cached*2 > a.prompt {
				hits++
			}
		})
	}
	wg.Wait()
	for replica, n := range served {
		// The guard's bound where all of them were in flight: 1.5 × the mean + 4, and the one that reached it.
		if n > burst*3/2/replicas+5 {
			t.Errorf("%s served %d of %d: %v", replica, n, burst, served)
		}
	}
	if len(served) < 2 || hits < burst-4*replicas {
		t.Errorf("%d of %d hit, on %v", hits, burst, served)
	}
	st.wantReasons(burst+1, 1)
}

// TestFailoverAndRehome: the replica that has the prefix is gone; the requests
// find another, stay there, and also once the first is back.
func TestFailoverAndRehome(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 3, sim: steady()})
	prompt := family("home", 400, 0)
	old := st.chat(prompt, 2).replica
	st.settled()
	victim := st.at(old)
	ready := func(n float64) func() bool {
		return func() bool { return st.metrics()[`warmroute_fleet_replicas{state="ready"}`] == n }
	}
	victim.SetFaults(vllmsim.Faults{Stall: true})
	st.until("the stalled replica leaves", ready(2))
	home := st.chat(prompt, 2)
	st.heard(st.at(home.replica))
	if home.status != 200 || home.replica == old || home.cached != 0 {
		t.Fatalf("with its replica gone: %+v", home)
	}
	for range 3 {
		if a := st.chat(prompt, 2); a.replica != home.replica || a.cached == 0 {
			t.Errorf("moved to %s, then %+v", home.replica, a)
		}
	}
	victim.SetFaults(vllmsim.Faults{})
	st.until("the replica returns", ready(3))
	if a := st.chat(prompt, 2); a.status != 200 || a.cached == 0 {
		t.Errorf("with the first one back: %+v", a)
	}
	st.wantReasons(6, 1)
}

// TestCrossTurnPastTheTextChainsDepth: where replicas publish nothing about their
// caches, conversations are routed by their first 16 KiB of text; longer ones
// still reach their replica.
func TestCrossTurnPastTheTextChainsDepth(t *testing.T) {
	t.Parallel()
	const conversations = 6
	sim := steady()
	sim.Version = vllmsim.V021 // does not report where it publishes, and that is not configured
	st := start(t, setup{replicas: 3, sim: sim})
	for i := range conversations {
		msgs := []message{{"user", strings.Repeat(fmt.Sprintf("text%d ", i), 2600)}} // more than 16 KiB
		a := st.chat(msgs, 4)
		for turn := range 3 {
			msgs = append(msgs, message{"assistant", a.text}, message{"user", strings.Repeat(fmt.Sprintf("turn%d ", turn), 100)})
			b := st.chat(msgs, 4)
			if b.status != 200 || b.replica != a.replica || b.cached == 0 {
				t.Errorf("conversation %d, turn %d: %+v, the first was on %s", i, turn+2, b, a.replica)
			}
		}
	}
	r := st.reasons()
	if r["learned_cold"] != conversations || r["learned"] != 3*conversations {
		t.Errorf("reasons %v", r)
	}
}

// TestDisabledIsANoOp: replicas get what clients send, byte for byte and without a header, nothing
// is charged, no body is read, and all of it again once it is switched back on.
func TestDisabledIsANoOp(t *testing.T) {
	t.Parallel()
	tor := startTorture(t, string(envoy.Buffered), 0, setup{config: "policy: {route_policy: disabled}\n"})
	st := tor.stack
	for _, body := range append([][]byte{chatOf(100)}, corpus(2, len(oddBodies))...) {
		if len(body) == 0 {
			continue // it ends with its headers, so that it is no prompt
		}
		tor.send(t, sent{body: body})
		tor.send(t, sent{body: body, chunked: true, header: http.Header{"Content-Type": {"text/odd"}}})
	}
	if tor.hinted > 0 {
		t.Errorf("%d of %d requests arrived with a destination", tor.hinted, tor.sent)
	}
	for i := range 10 {
		if a := st.chat(firstTurn(i), 1); a.status != 200 {
			t.Fatalf("%+v", a)
		}
	}
	st.post("/v1/chat/completions", []byte(`{`)) // were it read, it would be unreadable_json
	if r := st.wantReasons(tor.sent+11, 0); r["disabled"] != tor.sent+11 {
		t.Errorf("reasons %v", r)
	}
	for name, v := range st.metrics() {
		charged := strings.HasPrefix(name, "warmroute_predicted_cached_tokens_total") || strings.HasPrefix(name, "warmroute_picks_total")
		if charged && v != 0 || strings.HasPrefix(name, "warmroute_speculated") && v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if told := st.explained(1); strings.Contains(told, `"candidates"`) || strings.Contains(told, `"chosen":"1`) {
		t.Errorf("a decision was made: %s", told)
	}
	req, err := http.NewRequest(http.MethodPatch, "http://"+st.admin+"/policy", strings.NewReader(`{"route_policy":null}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	st.settled()
	if a := st.chat(firstTurn(3), 1); a.cached == 0 {
		t.Errorf("switched on, the index knows what was served meanwhile: %+v", a)
	}
	if r := st.reasons(); r["warm"] != 1 {
		t.Errorf("reasons %v", r)
	}
}
