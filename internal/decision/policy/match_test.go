package policy

import (
	"encoding/json"
	"testing"

	"warmroute/render/testkit/must"
)

// TestAMatch: what is counted of stretches with all their credit, a part of it, and none.
func TestAMatch(t *testing.T) {
	var part Match
	for p := range places {
		part[p] = Stretch{Tokens: 100, Credit: 1, Source: Reported}
	}
	part[Cut].Credit, part[GPU].Credit, part[Shared].Credit, part[Shared].Token = 0, 1-float32(30)/100, 0.5, 0.01
	doubted := part
	doubted.Doubt()
	learned := Match{GPU: {Tokens: 100, Credit: 1, Source: History}}
	for name, tt := range map[string]struct {
		m                                  Match
		cached, matched, credited, loading int
		seconds                            float64
		source                             Source
	}{
		"none":    {},
		"in part": {part, 100, 200, 170, 250, 0.5, Reported},
		"doubted": {m: doubted},
		"learned": {learned, 100, 100, 100, 0, 0, History},
	} {
		held, seconds := tt.m.Loads()
		if m := &tt.m; m.Cached() != tt.cached || m.Matched() != tt.matched || m.Credited() != tt.credited || m.Below() != tt.loading || m.Source() != tt.source {
			t.Errorf("%s: %+v", name, m)
		}
		if held != tt.credited+tt.loading || seconds < tt.seconds-1e-6 || seconds > tt.seconds+1e-6 {
			t.Errorf("%s: %d tokens in %g s", name, held, seconds)
		}
		text, err := json.Marshal(Candidate{Match: tt.m})
		var back Candidate
		must.Do(t, json.Unmarshal(text, &back))
		want := tt.m
		for p := range want {
			if want[p].Tokens == 0 {
				want[p] = Stretch{}
			}
		}
		if err != nil || back.Match != want {
			t.Errorf("%s: %s is read as %+v, %v", name, text, back.Match, err)
		}
	}
	if !doubted.Doubted() || part.Doubted() || (&Match{}).Doubted() {
		t.Error("doubted is who has told of tokens and is expected to find none")
	}
	if err := new(Match).UnmarshalJSON([]byte(`[{"place":"moon"}]`)); err == nil {
		t.Error("a place that there is not")
	}
}
