package decision

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/render/testkit/must"
)

// node returns replica n with these ranks, the first of which a header calls 0 if that is known.
func node(n, first int, ranks ...int) *fleet.Replica {
	c := replica(n, ranks...)
	c.FirstRank = first
	return c
}

// answered decides a request, which is answered with a status, and returns the header's value.
func (r *rig) answered(own, status int) string {
	d, _ := r.ask(prompt(own, own, 3))
	if status != 0 {
		d.Reservation.Answered(status)
	}
	d.Reservation.Ended(status < 400)
	d.Reservation.Release()
	return d.Rank
}

// TestRankHeader: a request names a rank as its server counts, and none where that is not known
// or the server has refused one.
func TestRankHeader(t *testing.T) {
	const bad, ok = http.StatusBadRequest, http.StatusOK
	tests := map[string]struct {
		replica  *fleet.Replica
		statuses []int
		want     []string // values before each answer, and after all; "n" is any rank
	}{
		"one rank":                 {node(1, 5, 5), []int{bad, bad}, []string{"", "", ""}},
		"of the deployment":        {node(1, 0, 2, 3), []int{ok, 0, 500}, []string{"g", "g", "g", "g"}},
		"its own":                  {node(1, 2, 2, 3), []int{ok, 0, 500}, []string{"l", "l", "l", "l"}},
		"not known":                {node(1, -1, 2, 3), []int{ok, bad}, []string{"", "", ""}},
		"refused at once":          {node(1, 0, 2, 3), []int{bad, ok, 0, ok}, []string{"g", "", "", "", ""}},
		"other refusals":           {node(1, 0, 2, 3), []int{404, 422, 429, 499}, []string{"g", "g", "g", "g", "g"}},
		"a client's error":         {node(1, 0, 3, 3), []int{ok, bad, bad, ok, bad, bad, ok}, []string{"g", "g", "g", "g", "g", "g", "g", "g"}},
		"refused although it took": {node(1, 0, 3, 3), []int{ok, bad, bad, bad, ok}, []string{"g", "g", "g", "g", "", ""}},
		"clients' errors":          {paged(node(1, 0, 3, 3), time.Time{}), []int{ok, bad, bad, bad, bad, bad}, []string{"g", "g", "g", "g", "g", "g", "g"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, policy.Config{}, tt.replica)
			for i, want := range tt.want {
				status := ok
				if i < len(tt.statuses) {
					status = tt.statuses[i]
				}
				switch got := r.answered(i, status); {
				case want == "" && got != "",
					want == "g" && got != "2" && got != "3",
					want == "l" && got != "0" && got != "1":
					t.Fatalf("request %d names the rank %q, want %q", i, got, want)
				}
			}
			last := tt.want[len(tt.want)-1]
			if got := r.decider.Unasked(tt.replica); got != (last == "" && len(tt.replica.Ranks) > 1) {
				t.Errorf("unasked: %v", got)
			}
		})
	}
}

// paged returns a replica whose page, read at a time, shows all its ranks.
func paged(c *fleet.Replica, at time.Time) *fleet.Replica {
	for _, rank := range c.Ranks {
		c.Load = append(c.Load, fleet.Load{Rank: rank, At: at})
	}
	return c
}

