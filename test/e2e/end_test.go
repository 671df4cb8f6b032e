package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/lab/vllmsim"
)

// TestEnvoyWaitsNoLonger: a decision that takes longer than message_timeout costs
// its request the hint and nothing else; it has a reason, and nothing is charged.
func TestEnvoyWaitsNoLonger(t *testing.T) {
	st := start(t, setup{replicas: 2, sim: fast(), config: "filter: {" + patient + "}\n", envoy: envoy.Options{Mode: envoy.Buffered, MessageTimeout: 50 * time.Millisecond}})
	faults(st, vllmsim.Faults{NoRender: true})
	if a := st.chat(firstTurn(0), 1); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	st.until("the stream ends", func() bool { return st.metrics()["warmroute_streams"] == 0 })
	if r := st.wantReasons(1, 0); r[string(decision.ReasonUnfinished)] != 1 {
		t.Errorf("reasons %v", r)
	}
	for name, v := range st.metrics() {
		if strings.HasPrefix(name, "warmroute_in_flight_requests{") && v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}
