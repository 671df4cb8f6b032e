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
