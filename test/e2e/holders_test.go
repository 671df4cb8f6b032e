package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// TestRoutersHoldAsOne: of two routers behind one Envoy, both hold beside a session whose request one
// of them has sent on, and let their requests go when it has ended.
func TestRoutersHoldAsOne(t *testing.T) {
	t.Parallel()
	at := testenv.Addresses(t, 4)
	sharing := func(own, other int) string {
		return fmt.Sprintf("}\npeers: {id: r%d, listen: %s, routes: [%s]", own, at[own], at[other])
	}
	c := openCrammed(t, envoy.Buffered, sharing(0, 1), 0, at[2])
	second := *c.stack
	second.dir, second.listen, second.admin, second.envoy = t.TempDir(), at[2], at[3], nil
	second.writeConfig("sessions: {share: 0.000001" + sharing(1, 0) + "}\n")
	second.startExtproc()
	routers := []*stack{c.stack, &second}
	each := func(what string, ok func(r *stack) bool) {
		t.Helper()
		c.until("both: "+what, func() bool { return ok(routers[0]) && ok(routers[1]) })
	}
	each("see each other", func(r *stack) bool {
		for name := range r.metrics() {
			if strings.HasPrefix(name, "warmroute_peer_silent_seconds") {
				return true
			}
		}
		return false
	})
	each("have decided", func(r *stack) bool { // and learn the replica's speed
		c.ask(t.Context(), c.body(crammedTokens*3/4, 1))
		n := 0
		for _, of := range r.reasons() {
			n += of
		}
		return n >= 8
	})
	c.until("all is answered", func() bool { return c.running() == 0 })
	would := func(r *stack) string { // what becomes of a new prompt
		return string(testenv.Post(t, "http://"+r.admin+"/debug/explain?path="+completionsPath, c.body(heldTokens, 1)).Body)
	}
	each("know no session", func(r *stack) bool {
		page := would(r)
		return strings.Contains(page, `"candidates"`) && !strings.Contains(page, "would be held")
	})
	c.work()
	held := func(r *stack) int { return int(r.metrics()["warmroute_held_requests"]) }
	each("know the session", func(r *stack) bool { return strings.Contains(would(r), "did not fit beside 1 live sessions") })
	const n = 12
	answers := make(chan int, n)
	for range n {
		body := c.body(heldTokens, 1)
		c.busy.Go(func() {
			if resp := c.ask(t.Context(), body); resp != nil {
				answers <- resp.StatusCode
			}
		})
	}
	c.until("all are held", func() bool { return held(routers[0])+held(routers[1]) == n })
	each("hold some", func(r *stack) bool { return held(r) > 0 })
	c.finish()
	c.answered(answers, n, http.StatusOK)
	each("hold none", func(r *stack) bool { return held(r) == 0 })
}
