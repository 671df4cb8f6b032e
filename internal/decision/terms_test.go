package decision

import (
	"math"
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
)

// TestTermsOfACharge: the terms of a request's charge, and the time by which its
// first token counts as come.
func TestTermsOfACharge(t *testing.T) {
	heard, silent := replica(1), replica(1)
	silent.Events = nil
	ttft := policy.DefaultTTFT()
	p := prompt(1, 0, 100)
	prefill := ttft.Prefill(p.Tokens(0), 0)
	for name, tt := range map[string]struct {
		rep     *fleet.Replica
		due     time.Duration // after it is sent
		sensed  bool
		guessed bool
	}{
		"events tell": {heard, load.Late(prefill, 0), true, false},
		"none tells":  {silent, time.Duration(prefill * 1e9), false, true},
	} {
		r := newRig(t, policy.Config{}, tt.rep)
		d, rec := r.ask(p)
		got := d.Reservation.own.Terms()
		if late := time.Duration(got.Due-got.Sent) - tt.due; late.Abs() > time.Microsecond || got.Sent != r.now.UnixNano() {
			t.Errorf("%s: due %v after it was sent, want %v", name, time.Duration(got.Due-got.Sent), tt.due)
		}
		if math.Abs(float64(got.Model)-prefill*1e9) > 1 || got.Expected != got.Model || got.Tokens != int64(p.Tokens(0)) ||
			(got.Sentinel != 0) != tt.sensed || got.Guessed != tt.guessed || got.Cached {
			t.Errorf("%s: %+v", name, got)
		}
		if placed := r.account(tt.rep.Addr).Placed(r.now.UnixNano()); math.Abs(placed-float64(rec.Blocks)) > 1e-9 {
			t.Errorf("%s: %g blocks placed, want %d", name, placed, rec.Blocks)
		}
	}
	// Half of it cached: half of it is placed there. All of it: no event will tell.
	r := newRig(t, policy.Config{}, heard)
	half := p
	half.blocks = p.blocks[:50]
	r.stored(heard.Addr, half)
	r.ask(p)
	if placed := r.account(heard.Addr).Placed(r.now.UnixNano()); placed < 50 || placed > 51 {
		t.Errorf("%g blocks are placed where half of 100 are cached", placed)
	}
	r = newRig(t, policy.Config{}, heard)
	r.stored(heard.Addr, p)
	d, _ := r.ask(p)
	if got := d.Reservation.own.Terms(); !got.Cached || got.Sentinel != 0 {
		t.Errorf("wholly cached: %+v", got)
	}
	if !d.Reservation.FirstToken() || d.Reservation.FirstToken() {
		t.Error("the first token is news once")
	}
}

// TestServedLaterIsDueLater: by as much as it was sent later.
func TestServedLaterIsDueLater(t *testing.T) {
	r := newRig(t, policy.Config{}, replicas(2)...)
	d, _ := r.ask(prompt(1, 0, 100))
	before := d.Reservation.own.Terms()
	r.wait(time.Second)
	other := "10.0.0.1:8000"
	if first(d) == other {
		other = "10.0.0.2:8000"
	}
	r.decider.Served(&d, other)
	after := d.Reservation.charge.Load().Terms()
	if after.Sent-before.Sent != int64(time.Second) || after.Due-before.Due != int64(time.Second) || after.Sentinel != before.Sentinel || after.Sentinel == 0 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// TestBlockSizesOfTheirOwn: each replica is matched by blocks of its size, and the event of a
// first token is waited for on those that have the size of most, wherever the others are.
func TestBlockSizesOfTheirOwn(t *testing.T) {
	large, small, third := replica(1), replica(2), replica(3)
	large.BlockSize = 2 * blockSize
	r := newRig(t, policy.Config{}, large, small, third)
	p := sized{ids: 8*2*2*blockSize + 1}
	for _, rep := range []*fleet.Replica{small, large} {
		scope := index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: rep.BlockSize}
		keys := p.AppendKeys(nil, &scope, 0)
		r.coming(rep.Addr, rep.BlockSize, keys[:len(keys)/2])
	}
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: p}, w)
	for _, rep := range []*fleet.Replica{small, large} {
		if c := candidate(t, &w.Record, rep.Addr); c.Match.Matched() != 8*2*blockSize || c.Match.Below() != 0 || c.Match.Cached() != 0 {
			t.Errorf("blocks of %d: %+v", rep.BlockSize, c)
		}
	}
	if w.Record.Blocks != 32 {
		t.Errorf("%d blocks", w.Record.Blocks)
	}
	d.Reservation.Release()
	for rep, want := range map[*fleet.Replica]uint64{large: 0, small: 7, third: 7} {
		d := r.decider.Decide(&Ask{Model: "m", Prompts: p, Subset: []string{rep.Addr}, Must: true}, w)
		if got := d.Reservation.own.Terms().Sentinel; got != want {
			t.Errorf("on %s the sentinel is %d, want %d", rep.Addr, got, want)
		}
		d.Reservation.Release()
	}
}

// sized is a prompt whose keys depend on the block size.
type sized struct{ ids int }

