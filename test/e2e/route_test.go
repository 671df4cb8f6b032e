package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
)

func fast() vllmsim.Options {
	return vllmsim.Options{PrefillRate: 20_000, DecodeRate: 1000, Blocks: 4096}
}

// conversation i's first turn: a long text of its own.
func firstTurn(i int) []message {
	return []message{{"user", fmt.Sprintf("conversation %d: ", i) + strings.Repeat(fmt.Sprintf("word%d ", i), 120)}}
}

// TestSecondTurnLandsWhereTheFirstDid: for every conversation, and the prediction equals
// the replica's count; also where the second comes on a path with a configured prefix, or
// with a slash at its end, which Envoy rewrites.
func TestSecondTurnLandsWhereTheFirstDid(t *testing.T) {
	t.Parallel()
	const conversations = 20
	const route = "/v1/chat/completions"
	paths := []string{route, "/openai" + route, route + "/", "/openai" + route + "/"}
	st := start(t, setup{
		replicas: 4, sim: fast(), config: "filter: {" + patient + ", path_prefixes: [/openai]}\n",
		bootstrap: func(boot string) string {
			rewritten := strings.Replace(boot, "                route:\n", "                route:\n                  regex_rewrite: {pattern: {regex: \"^(/[a-z]+)?(/v1/.*[^/])/?$\"}, substitution: \"\\\\2\"}\n", 1)
			if rewritten == boot {
				t.Fatal("no route in the bootstrap")
			}
			return rewritten
		},
	})
	for i := range conversations {
		first := firstTurn(i)
		a := st.chat(first, 8)
		if a.status != 200 || a.replica == "" {
			t.Fatalf("first turn %d: %+v", i, a)
		}
		st.settled()
		second := append(first, message{"assistant", a.text}, message{"user", "and then?"})
		predicted := st.predicted()
		b := st.post(paths[i%len(paths)], chatBody(t, second, 8))
		if b.replica != a.replica {
			t.Errorf("conversation %d: first turn on %s, second on %s", i, a.replica, b.replica)
		}
		if got := int(st.predicted() - predicted); got != b.cached || b.cached == 0 {
			t.Errorf("conversation %d: predicted %d cached tokens, the replica counted %d", i, got, b.cached)
		}
	}
	reasons := st.wantReasons(2*conversations, 1)
	if reasons["warm"] < conversations {
		t.Errorf("want every second turn warm: %v", reasons)
	}
	if a := st.post("/other"+route, chatBody(t, firstTurn(0), 1)); a.status != http.StatusOK {
		t.Errorf("on a path with a prefix that is not configured: %+v", a)
	}
	if again := st.reasons()["not_ours"]; again != reasons["not_ours"]+1 {
		t.Errorf("it is taken for one of the API: %v", st.reasons())
	}
}

// predicted is the sum of warmroute_predicted_cached_tokens_total.
func (st *stack) predicted() float64 {
	sum := 0.0
	for name, v := range st.metrics() {
		if strings.HasPrefix(name, "warmroute_predicted_cached_tokens_total") {
			sum += v
		}
	}
	return sum
}

// TestUnrelatedPromptsSpread: the negative control. No replica holds any of them,
// and every decision records that.
func TestUnrelatedPromptsSpread(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 4, sim: fast()})
	count := map[string]int{}
	for i := range 80 {
		count[st.chat(firstTurn(i), 1).replica]++
	}
	for replica, n := range count {
		if n < 8 || n > 40 {
			t.Errorf("%s served %d of 80 unrelated prompts: %v", replica, n, count)
		}
	}
	if len(count) != 4 {
		t.Errorf("%d of 4 replicas were used: %v", len(count), count)
	}
	if reasons := st.wantReasons(80, 1); reasons["cold"] != 80 {
		t.Errorf("want 80 cold decisions: %v", reasons)
	}
	if predicted := st.predicted(); predicted != 0 {
		t.Errorf("%v cached tokens predicted", predicted)
	}
}

// TestBadBodiesPassUntouched: warmroute has no opinion, the replica answers.
func TestBadBodiesPassUntouched(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 1, sim: fast()})
	for _, body := range []string{
		``, `{`, `{"model":"sim"}`, `{"model":"nobody","messages":[]}`,
		`{"model":"sim","model":"sim","messages":[{"role":"user","content":"x"}]}`,
		`{"model":"sim","messages":[{"role":"user","content":"\ud800"}]}`,
		"{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
		`{"model":"sim","messages":7}`, `[]`,
	} {
		direct := testenv.Post(t, "http://"+st.sims[0].Addr()+"/v1/chat/completions", []byte(body))
		if a := st.post("/v1/chat/completions", []byte(body)); a.status != direct.Status {
			t.Errorf("%q: %d through Envoy, %d from the replica", body, a.status, direct.Status)
		}
	}
	st.wantReasons(9, 0)
}

// TestFailoverAndReturn: a dead replica is never hinted, its requests are
// served, and it is used again once it is back.
func TestFailoverAndReturn(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 2, sim: fast()})
	a := st.chat(firstTurn(1), 1)
	st.settled()
	var victim *vllmsim.Sim
	for _, sim := range st.sims {
		if sim.Addr() == a.replica {
			victim = sim
		}
	}
	victim.SetFaults(vllmsim.Faults{Stall: true})
	st.until("the stalled replica leaves", func() bool {
		return st.metrics()[`warmroute_fleet_replicas{state="ready"}`] == 1
	})
	b := st.chat(firstTurn(1), 1)
	if b.status != 200 || b.replica == a.replica {
		t.Errorf("with its replica stalled: %+v", b)
	}
	victim.SetFaults(vllmsim.Faults{})
	st.until("the replica returns", func() bool {
		return st.metrics()[`warmroute_fleet_replicas{state="ready"}`] == 2
	})
	st.wantReasons(2, 1)
}

// TestKillingTheRouterFailsNoRequest kills it under load, and starts it again.
func TestKillingTheRouterFailsNoRequest(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			killUnderLoad(t, mode)
		})
	}
}

func killUnderLoad(t *testing.T, mode envoy.Mode) {
	frozen := 200 * time.Millisecond // the cost of a frozen router to a request
	st := start(t, setup{replicas: 2, sim: fast(), envoy: envoy.Options{Mode: mode, MessageTimeout: frozen}})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	status := map[int]int{}
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				a := st.chat(firstTurn(w*1000+i), 1)
				mu.Lock()
				status[a.status]++
				mu.Unlock()
			}
		})
	}
	served := func() int { mu.Lock(); defer mu.Unlock(); return status[200] }
	reach := func(n int) { st.until(fmt.Sprint(n, " served"), func() bool { return served() >= n }) }
	reach(100)
	st.extproc.Kill()
	reach(served() + 200)
	st.startExtproc()
	reach(served() + 100)
	_ = st.extproc.Signal(syscall.SIGSTOP)
	reach(served() + 50)
	_ = st.extproc.Signal(syscall.SIGCONT)
	reach(served() + 50)
	close(stop)
	wg.Wait()
	if len(status) != 1 {
		t.Errorf("statuses %v", status)
	}
}
