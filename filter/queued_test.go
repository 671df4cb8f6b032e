package filter

import (
	"math"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
)

// queued reads warmroute_pending_prefill_seconds by model and replica.
func queued(t *testing.T, b *bench) map[[2]string]float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(b.ledger)
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[[2]string]float64{}
	for _, f := range families {
		if f.GetName() != "warmroute_pending_prefill_seconds" {
			continue
		}
		for _, m := range f.Metric {
			var at [2]string
			for _, l := range m.Label {
				switch l.GetName() {
				case "model":
					at[0] = l.GetValue()
				case "replica":
					at[1] = l.GetValue()
				}
			}
			out[at] += m.GetGauge().GetValue()
		}
	}
	return out
}

// TestQueuedPrefillOfALoadedFleet: the autoscaler's signal is, for every replica,
// the prefill of its requests without a first token, and nothing once they have
// ended.
func TestQueuedPrefillOfALoadedFleet(t *testing.T) {
	b := newBench(t, fakeTokens{n: 1000}, replica(1), replica(2))
	b.ledger.Model = func(replica string) string { return b.fleet.Snapshot().Base(replica) }
	constants := policy.DefaultTTFT()
	want := map[[2]string]float64{}
	var sent []decision.Decision
	for range 12 {
		d := b.route(query())
		r := b.last()
		at := d.Chosen[:len("10.0.0.1:8000")]
		want[[2]string{"m", at}] += constants.Prefill(r.Tokens, r.Predicted)
		sent = append(sent, d)
	}
	if len(want) != 2 {
		t.Fatalf("not both replicas are loaded: %v", want)
	}
	got := queued(t, b)
	for at, seconds := range want {
		if math.Abs(got[at]-seconds) > 1e-6 {
			t.Errorf("%v: %v s queued, want %v", at, got[at], seconds)
		}
	}
	for _, d := range sent {
		d.Reservation.Release()
	}
	for at, seconds := range queued(t, b) {
		if seconds != 0 {
			t.Errorf("%v: %v s queued when all has ended", at, seconds)
		}
	}
}
