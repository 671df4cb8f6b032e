package decision

import (
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// viewsOf counts the views that are kept.
func (r *rig) viewsOf() (n int) {
	r.decider.views.now().models.Range(func(any, any) bool { n++; return true })
	return n
}

// TestStrangersMakeNoViews: a flood of names of tenants and models costs no memory.
func TestStrangersMakeNoViews(t *testing.T) {
	own := replica(2)
	own.Tenant = "blue"
	r := newRig(t, policy.Config{}, replica(1), own)
	for _, tenant := range []string{"", "blue", "a", "b", "c"} {
		if d := r.decider.Decide(&Ask{Model: "m", Tenant: tenant, Prompts: prompt(1, 0, 10)}, new(Work)); d.Chosen == "" {
			t.Errorf("tenant %q: %+v", tenant, d)
		}
		if d := r.decider.Decide(&Ask{Model: "x" + tenant, Tenant: tenant}, new(Work)); d.Reason != ReasonUnknownModel {
			t.Errorf("a model that nobody serves: %+v", d)
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
		if want := 10 * blockSize; rec.Predicted != want || !strings.HasPrefix(d.Chosen, one.Addr) {
			t.Errorf("reported %d: %d tokens predicted at %s, want %d", reported, rec.Predicted, d.Chosen, want)
		}
	}
}

// TestMostReplicasDescribeTheModel: one replica, at the lowest address, that says otherwise changes
// nothing of how prompts are keyed and matched on the others. It stays a candidate, and nothing is
// found on it.
func TestMostReplicasDescribeTheModel(t *testing.T) {
	usual := *replica(2).Model("m")
	for name, liar := range map[string]fleet.Model{
		"an adapter":         {ID: "m", Base: "x", LoRA: prefixhash.LoRA{Name: "m", Set: true}},
		"another first name": {ID: "m", Base: "a"},
		"another length":     {ID: "m", Base: usual.Base, MaxLen: 1},
	} {
		first := replica(1)
		first.Models, first.Version = []fleet.Model{liar}, "0.32.0"
		long, last := replica(2), replica(3)
		long.Models[0].MaxLen, last.Models[0].MaxLen = 4000, 2000
		r := newRig(t, policy.Config{}, first, long, last)
		r.decider.views.readsSalt = func(version string) bool { return version != "" }
		mv, _ := r.decider.Find("m", "")
		if m := mv.Model(); m.Base != usual.Base || m.LoRA.Set || mv.Context() != 4000 {
			t.Errorf("%s: the model is %+v, the longest context %d", name, *m, mv.Context())
		}
		salt := "s"
		if got := mv.Salt(&openai.Request{Route: openai.Messages, CacheSalt: &salt}); got != nil {
			t.Errorf("%s: the salt of /v1/messages counts, which one replica reads", name)
		}
		p := sized{ids: 12*blockSize + 1}
		scope := index.Scope{Model: usual.Base, Scheme: index.SchemeTokens, BlockSize: blockSize}
		r.coming(replica(3).Addr, blockSize, p.AppendKeys(nil, &scope, 0))
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Prompts: p}, w)
		for _, rep := range []*fleet.Replica{first, replica(2), replica(3)} {
			want := 0
			if rep.Addr == replica(3).Addr {
				want = 12 * blockSize
			}
			if c := candidate(t, &w.Record, rep.Addr); c.Match.Matched() != want {
				t.Errorf("%s: %d tokens on %s, want %d", name, c.Match.Matched(), rep.Addr, want)
			}
		}
	}
}

// TestBlocksOfReplicasThatTellNone: a replica that reports neither its blocks nor their size is taken
// to have usual ones; of one that reports blocks the size is known with them.
func TestBlocksOfReplicasThatTellNone(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fleet.Replica)
		want   int
	}{
		"no events":           {func(r *fleet.Replica) { r.Events = nil }, assumedBlock},
		"events to come":      {func(*fleet.Replica) {}, 0},
		"a sidecar":           {func(r *fleet.Replica) { r.Events, r.Sidecar = nil, true }, 0},
		"no events, but size": {func(r *fleet.Replica) { r.Events, r.BlockSize = nil, 32 }, 32},
	} {
		rep := replica(1)
		rep.BlockSize = 0
		c.change(rep)
		r := newRig(t, policy.Config{}, rep)
		mv, _ := r.decider.Find("m", "")
		if got := mv.scopes[0].BlockSize; got != c.want {
			t.Errorf("%s: blocks of %d tokens, want %d", name, got, c.want)
		}
	}
}

// TestSeveral: the model of a request chooses among replicas that list different models, and where
// one that is only named is not listed by all. Otherwise a request need not name one.
func TestSeveral(t *testing.T) {
	named := func(id string) *fleet.Replica {
		return &fleet.Replica{Reported: fleet.Reported{Models: []fleet.Model{{ID: id, Base: id}}}}
	}
	for name, c := range map[string]struct {
		replicas, named []*fleet.Replica
		want            bool
	}{
		"none": {nil, []*fleet.Replica{named("x")}, false}, "one": {replicas(1), nil, false}, "alike": {replicas(3), nil, false},
		"one is unread":    {append(replicas(2), &fleet.Replica{Addr: "10.0.0.9:8000"}), nil, true},
		"another is named": {replicas(2), []*fleet.Replica{named("x")}, true}, "the same is named": {replicas(2), []*fleet.Replica{named("m")}, false},
	} {
		s := fleet.NewSnapshot(c.replicas...)
		s.Named = c.named
		d := newRig(t, policy.Config{}).decider
		d.views.fleet = still{s}
		if got := d.Several(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		mv, why := d.Find("", "")
		if chooses := c.want || len(c.replicas) == 0; chooses && (mv != nil || why != ReasonNoModel) || !chooses && (mv == nil || mv.Model().ID != "m") {
			t.Errorf("%s: a request without a model is for %v, %s", name, mv, why)
		}
	}
}

// still is a fleet that does not change.
type still struct{ of *fleet.Snapshot }

func (s still) Snapshot() *fleet.Snapshot { return s.of }