// TestRefusalEnds: a refusal is forgotten with the process or the ranks that it was about, or after
// a time that doubles, and reported by the access log it counts as well as by the response.
func TestRefusalEnds(t *testing.T) {
	for name, change := range map[string]func(r *rig, c *fleet.Replica){
		"it restarts": func(_ *rig, c *fleet.Replica) { c.Joined++ },
		"its ranks":   func(_ *rig, c *fleet.Replica) { c.Ranks = []int{0, 1, 2} },
		"it leaves":   func(r *rig, c *fleet.Replica) { r.ask(prompt(1, 0, 3)); r.decider.Forget(c.Addr) },
		"a minute":    func(r *rig, _ *fleet.Replica) { r.wait(time.Minute) },
		"a minute, the second time": func(r *rig, c *fleet.Replica) {
			r.wait(time.Minute)
			r.fleet.Set(c)
			for own := 9; ; own++ { // the first request of some rank is wrong again
				if d, _ := r.ask(prompt(own, own, 3)); d.Rank == "" {
					break
				} else {
					r.decider.RankAnswered(c.Addr, int(d.Rank[0]-'0'), http.StatusBadRequest)
				}
			}
			r.wait(time.Minute)
		},
		"nothing does": nil,
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, policy.Config{}, node(1, 0, 0, 1))
			d, _ := r.ask(prompt(1, 0, 3))
			r.decider.RankAnswered("10.0.0.1:8000", int(d.Rank[0]-'0'), http.StatusBadRequest)
			r.decider.RankAnswered("10.0.0.9:8000", 0, http.StatusBadRequest) // no replica
			if d, _ := r.ask(prompt(2, 0, 3)); d.Rank != "" || d.Chosen == "" {
				t.Fatalf("after the refusal: %+v", d)
			}
			next := node(1, 0, 0, 1)
			if change != nil {
				change(r, next)
			}
			r.fleet.Set(next)
			if d, _ := r.ask(prompt(3, 0, 3)); (d.Rank == "") != (change == nil || strings.Contains(name, "second")) {
				t.Errorf("names the rank %q", d.Rank)
			}
		})
	}
}

// TestRefusalOfALongPrompt: a prompt that is too long for every replica names no rank, so that
// its refusal is not taken for the rank's.
func TestRefusalOfALongPrompt(t *testing.T) {
	c := node(1, 0, 0, 1)
	c.Models[0].MaxLen = 100
	r := newRig(t, policy.Config{}, c)
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(1, 0, 10), Least: 161}, w)
	d.Reservation.Answered(http.StatusBadRequest)
	d.Reservation.Release()
	if d.Rank != "" || d.Chosen == "" || r.answered(2, 200) == "" {
		t.Errorf("%+v", d)
	}
}

// TestARequestWithoutRoomNamesNoRank: neither its hint nor its record has one, and its refusal is not the
// rank's.
func TestARequestWithoutRoomNamesNoRank(t *testing.T) {
	for _, bare := range []bool{true, false} {
		r := newRig(t, policy.Config{}, node(1, 0, 2, 3))
		w := new(Work)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(1, 0, 10), Must: true, Bare: bare}, w)
		if (d.Rank == "") != bare || d.Reservation.asked == bare || d.Chosen == "" {
			t.Errorf("bare %t: %q, rank %q, refusal counts: %t", bare, d.Chosen, d.Rank, d.Reservation.asked)
		}
	}
}

// TestRefusalOfALeg: a replica that refuses the rank of a prefill for another one, and one that
// takes it.
func TestRefusalOfALeg(t *testing.T) {
	for _, refused := range []bool{true, false} {
		replicas := apartFleet(fleet.RolePrefill, fleet.RoleDecode, fleet.RoleDecode)
		replicas[0].Ranks = []int{0, 1}
		r := newRig(t, policy.Config{}, replicas...)
		r.busy(2)
		for i := range 3 {
			d, _ := r.maySplit(prompt(2+i, 0, 500))
			if d.Split == nil || (d.Split.Rank == "") != (refused && i > 0) {
				t.Fatalf("split %d: %+v", i, d.Split)
			}
			if refused {
				d.Split.Failed(SplitPrefillRefused)
			} else {
				d.Split.Done(1)
			}
			d.Reservation.Release()
		}
		if first := r.decider.views.answersOf(replicas[0]); !refused && first.left[0].Load()+first.left[1].Load() == 0 {
			t.Error("what it took is not recorded")
		}
	}
}

