package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warmroute/lab/vllmsim"
)

func fast() vllmsim.Options {
	return vllmsim.Options{PrefillRate: 20_000, DecodeRate: 1000, Blocks: 4096}
}

// steady is fast with steps of 10 ms, as an engine has them: a replica that answers
// sooner than any engine can, and stores nothing, counts as failing.
func steady() vllmsim.Options {
	o := fast()
	o.DecodeRate = 100
	return o
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
	const conversations = 8
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
