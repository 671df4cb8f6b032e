package decision

import (
	"testing"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// below stores a prompt in a tier below the GPU of a replica.
func (r *rig) below(addr string, p chained, tier index.Tier, shared bool) {
	e := r.event(p)
	e.Tier = tier
	pub := r.publishers[addr]
	b := &index.Batch{Holder: index.Holder{Replica: addr}, Incarnation: pub.life, Shared: shared, Events: []index.Event{e}}
	must.Get(r.index.Apply(b))(r.t)
	r.ledger.Applied(b)
}

// lies returns a match that lies in one place alone.
func lies(p policy.Place, tokens int32, token float32) (m policy.Match) {
	for all := range policy.Cut {
		m[all] = policy.Stretch{Credit: 1, Source: policy.Reported}
	}
	m[p].Tokens, m[p].Token = tokens, token
	return m
}

// TestTokensBelowTheGPUArePriced: by what is learned until a setting says otherwise; fast ones
// draw the request, slow ones do not.
func TestTokensBelowTheGPUArePriced(t *testing.T) {
	slow, none := 1e-3, 0.0
	for name, tt := range map[string]struct {
		set   policy.Constants
		price float32
		drawn bool
	}{
		"learned":    {nil, 5.2e-6, true},
		"set to 0":   {policy.Constants{"load_token": &none}, 5.2e-6, true},
		"set slower": {policy.Constants{"load_token": &slow}, 1e-3, false},
	} {
		r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: tt.set}}, replicas(3)...)
		p, holder := prompt(1, 0, 100), r.fleet.Snapshot().Replicas[1].Addr
		r.below(holder, p, index.TierCPU, false)
		d, rec := r.ask(p)
		c := candidate(t, rec, holder)
		if want := lies(policy.CPU, 100*blockSize, tt.price); c.Match != want {
			t.Errorf("%s: %+v, want %+v", name, c.Match, want)
		}
		if drawn := first(d) == holder; drawn != tt.drawn {
			t.Errorf("%s: the request goes to %s, the prompt is in CPU memory of %s", name, first(d), holder)
		}
		if held, seconds := rec.Match.Loads(); tt.drawn && (held != 100*blockSize || seconds <= 0) {
			t.Errorf("%s: the record has %d tokens to load in %g s", name, held, seconds)
		}
	}
}

// TestASharedStoreChoosesNobody: what is in a store counts for all replicas that read it, by
// configuration, connector or events, and for no other one.
func TestASharedStoreChoosesNobody(t *testing.T) {
	for name, mark := range map[string]func(r *fleet.Replica){
		"configured": func(r *fleet.Replica) { r.Store = "s" },
		"connector": func(r *fleet.Replica) {
			r.Transfer.Connector = "MooncakeStoreConnector"
			r.Store = r.Transfer.Connector
		},
		"events": func(*fleet.Replica) {},
	} {
		all := replicas(4)
		for _, r := range all[:3] {
			mark(r)
		}
		r := newRig(t, policy.Config{}, all...)
		p := prompt(1, 0, 100)
		if name == "events" {
			r.ask(prompt(50, 0, 1)) // the replicas have accounts from the first request on
			for i, rep := range all[:3] {
				r.below(rep.Addr, prompt(10+i, 0, 1), index.TierStorage, true)
			}
			r.fleet.Set(all...)
		}
		r.below(all[0].Addr, p, index.TierStorage, name == "events")
		_, rec := r.ask(p)
		for i, rep := range all {
			want := lies(policy.Shared, 0, 0)
			if i < 3 {
				want = lies(policy.Shared, 100*blockSize, 13e-6)
			}
			if c := candidate(t, rec, rep.Addr); c.Match != want {
				t.Errorf("%s: replica %d: %+v, want %+v", name, i, c.Match, want)
			}
		}
	}
}

// TestTextsAreInTheStoreToo: a text that was sent to a replica with a shared store costs every
// replica that reads the store a load, and others its prefill.
func TestTextsAreInTheStoreToo(t *testing.T) {
	all := silent(3)
	all[0].Store, all[1].Store = "s", "s"
	r := newRig(t, policy.Config{}, all...)
	keys := r.textKeys(1, 8)
	r.decider.Receive(Prefix{Statement: Observed, Model: "m", Holder: index.Holder{Replica: all[0].Addr}, Keys: keys})
	rec := r.explainOf(&Ask{Text: keys, TextTokens: len(keys) * prefixhash.TextUnit})
	held := candidate(t, &rec, all[0].Addr).Match.Matched()
	for i, want := range []int{0, held, 0} {
		if got := candidate(t, &rec, all[i].Addr).Match; got.Below() != want || got[policy.Shared].Found() != want || (want > 0) != (got[policy.Shared].Token > 0) {
			t.Errorf("replica %d: %+v, want %d tokens from the store", i, got, want)
		}
	}
	if held == 0 {
		t.Error("the replica that got the text has nothing of it")
	}
}

