package e2e

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/internal/testenv"
)

// TestSidecarsFeedTheRouter: replicas that the router does not subscribe to
// are followed by sidecars; second turns land where the first did and predictions
// are exact, as if the router had subscribed itself.
func TestSidecarsFeedTheRouter(t *testing.T) {
	t.Parallel()
	const conversations = 4
	service := testenv.Addresses(t, 1)[0]
	st := start(t, setup{replicas: 2, sim: fast(), config: fmt.Sprintf("index_service: {listen: %q} # sidecars\n", service)})
	kvsub, err := testenv.Build(t.TempDir(), "warmroute/cmd/kvsub")
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range st.sims {
		p, err := testenv.Start(st.dir, fmt.Sprint("kvsub-", i), nil, kvsub, "-replica", s.Addr(), "-model", "sim", "-hash-scheme", "tokens",
			"-endpoint", s.EventEndpoint(0), "-replay", s.ReplayEndpoint(0), "-index", service)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Stop)
	}
	before := 0
	reported := func() { // the index has the blocks of the turn, and no others
		t.Helper()
		st.until("the sidecars have reported the turn", func() bool {
			held := map[uint64]bool{}
			for _, s := range st.sims {
				for _, hash := range s.Held(0, 0) {
					held[hash] = true
				}
			}
			if len(held) == before || st.metrics()[`warmroute_index_entries{model="sim"}`] != float64(len(held)) {
				return false
			}
			before = len(held)
			return true
		})
	}
	for i := range conversations {
		first := firstTurn(i)
		a := st.chat(first, 8)
		reported()
		second := append(first, message{"assistant", a.text}, message{"user", "and then?"})
		predicted := st.predicted()
		b := st.chat(second, 8)
		reported()
		if b.status != 200 || b.replica != a.replica {
			t.Errorf("conversation %d: first turn on %s, second on %s, status %d", i, a.replica, b.replica, b.status)
		}
		if got := int(st.predicted() - predicted); got != b.cached || b.cached == 0 {
			t.Errorf("conversation %d: predicted %d cached tokens, the replica counted %d", i, got, b.cached)
		}
	}
	if reasons := st.wantReasons(2*conversations, 1); reasons["warm"] < conversations {
		t.Errorf("want every second turn warm: %v", reasons)
	}
	for name, v := range st.metrics() {
		if strings.HasPrefix(name, "warmroute_kv_connected") {
			t.Errorf("%s is %v: the router has subscribed itself", name, v)
		}
	}
}
