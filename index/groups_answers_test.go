package index

import "testing"

// TestAnswersOfNobody: answers of a holder that has left, of another model and of a prompt that
// was not predicted teach nothing; nor do a prompt whose hit is not known and the counts of it.
func TestAnswersOfNobody(t *testing.T) {
	const dropped = 19 * groupBlock
	x, h, p := newGrouped(t)
	id, queries, hits := x.ID(h), 0.0, 0.0
	x.Hits(h, queries, hits)
	other := groupSpace
	other.Model = "other"
	for range 20 {
		sent, unknown := new(Guess), Guess{Hits: []int32{1}}
		x.Expect(sent, id, groupSpace, p.AppendChain(nil, Keying{Unit: groupBlock}), p)
		queries, hits = queries+float64(len(p)), hits+dropped
		x.Answered(77, groupSpace, sent, dropped, true)
		x.Answered(id, other, sent, dropped, true)
		x.Answered(id, groupSpace, new(Guess), dropped, true)
		if x.Expect(&unknown, id, groupSpace, nil, nil); len(unknown.Hits) != 0 {
			t.Errorf("guesses %v", unknown.Hits)
		}
		x.Hits(h, queries, hits)
	}
	if g, ok := x.ExplainGroups(id, groupSpace, p); !ok || !g.Trust.Unconfirmed || g.Hit != 20*groupBlock {
		t.Errorf("%v, %+v", ok, g)
	}
}
