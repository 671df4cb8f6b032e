package decision

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/internal/decision/policy"
)

// viewsOf counts the views that are kept.
func (r *rig) viewsOf() (n int) {
	r.decider.views.now().models.Range(func(any, any) bool { n++; return true })
	return n
}

func TestClientStringsDoNotGrowTheViews(t *testing.T) {
	r := newRig(t, policy.Config{}, replica(1))
	for i := range 100 {
		if d := r.decider.Decide(&Ask{Model: fmt.Sprintf("x%d", i)}, new(Work)); d.Reason != ReasonUnknownModel {
			t.Fatalf("decided %+v", d)
		}
	}
	if n := r.viewsOf(); n != 0 {
		t.Errorf("%d views of models nobody serves", n)
	}
}

// TestStrangersTenantsShareAView: a flood of tenant names costs no memory.
func TestStrangersTenantsShareAView(t *testing.T) {
	own := replica(2)
	own.Tenant = "blue"
	r := newRig(t, policy.Config{}, replica(1), own)
	for _, tenant := range []string{"", "blue", "a", "b", "c"} {
		if d := r.decider.Decide(&Ask{Model: "m", Tenant: tenant, Prompts: prompt(1, 0, 10)}, new(Work)); d.Destination == "" {
			t.Errorf("tenant %q: %+v", tenant, d)
		}
	}
	if n := r.viewsOf(); n != 2 {
		t.Errorf("%d views, want 2", n)
	}
}

// TestTheEventsBlockSizeCounts: a replica whose events show larger blocks than it reports is
// looked up, and speculated, in blocks of the events' size, from the next snapshot on.
func TestTheEventsBlockSizeCounts(t *testing.T) {
	for _, reported := range []int{0, blockSize / 2, blockSize, 2 * blockSize} {
		one, two := replica(1), replica(2)
		one.BlockSize, two.BlockSize = reported, reported
		r := newRig(t, policy.Config{}, one, two)
		r.ask(prompt(9, 0, 10)) // before any event
		r.stored(one.Addr, prompt(1, 0, 10))
		r.fleet.Set(one, two)
		d, rec := r.ask(prompt(1, 0, 10))
		if want := 10 * blockSize; rec.Predicted != want || !strings.HasPrefix(d.Destination, one.Addr) {
			t.Errorf("reported %d: %d tokens predicted at %s, want %d", reported, rec.Predicted, d.Destination, want)
		}
	}
}
