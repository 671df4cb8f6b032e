package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
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

	mu      sync.Mutex
	headers []http.Header // of completions, as the replicas got them
	bodies  [][]byte      // theirs
}

// startApart starts it. how is the router's prefill_decode.
func startApart(t *testing.T, mode envoy.Mode, how string, split envoy.Split) *apart {
	t.Helper()
	a := new(apart)
	sim := fast()
	sim.Connector, sim.TransferRate, sim.Handover = vllmsim.Nixl, -1, -1
	sim.Front = func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == completionsPath {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return // its sender has gone
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				a.mu.Lock()
				a.headers, a.bodies = append(a.headers, r.Header.Clone()), append(a.bodies, body)
				a.mu.Unlock()
			}
			api.ServeHTTP(w, r)
		})
	}
	o := envoy.Options{Mode: mode, Split: split, UsageShare: new(100)}
	if split.Wait > 0 {
		o.MessageTimeout = 2 * time.Second // so that only Envoy's longer wait explains a late answer
	}
	a.stack = start(t, setup{
		replicas: 3, sim: sim, envoy: o,
		replica: func(i int) string {
			return fmt.Sprintf("    role: %s\n", []string{"prefill", "decode", "decode"}[i])
		},
		config: readAll + "prefill_decode: " + how + "\npolicy: {prefill_decode: {handover: 0.001}}\n",
	})
	if split.Wait > 0 || strings.Contains(how, "header") {
		a.until("a request is split", func() bool { // once the replicas' KV connectors are known
			before := a.split("split")
			a.send(t, a.warm(t), http.StatusOK)
			return a.split("split") > before
		})
	}
	return a
}

// split returns how many requests were split, or not, for a reason.
func (a *apart) split(reason string) int {
	a.t.Helper()
	return int(a.metrics()[fmt.Sprintf("warmroute_split_decisions_total{reason=%q}", reason)])
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

func (a *apart) legs(outcome string) int {
	a.t.Helper()
	return int(a.metrics()[fmt.Sprintf("warmroute_prefill_legs_total{outcome=%q}", outcome)])
}

// promptTokens are the tokens of each prompt.
const promptTokens = 4000

// cold returns a request whose prompt no replica has.
func (a *apart) cold() []byte {
	a.prompts++
	return fmt.Appendf(nil, `{"model":"sim","max_tokens":4,"prompt":[%s]}`, testenv.Tokens(a.prompts, promptTokens))
}

// warm returns a request whose prompt the first replica alone has in its cache: the others
// would compute all of it.
func (a *apart) warm(t *testing.T) []byte {
	t.Helper()
	body := a.cold()
	testenv.Post(t, "http://"+a.addrs[0]+completionsPath, body)
	a.settled()
	return body
}

// send sends a request through Envoy and expects a status.
func (a *apart) send(t *testing.T, body []byte, status int) answer {
	t.Helper()
	got := a.post(completionsPath, body)
	if got.status != status {
		t.Errorf("status %d, want %d", got.status, status)
	}
	if got.replica == a.addrs[0] {
		t.Error("the replica with the role prefill answered")
	}
	return got
}

// refused returns how often a replica was refused blocks: parameters that were used twice,
// or for another prompt.
func (a *apart) refused() (n int) {
	for _, s := range a.sims {
		n += s.Refused()
	}
	return n
}

var waits = envoy.Split{On: true, Wait: time.Minute}

// TestPrefillOnAnotherReplica: the replica that answers pulls the blocks; if that fails, the
// client gets the answer of a plain request.
func TestPrefillOnAnotherReplica(t *testing.T) {
	t.Parallel()
	a := startApart(t, envoy.Buffered, "{mode: pull, max_wait: 60s}", waits)
	t.Run("pulled", func(t *testing.T) {
		compared := a.compared()
		for range 10 {
			before := a.legs("done")
			a.send(t, a.warm(t), http.StatusOK)
			if a.legs("done") != before+1 {
				t.Errorf("no leg was done: %v", a.metrics())
			}
		}
		if moved := a.metrics()["warmroute_split_moved_tokens_total"]; moved < 10*3900 {
			t.Errorf("%v tokens moved", moved)
		}
		// The answers of D have P's cached tokens: they are compared with the prediction for P.
		a.until("every answer of P is compared", func() bool { return a.compared() >= compared+10 })
		a.until("every answer of D has come", func() bool {
			return int(a.metrics()[`warmroute_answer_usage_total{state="complete"}`]) >= a.legs("done")
		})
		if n, exact := a.compared(), a.exact(); n != a.legs("done") || exact != n {
			t.Errorf("%d predictions are compared, %d of them exact, after %d legs", n, exact, a.legs("done"))
		}
	})
	t.Run("transfer fails", func(t *testing.T) {
		for _, s := range a.sims[1:] {
			s.SetFaults(vllmsim.Faults{TransferFails: true})
			defer s.SetFaults(vllmsim.Faults{})
		}
		a.until("a leg is done", func() bool { // a replica that failed is not asked again for a while
			before := a.legs("done")
			a.send(t, a.warm(t), http.StatusOK)
			return a.legs("done") > before
		})
	})
	if n := a.refused(); n > 0 {
		t.Errorf("replicas were refused blocks %d times", n)
	}
}
