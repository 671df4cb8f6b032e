package index

import "testing"

// drafting is a replica that drops the last block of each hit for its draft model, which only
// its counters and answers show, with requests in flight to it.
type drafting struct {
	t             *testing.T
	x             *Index
	h             Holder
	p             tokensPrompt
	open          []*Guess // of requests in flight, the oldest first
	queries, hits float64
}

const (
	draftHeld = 20 * groupBlock
	draftHit  = 19 * groupBlock
)

func newDrafting(t *testing.T) *drafting {
	x, h, p := newGrouped(t)
	d := &drafting{t: t, x: x, h: h, p: p}
	d.count()
	return d
}

// send puts a request in flight, which the replica looks up at once.
func (d *drafting) send() {
	g := new(Guess)
	d.x.Expect(g, d.x.ID(d.h), groupSpace, d.p.AppendChain(nil, Keying{Unit: groupBlock}), d.p)
	d.open = append(d.open, g)
	d.queries, d.hits = d.queries+float64(len(d.p)), d.hits+draftHit
}

// answer ends the oldest request in flight, with so many cached tokens.
func (d *drafting) answer(cached int, alone bool) {
	d.x.Answered(d.x.ID(d.h), groupSpace, d.open[0], cached, alone)
	d.open = d.open[1:]
}

// count reads the replica's counters.
func (d *drafting) count() { d.x.Hits(d.h, d.queries, d.hits) }

func (d *drafting) groups() Groups {
	d.t.Helper()
	g, ok := d.x.ExplainGroups(d.x.ID(d.h), groupSpace, d.p)
	if !ok {
		d.t.Fatal("no group is known")
	}
	return g
}

// TestAnswersTeachWhereCountersCannot: two prompts are always in flight, and somebody else's
// are in the counters.
func TestAnswersTeachWhereCountersCannot(t *testing.T) {
	d := newDrafting(t)
	d.send()
	for n := 1; ; n++ {
		d.send()
		d.queries++ // a stranger's prompt
		d.count()
		d.answer(draftHit, false)
		d.count()
		if g := d.groups(); g.Trust.Exact && g.Hit == draftHit {
			if n < 60 {
				t.Errorf("%d answers cannot show which groups drop a block", n)
			}
			break
		}
		if n == 80 {
			t.Fatalf("not learned from %d answers: %+v", n, d.groups())
		}
	}
}

// TestInterleavedAnswersAreNoEvidence: a hit that no assumption predicts, while another prompt
// may have evicted blocks, moves nothing; that of a prompt alone counts against all.
func TestInterleavedAnswersAreNoEvidence(t *testing.T) {
	for alone, want := range map[bool]bool{false: true, true: false} {
		d := newDrafting(t)
		for i := range 200 {
			d.send()
			if i%2 == 0 {
				d.answer(3*groupBlock, alone)
			} else {
				d.answer(draftHit, false)
			}
		}
		if g := d.groups(); g.Trust.Exact != want || g.Hit != draftHit {
			t.Errorf("alone %v: %+v", alone, g)
		}
	}
	d := newDrafting(t)
	for range 100 {
		d.send()
		d.answer(3*groupBlock, false)
	}
	if g := d.groups(); !g.Trust.Unconfirmed || g.Hit != draftHeld {
		t.Errorf("%+v", g)
	}
}

// TestAnswersOfNobody: answers of a holder that has left, of another model and of a prompt that
// was not predicted teach nothing; nor do a prompt whose hit is not known and the counts of it.
func TestAnswersOfNobody(t *testing.T) {
	d := newDrafting(t)
	for range 20 {
		d.send()
		other := groupSpace
		other.Model = "other"
		d.x.Answered(77, groupSpace, d.open[0], draftHit, true)
		d.x.Answered(d.x.ID(d.h), other, d.open[0], draftHit, true)
		d.x.Answered(d.x.ID(d.h), groupSpace, new(Guess), draftHit, true)
		g := Guess{Hits: []int32{1}}
		if d.x.Expect(&g, d.x.ID(d.h), groupSpace, nil, nil); len(g.Hits) != 0 {
			t.Errorf("guesses %v", g.Hits)
		}
		d.count()
	}
	if g := d.groups(); !g.Trust.Unconfirmed || g.Hit != draftHeld {
		t.Errorf("%+v", g)
	}
}