// TestRetriesKeepToTheRank: the header's value travels with a retry, so only replicas with a
// rank of that number follow; without one every replica may.
func TestRetriesKeepToTheRank(t *testing.T) {
	tests := []struct {
		first, next *fleet.Replica
		want        bool
	}{
		{node(1, 2, 2, 3), node(2, 4, 4, 5), true},   // each counts its own
		{node(1, 0, 2, 3), node(2, 0, 4, 5), false},  // both count the deployment's
		{node(1, 0, 0, 1), node(2, 2, 2, 3), true},   // the first node and the second
		{node(1, 0, 0, 1), node(2, -1, 2, 3), false}, // nobody knows what it would make of the value
		{node(1, -1, 2, 3), node(2, 0, 0, 1), true},
		{node(1, 5, 5), node(2, 6, 6), true}, // one rank each, of an external load balancer
		{node(1, 0, 0), node(2, 0, 0, 1), true},
		{node(1, 0, 0, 1), node(2, 0, 0), false},
	}
	for _, tt := range tests {
		r := newRig(t, policy.Config{}, tt.first, tt.next)
		mv := viewOf(r.decider.Find("m", ""))
		from := mv.find(tt.first.Addr, tt.first.Ranks[0])
		at := mv.serving(tt.next.Addr, from.asks())
		if got := from.follows(at); got != tt.want {
			t.Errorf("from ranks %v of %d to %v of %d: %v", tt.first.Ranks, tt.first.FirstRank, tt.next.Ranks, tt.next.FirstRank, got)
		}
		d := Decision{Choice: Choice{Chosen: tt.first.Addr}, Reservation: &Reservation{d: r.decider, mv: mv, here: from}}
		r.ledger.Lock()
		d.Reservation.own.Put(from.account, load.Terms{})
		r.ledger.Unlock()
		d.Reservation.charge.Store(&d.Reservation.own)
		r.decider.Served(&d, tt.next.Addr)
		if got := d.Reservation.here; got != at || tt.want && from.rankHeader() != "" && got.asks() != from.asks() {
			t.Errorf("served at %v of %v", got.rank, tt.next.Ranks)
		}
	}
}

// TestRankWithoutFollowers: a rank is named only where the first retry finds it, too: behind the
// ranked list Envoy takes any replica, with the header. Where the replica chooses the rank, nothing
// is claimed of the one that has most of the prompt.
func TestRankWithoutFollowers(t *testing.T) {
	two, deployment := node(1, 0, 0, 1), node(1, 0, 2, 3)
	tests := map[string]struct {
		first  *fleet.Replica
		others []*fleet.Replica
		ranked int
		named  bool
		list   int // replicas that are named
	}{
		"alone":                     {two, nil, 3, true, 1},
		"all have it":               {two, []*fleet.Replica{node(2, 0, 0, 1), node(3, 2, 2, 3)}, 6, true, 3},
		"all, and no list":          {two, []*fleet.Replica{node(2, 0, 0, 1), node(3, 2, 2, 3)}, 1, true, 1},
		"another has one rank":      {two, []*fleet.Replica{node(2, 0, 0)}, 3, false, 2},
		"one has it, one has not":   {two, []*fleet.Replica{node(2, 0, 0), node(3, 0, 0, 1)}, 3, true, 2},
		"the same, and no list":     {two, []*fleet.Replica{node(2, 0, 0), node(3, 0, 0, 1)}, 1, false, 1},
		"others count otherwise":    {deployment, []*fleet.Replica{node(2, 2, 2, 3)}, 3, false, 2},
		"it is not known how":       {two, []*fleet.Replica{node(2, -1, 2, 3)}, 3, false, 2},
		"it chooses":                {node(1, -1, 2, 3), nil, 3, false, 1},
		"other ranks of one server": {deployment, []*fleet.Replica{node(2, 0, 0, 1)}, 3, false, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, policy.Config{}, append([]*fleet.Replica{tt.first}, tt.others...)...)
			r.decider.SetRanked(tt.ranked)
			at := index.Holder{Replica: tt.first.Addr, Rank: tt.first.Ranks[1]}
			must.Get(r.index.Apply(&index.Batch{Holder: at, Incarnation: r.index.Begin(at), Events: []index.Event{r.event(prompt(1, 0, 10))}}))(t)
			d, _ := r.ask(prompt(1, 0, 10))
			if d.Reason != ReasonWarm || d.Predicted != 10*blockSize {
				t.Errorf("%s, %d tokens predicted", d.Reason, d.Predicted)
			}
			if list := strings.Split(d.Chosen, ","); list[0] != tt.first.Addr || len(list) != tt.list || (d.Rank != "") != tt.named || (d.Reported > 0) != tt.named {
				t.Errorf("rank %q, of %s, %d tokens claimed", d.Rank, d.Chosen, d.Reported)
			}
		})
	}
}