func (p sized) Len() int                                                         { return 1 }
func (p sized) Tokens(int) int                                                   { return p.ids }
func (p sized) Length(int) int                                                   { return p.ids }
func (p sized) Sentinel(s *index.Scope, _ int) (uint64, int)                     { return 7, p.ids / s.BlockSize }
func (p sized) AppendChain([]prefixhash.Key, index.Keying, int) []prefixhash.Key { return nil }
func (p sized) AppendKeys(dst []prefixhash.Key, s *index.Scope, _ int) []prefixhash.Key {
	parent := prefixhash.TokenRoot("m", prefixhash.LoRA{})
	for i := range (p.ids - 1) / s.BlockSize {
		parent = prefixhash.Link(parent, prefixhash.Content(s.BlockSize*1000+i))
		dst = append(dst, parent)
	}
	return dst
}

// TestTextsAreMatchableAsFarAsTheyWereHashed and no further than they are long.
func TestTextsAreMatchableAsFarAsTheyWereHashed(t *testing.T) {
	rep := replica(1)
	rep.Events = nil
	r := newRig(t, policy.Config{}, rep)
	text := chained{blocks: []int{1, 2, 3}}.keys()
	for tokens, want := range map[int]int{10_000: 3 * prefixhash.TextUnit, 5: 5} {
		w := new(Work)
		r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: tokens, Dry: true}, w)
		if w.Record.Input.Matchable != want || w.Record.Input.Input != tokens {
			t.Errorf("%+v, want %d matchable", w.Record.Input, want)
		}
	}
}

// TestAnyNamesInTurns as many replicas as a ranked list has, all of them allowed.
func TestAnyNamesInTurns(t *testing.T) {
	all := replicas(5)
	all[1].Ready = false
	all[2].Tenant = "blue"
	r := newRig(t, policy.Config{}, all...)
	w, firsts := new(Work), map[string]bool{}
	for range 10 {
		list := r.decider.Any("", nil, w)
		if n := len(list); n != len("10.0.0.1:8000,10.0.0.4:8000,10.0.0.5:8000") {
			t.Errorf("named %s", list)
		}
		firsts[list[:13]] = true
	}
	if len(firsts) != 3 {
		t.Errorf("first were %v", firsts)
	}
	r.decider.SetRanked(1)
	if list := r.decider.Any("blue", []string{"10.0.0.3"}, w); list != "10.0.0.3:8000" {
		t.Errorf("named %q", list)
	}
	if list := r.decider.Any("", []string{"10.0.0.3"}, w); list != "" {
		t.Errorf("named another tenant's: %q", list)
	}
}

func TestResidency(t *testing.T) {
	sql := prefixhash.LoRA{Name: "sql", Set: true}
	for name, tt := range map[string]struct {
		a    prefixhash.LoRA
		page fleet.Load
		want policy.Residency
	}{
		"no adapter":       {prefixhash.LoRA{}, fleet.Load{MaxLoRAs: 1, LoRAs: []string{"de"}}, policy.AdapterReady},
		"loaded":           {sql, fleet.Load{MaxLoRAs: 1, LoRAs: []string{"sql"}}, policy.AdapterReady},
		"idle, perhaps":    {sql, fleet.Load{MaxLoRAs: 2, LoRAs: []string{"de"}}, policy.AdapterReady},
		"none free":        {sql, fleet.Load{MaxLoRAs: 1, LoRAs: []string{"de"}}, policy.AdapterEvicted},
		"slots not told":   {sql, fleet.Load{LoRAs: []string{"de"}}, policy.AdapterReady},
		"nothing was told": {sql, fleet.Load{}, policy.AdapterReady},
	} {
		if got := residency(tt.a, tt.page); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestSubsets(t *testing.T) {
	for _, tt := range []struct {
		addr   string
		subset []string
		want   bool
	}{
		{"10.0.0.1:8000", nil, true}, {"10.0.0.1:8000", []string{}, false}, {"10.0.0.1:8000", []string{"10.0.0.1"}, true},
		{"10.0.0.1:8000", []string{"10.0.0.1:8001"}, false}, {"[::1]:8000", []string{"::1"}, true}, {"[::1]:8000", []string{"[::1]"}, true},
		{"here", []string{"here"}, true}, {":8000", []string{""}, true}, {":8000", []string{":9000"}, false},
		{"10.0.0.1:8000", []string{"10.0.0.2", "10.0.0.1"}, true}, {"10.0.0.1:8000", []string{"10.0.0.1:8000"}, true},
		{"10.0.0.1:8000", []string{"10.0.0.11"}, false}, {"[fd00::1]:8000", []string{"[fd00::1]:8000"}, true},
	} {
		if got := InSubset(tt.addr, tt.subset); got != tt.want {
			t.Errorf("%s in %q: %v", tt.addr, tt.subset, got)
		}
	}
}

// TestRanksSpreadApart: each rank of each replica has a hash of its own, the same
// in every process.
func TestRanksSpreadApart(t *testing.T) {
	r := newRig(t, policy.Config{}, replica(1, 0, 1, 2), replica(2, 0, 1, 2))
	_, rec := r.ask(prompt(1, 0, 10))
	var hashes []uint64
	for _, c := range rec.Candidates {
		hashes = append(hashes, c.State.Hash)
	}
	if slices.Sort(hashes); len(slices.Compact(hashes)) != 6 {
		t.Errorf("hashes %v", hashes)
	}
	if h := candidate(t, rec, "10.0.0.1:8000").Hash; h != 0x5139bb638d151dbb {
		t.Errorf("rank 0 of 10.0.0.1:8000 is %#x", h)
	}
}
