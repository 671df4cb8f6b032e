package load

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestMetrics: speed and lag are absent until something was learned.
func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.Model = func(string) string { return "m" }
	r.put(one, Terms{Expected: 15e8})
	r.put(one, Terms{Expected: 5e8}).FirstToken()
	if n := testutil.CollectAndCount(r); n != 2 {
		t.Errorf("%d series, want in flight and pending", n)
	}
	const want = `
# HELP warmroute_in_flight_requests Hinted requests in flight; one for several answers counts for each.
# TYPE warmroute_in_flight_requests gauge
warmroute_in_flight_requests{rank="0",replica="10.0.0.1:8000"} 2
# HELP warmroute_pending_prefill_seconds Expected prefill of hinted requests without a first token. For autoscalers.
# TYPE warmroute_pending_prefill_seconds gauge
warmroute_pending_prefill_seconds{model="m",rank="0",replica="10.0.0.1:8000"} 1.5
`
	if err := testutil.CollectAndCompare(r, strings.NewReader(want), "warmroute_in_flight_requests", "warmroute_pending_prefill_seconds"); err != nil {
		t.Error(err)
	}
	r = newRig(t)
	r.serve(1, 1, time.Second)
	if n := testutil.CollectAndCount(r, "warmroute_replica_slowness", "warmroute_first_token_news_seconds"); n != 2 {
		t.Errorf("%d series of what was learned, want 2", n)
	}
	l := &loading{rig: newRig(t)}
	l.Of(two)
	l.send(one, 20_000, 1e-5)
	if n := testutil.CollectAndCount(l, "warmroute_load_token_seconds"); n != 1 {
		t.Errorf("%d series of loads, want one place of one replica", n)
	}
}
