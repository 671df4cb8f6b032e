package decision

import (
	"slices"
	"testing"
)

// TestRingKeepsTheNewest: as many as are asked for, or are kept, newest first.
func TestRingKeepsTheNewest(t *testing.T) {
	g := NewRing(4)
	for i := range 10 {
		g.Put(&Record{Prompted: Prompted{Tokens: i}, Candidates: make([]CandidateRecord, i%3)})
	}
	for n, want := range map[int][]int{0: nil, 2: {9, 8}, 99: {9, 8, 7, 6}} {
		var got []int
		for _, rec := range g.Last(n, nil) {
			got = append(got, rec.Tokens)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the last %d of four that are kept: %v, want %v", n, got, want)
		}
	}
	if got := g.Last(1, func(r *Record) bool { return r.Tokens == 7 }); len(got) != 1 || got[0].Seq != 8 {
		t.Errorf("by match: %+v", got)
	}
	if g.Decisions() != 10 {
		t.Errorf("%d decisions", g.Decisions())
	}
}

// TestRingKeepsAnAnswersUsage: with the record of its number and request, once, and not
// with a record that took its place.
func TestRingKeepsAnAnswersUsage(t *testing.T) {
	g := NewRing(2)
	rec := Record{Subject: Subject{ID: "a"}}
	seq := g.Put(&rec)
	first, second := &Answered{ActualPrompt: 1}, &Answered{ActualPrompt: 2}
	if g.Answer(seq, "b", first) || !g.Answer(seq, "a", first) || g.Answer(seq, "a", second) {
		t.Error("an answer's usage belongs to its own record, once")
	}
	if got := g.Last(1, nil)[0].Answered; got != first {
		t.Errorf("the record has %+v", got)
	}
	for range 2 {
		g.Put(&rec)
	}
	if g.Answer(seq, "a", first) || g.Last(1, nil)[0].Answered != nil {
		t.Error("a later record has the usage of a former answer")
	}
}
