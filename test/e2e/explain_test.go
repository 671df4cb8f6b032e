package e2e

import (
	"strings"
	"testing"

	"warmroute/internal/testenv"
)

// explained has the fields of a decision that the test reads.
type explained struct {
	Reason, Chosen, Model string
	Source                string `json:"token_source"`
	Predicted             int    `json:"predicted_cached_tokens"`
	Candidates            []struct {
		Replica string
		State   struct {
			Match []struct{ Tokens int }
		}
	}
}

func (st *stack) explain(msgs []message) explained {
	st.t.Helper()
	var answer struct{ Decision explained }
	testenv.Post(st.t, "http://"+st.admin+"/debug/explain", map[string]any{"model": "sim", "messages": msgs}).Into(st.t, &answer)
	return answer.Decision
}

// TestExplainForetells: explain's answer about a request equals the later decision,
// to the cached token, and calling explain changes nothing.
func TestExplainForetells(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 3, sim: fast()})
	for i := range 6 {
		first := firstTurn(i)
		a := st.chat(first, 4)
		st.settled()
		second := append(first, message{"assistant", a.text}, message{"user", "and then?"})
		for range 3 {
			told := st.explain(second)
			if told.Reason != "warm" || !strings.HasPrefix(told.Chosen, a.replica) || told.Predicted == 0 || told.Source == "" || len(told.Candidates) != 3 {
				t.Fatalf("conversation %d was on %s, explained: %+v", i, a.replica, told)
			}
		}
		told := st.explain(second)
		if b := st.chat(second, 4); b.replica != a.replica || b.cached != told.Predicted {
			t.Errorf("explained %s with %d cached tokens, happened on %s with %d", told.Chosen, told.Predicted, b.replica, b.cached)
		}
	}
	st.wantReasons(12, 1)
}
