package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
)

// apart is a stack of one replica that computes prompts for others, and two that answer.
type apart struct {
	*stack
	prompts uint64
}

// startApart starts it, in a mode in which the replica that answers pulls the blocks.
func startApart(t *testing.T) *apart {
	t.Helper()
	sim := fast()
	sim.Connector, sim.TransferRate, sim.Handover = vllmsim.Nixl, -1, -1
	a := &apart{stack: start(t, setup{
		replicas: 3, sim: sim, envoy: envoy.Options{
			Mode: envoy.Buffered, Split: envoy.Split{On: true, Wait: time.Minute}, UsageShare: new(100),
			MessageTimeout: 2 * time.Second, // so that only Envoy's longer wait explains a late answer
		},
		replica: func(i int) string {
			return fmt.Sprintf("    role: %s\n", []string{"prefill", "decode", "decode"}[i])
		},
		config: readAll + "prefill_decode: {mode: pull, max_wait: 60s}\npolicy: {prefill_decode: {handover: 0.001}}\n",
	})}
	a.until("a request is split", func() bool { // once the replicas' KV connectors are known
		before := a.split()
		a.send(a.warm())
		return a.split() > before
	})
	return a
}

// split returns how many requests were split.
func (a *apart) split() int {
	a.t.Helper()
	return int(a.metrics()[`warmroute_split_decisions_total{reason="split"}`])
}

// compared returns how many predictions the router has compared with answers.
func (a *apart) compared() (n int) {
	a.t.Helper()
	for name, v := range a.metrics() {
		if strings.HasPrefix(name, "warmroute_prediction_difference_tokens_count{") {
			n += int(v)
		}
	}
	return n
}

// legs returns how many prompts were computed for another replica.
func (a *apart) legs() int {
	a.t.Helper()
	return int(a.metrics()[`warmroute_prefill_legs_total{outcome="done"}`])
}

// pulled returns how many tokens the replicas that answer have taken from another one.
func (a *apart) pulled() (n int) {
	a.t.Helper()
	for _, addr := range a.addrs[1:] {
		n += int(testenv.Metrics(a.t, addr)[`vllm:external_prefix_cache_hits_total{engine="0",model_name="sim"}`])
	}
	return n
}

// warm returns a request whose prompt of 4000 tokens the first replica alone has in its cache:
// the others would compute all of it.
func (a *apart) warm() []byte {
	a.t.Helper()
	a.prompts++
	body := fmt.Appendf(nil, `{"model":"sim","max_tokens":4,"prompt":[%s]}`, testenv.Tokens(a.prompts, 4000))
	testenv.Post(a.t, "http://"+a.addrs[0]+completionsPath, body)
	a.settled()
	return body
}

// send sends a request through Envoy, which the first replica must not answer.
func (a *apart) send(body []byte) {
	a.t.Helper()
	if got := a.post(completionsPath, body); got.status != http.StatusOK || got.replica == a.addrs[0] {
		a.t.Errorf("status %d from %s", got.status, got.replica)
	}
}

// TestPrefillOnAnotherReplica: the replica that answers pulls the blocks; if that fails, the
// client gets the answer of a plain request.
func TestPrefillOnAnotherReplica(t *testing.T) {
	t.Parallel()
	a := startApart(t)
	t.Run("pulled", func(t *testing.T) {
		compared, pulled := a.compared(), a.pulled()
		for range 10 {
			before := a.legs()
			a.send(a.warm())
			if a.legs() != before+1 {
				t.Errorf("no leg was done: %v", a.metrics())
			}
		}
		if moved := a.metrics()["warmroute_split_moved_tokens_total"]; moved < 10*3900 {
			t.Errorf("%v tokens moved", moved)
		}
		if n := a.pulled() - pulled; n < 10*3900 {
			t.Errorf("the replicas that answer have pulled %d tokens", n)
		}
		// The answers of D have P's cached tokens: they are compared with the prediction for P.
		a.until("every answer of P is compared", func() bool { return a.compared() >= compared+10 })
		a.until("every answer of D has come", func() bool {
			return int(a.metrics()[`warmroute_answer_usage_total{state="complete"}`]) >= a.legs()
		})
		if n, exact := a.compared(), a.exact(); n != a.legs() || exact != n {
			t.Errorf("%d predictions are compared, %d of them exact, after %d legs", n, exact, a.legs())
		}
	})
	t.Run("transfer fails", func(t *testing.T) {
		for _, s := range a.sims[1:] {
			s.SetFaults(vllmsim.Faults{TransferFails: true})
			defer s.SetFaults(vllmsim.Faults{})
		}
		a.until("a leg is done", func() bool { // a replica that failed is not asked again for a while
			before := a.legs()
			a.send(a.warm())
			return a.legs() > before
		})
	})
	for _, s := range a.sims { // parameters that were used twice, or for another prompt
		if n := s.Refused(); n > 0 {
			t.Errorf("a replica was refused blocks %d times", n)
		}
	}
}
