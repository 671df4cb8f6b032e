package e2e

import (
	"fmt"
	"io"
	"net/http"
	"testing"

	"warmroute/envoy"
)

// TestEveryBodyModeGivesHints: second turns land where the first did, in every
// mode that can carry a hint, with the served endpoint reported or not.
func TestEveryBodyModeGivesHints(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		for _, served := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, served %v", mode, served), func(t *testing.T) {
				t.Parallel()
				st := start(t, setup{replicas: 3, sim: fast(), envoy: envoy.Options{Mode: mode, Served: served}})
				for i := range 4 {
					first := firstTurn(i)
					a := st.chat(first, 4)
					st.settled()
					b := st.chat(append(first, message{"assistant", a.text}, message{"user", "more"}), 4)
					if a.status != 200 || b.status != 200 || a.replica != b.replica || b.cached == 0 {
						t.Errorf("conversation %d: %+v then %+v\n%s", i, a, b, st.explained(2))
					}
				}
				st.wantReasons(8, 1)
			})
		}
	}
}

// explained is the router's record of its last n decisions.
func (st *stack) explained(n int) string {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/explain?n=%d", st.admin, n))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}