// TestReplicasWithoutASharedStore: replicas with the store "none" share none, whatever their
// events tell.
func TestReplicasWithoutASharedStore(t *testing.T) {
	all := replicas(2)
	all[0].Store, all[1].Store = fleet.NoStore, fleet.NoStore
	r := newRig(t, policy.Config{}, all...)
	r.ask(prompt(50, 0, 1)) // the replicas have accounts from the first request on
	p := prompt(1, 0, 100)
	r.below(all[0].Addr, p, index.TierStorage, true)
	r.fleet.Set(all...)
	_, rec := r.ask(p)
	if c := candidate(t, rec, all[0].Addr); c.Match[policy.Storage].Tokens != 100*blockSize {
		t.Errorf("the replica with the tokens: %+v", c.Match)
	}
	if c := candidate(t, rec, all[1].Addr); c.Match.Below() > 0 {
		t.Errorf("the other replica: %+v", c.Match)
	}
}

// TestWhatARequestLoads: the time of the loads, those ahead, and whether they or the prefill hold the
// request up; tokens in one tier alone show that tier's speed, and a request that nothing hinders.
func TestWhatARequestLoads(t *testing.T) {
	two := lies(policy.CPU, 4, 0.5)
	two[policy.Storage].Tokens, two[policy.Storage].Token = 4, 0.5
	for name, c := range map[string]struct {
		match policy.Match
		load  policy.Load
		want  load.BelowTerms
	}{
		"nothing is below":    {lies(policy.GPU, 4, 0), policy.Load{}, load.BelowTerms{}},
		"nothing hinders":     {lies(policy.CPU, 4, 0.5), policy.Load{}, load.BelowTerms{Loading: 2e9, Loaded: 4, LoadedFrom: policy.CPU, LoadBound: true, Unhindered: true}},
		"two tiers":           {two, policy.Load{}, load.BelowTerms{Loading: 4e9, LoadBound: true, Unhindered: true}},
		"loads ahead":         {lies(policy.Storage, 4, 0.5), policy.Load{Loading: 1, Pending: 1.25}, load.BelowTerms{Loading: 2e9, LoadsAhead: 1e9, Loaded: 4, LoadedFrom: policy.Storage, LoadBound: true}},
		"as much prefill":     {lies(policy.CPU, 4, 0.5), policy.Load{Pending: 1, Awaiting: 1}, load.BelowTerms{Loading: 2e9, Loaded: 4, LoadedFrom: policy.CPU}},
		"others' prefill":     {lies(policy.CPU, 4, 0.5), policy.Load{Pending: 0.75, Foreign: 0.75}, load.BelowTerms{Loading: 2e9, Loaded: 4, LoadedFrom: policy.CPU}},
		"waiting for nothing": {lies(policy.CPU, 4, 0.5), policy.Load{Foreign: 0.25}, load.BelowTerms{Loading: 2e9, Loaded: 4, LoadedFrom: policy.CPU, LoadBound: true}},
	} {
		w, terms := Work{contest: contest{cands: []policy.Candidate{{Match: c.match, Load: c.load}}}}, load.Terms{}
		if w.loads(&terms, 0); terms.BelowTerms != c.want {
			t.Errorf("%s: %+v, want %+v", name, terms.BelowTerms, c.want)
		}
	}
}

// TestCreditBelowTheGPU: what no event takes back counts by the share that is found; where cache groups
// decide, events tell of all but the store.
func TestCreditBelowTheGPU(t *testing.T) {
	for grouped, want := range map[bool][4]float32{false: {1, 0.25, 0.25, 0.25}, true: {1, 1, 1, 0.25}} {
		h := held{grouped: grouped}
		h.match[policy.CPU].Tokens, h.match[policy.Storage].Tokens, h.match[policy.Shared].Tokens = 100, 10, 1
		h.credit(0.25)
		if got := [4]float32{h.match[policy.GPU].Credit, h.match[policy.CPU].Credit, h.match[policy.Storage].Credit, h.match[policy.Shared].Credit}; got != want {
			t.Errorf("grouped %v: credit %v, want %v", grouped, got, want)
		}
		if n := h.credited(); n != map[bool]int64{false: 111, true: 1}[grouped] {
			t.Errorf("grouped %v: %d tokens credited", grouped, n)
		}
	}
	if n := stored(&index.Match{Grouped: true, Hit: 30, Loaded: 12}, blockSize); n != 42 {
		t.Errorf("%d tokens stored, want those that are hit and loaded", n)
	}
	if n := stored(&index.Match{Storage: 3}, blockSize); n != 3*blockSize {
		t.Errorf("%d tokens stored, want three blocks", n)
	}
}

// TestComingTokensCountOnce: what a request in flight will leave on the GPU is no longer counted below
// it.
func TestComingTokensCountOnce(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(1)...)
	p, addr := prompt(1, 0, 100), "10.0.0.1:8000"
	r.below(addr, p, index.TierCPU, false)
	d, _ := r.ask(p)
	defer d.Reservation.Release()
	_, rec := r.ask(p)
	m := candidate(t, rec, addr).Match
	if coming, cpu := m[policy.Coming].Tokens, m[policy.CPU].Tokens; coming == 0 || coming+cpu != 100*blockSize {
		t.Errorf("%d tokens are coming and %d are in CPU memory, together not %d", coming, cpu, 100*blockSize)
	}
}
