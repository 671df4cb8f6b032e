package decision

import "testing"

func TestRingKeepsTheNewest(t *testing.T) {
	g := NewRing(4)
	for i := range 10 {
		g.Put(&Record{Tokens: i, Candidates: make([]CandidateRecord, i%3)})
	}
	got := g.Last(99, nil)
	if len(got) != 4 || got[0].Tokens != 9 || got[3].Tokens != 6 {
		t.Errorf("ring holds %+v", got)
	}
	if got := g.Last(1, func(r *Record) bool { return r.Tokens == 7 }); len(got) != 1 || got[0].Seq != 8 {
		t.Errorf("by match: %+v", got)
	}
	g.Resize(3)
	g.Put(&Record{Tokens: 10})
	if got := g.Last(99, nil); len(got) != 3 || got[0].Tokens != 10 || got[1].Tokens != 9 || got[2].Tokens != 8 {
		t.Errorf("a smaller ring holds %+v", got)
	}
	g.Resize(8)
	g.Put(&Record{Tokens: 11})
	if got := g.Last(99, nil); len(got) != 4 || got[3].Tokens != 8 || g.Decisions() != 12 {
		t.Errorf("a larger ring holds %+v", got)
	}
}
