package decision

import (
	"slices"
	"strings"
	"testing"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
)

// of returns replica n with a context of so many tokens; a negative one is held.
func of(n, context int) *fleet.Replica {
	c := replica(n)
	c.Models[0].MaxLen = max(context, -context)
	if context < 0 {
		c.Ready, c.Held, c.Why = false, true, "asleep: it is"
	}
	return c
}

// TestPassedOver: replicas that are held or have no room for a request get none, in no place of
// the ranked list and in no mode, as long as another one can do more for it.
func TestPassedOver(t *testing.T) {
	const n = 1000 // tokens of the prompt
	tests := map[string]struct {
		context       []int // by replica; the first one is warm
		least, answer int
		want          []policy.Verdict
		exceeds       bool
	}{
		"all have room":                {context: []int{2000, 2000, 2000}, least: n, want: []policy.Verdict{0, 0, 0}},
		"the warm one is short":        {context: []int{900, 2000, 2000}, least: n, want: []policy.Verdict{policy.Context, 0, 0}},
		"room for no token of answer":  {context: []int{n, n + 1, 2000}, least: n, want: []policy.Verdict{policy.Context, 0, 0}},
		"room for the whole answer":    {context: []int{n + 499, n + 500, 2000}, least: n, answer: 500, want: []policy.Verdict{policy.Context, 0, 0}},
		"for some of the answer alone": {context: []int{n, n + 1, n + 499}, least: n, answer: 500, want: []policy.Verdict{policy.Context, 0, 0}},
		"none has room":                {context: []int{10, 20, n}, least: n, want: []policy.Verdict{0, 0, 0}, exceeds: true},
		"not known":                    {context: []int{0, 900, 2000}, least: n, want: []policy.Verdict{0, policy.Context, 0}},
		"the replica cuts it":          {context: []int{10, 20, 2000}, want: []policy.Verdict{0, 0, 0}},
		"the warm one is held":         {context: []int{-2000, 2000, 2000}, least: n, want: []policy.Verdict{policy.Held, 0, 0}},
		"two are held":                 {context: []int{-2000, 2000, -900}, least: n, want: []policy.Verdict{policy.Held, 0, policy.Held}},
		"held, and one short":          {context: []int{-2000, 2000, 900}, least: n, want: []policy.Verdict{policy.Held, 0, policy.Context}},
		"held, and the others short":   {context: []int{-2000, 10, 20}, least: n, want: []policy.Verdict{policy.Held, 0, 0}, exceeds: true},
		"all are held":                 {context: []int{-2000, -2000, -10}, least: n, want: []policy.Verdict{0, 0, 0}},
	}
	modes := map[string]Ask{"": {}, "picker": {Must: true}, "shadow": {Withheld: true}, "dry": {Dry: true}, "subset": {Subset: []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}}, "split": {MaySplit: true}}
	for name, tt := range tests {
		for mode, a := range modes {
			t.Run(name+" "+mode, func(t *testing.T) {
				var replicas []*fleet.Replica
				for i, context := range tt.context {
					c := of(i+1, context)
					c.Version, c.Transfer = "0.32.0", fleet.Transfer{Connector: "NixlConnector"}
					replicas = append(replicas, c)
				}
				r := newRig(t, policy.Config{}, replicas...)
				p := prompt(1, 0, n/blockSize)
				r.stored("10.0.0.1:8000", p)
				w := new(Work)
				a.Model, a.Prompts, a.Least, a.Answer = "m", p, tt.least, tt.answer
				d := r.decider.Decide(&a, w)
				rec := &w.Record
				able := 0
				for i := range rec.Candidates {
					c := &rec.Candidates[i]
					want := tt.want[slices.IndexFunc(replicas, func(r *fleet.Replica) bool { return r.Addr == c.Replica })]
					if c.Score.Verdict != want || strings.Contains(d.Chosen, c.Replica) != (want == policy.Ranked) {
						t.Errorf("%s has the verdict %v, want %v; named %s", c.Replica, c.Score.Verdict, want, d.Chosen)
					}
					if want == policy.Ranked {
						able++
					}
				}
				if warm := tt.want[0] == policy.Ranked; len(rec.Candidates) != 3 || warm != (d.Reason == ReasonWarm) || rec.Exceeds != tt.exceeds || rec.scored() != able {
					t.Errorf("%v, %+v", d.Reason, rec)
				}
				if scores, at := rec.Rescore(r.decider.Settings(viewOf(r.decider.Find("m", "")))); rec.Candidates[at].Replica != first(d) || len(scores) != 3 {
					t.Errorf("scored again, %d wins: %+v", at, scores)
				}
				if rec.Explain(); able < 3 && tt.want[0] == policy.Context && !strings.Contains(rec.Why.Text, "its context is too short") ||
					tt.want[0] == policy.Held && !strings.Contains(rec.Why.Text, "it is asleep or stalled") || tt.exceeds != strings.Contains(rec.Why.Text, "the prompt is longer than") {
					t.Errorf("explained as %q", rec.Why.Text)
				}
			})
		}
	}
}

// TestPassedOverPrefill: a replica that is held or short computes no prompt for others either.
func TestPassedOverPrefill(t *testing.T) {
	for _, context := range []int{8000, 8001, -8001, 9000} {
		replicas := apartFleet(fleet.RolePrefill, fleet.RoleDecode, fleet.RoleDecode)
		replicas[0].Models[0].MaxLen = max(context, -context)
		replicas[0].Ready, replicas[0].Held = context > 0, context < 0
		r := newRig(t, policy.Config{}, replicas...)
		r.busy(2)
		w := new(Work)
		d := r.decider.Decide(&Ask{Model: "m", Prompts: prompt(2, 0, 500), MaySplit: true, Least: 8000, Answer: 500}, w)
		if able := context > 8000; (d.Split != nil) != able {
			t.Errorf("a context of %d: split %+v, %+v", context, d.Split, w.Record.Split)
		}
	}
}

// TestAnyPassesHeldOver: without a decision too, a held replica is named where no other is there.
func TestAnyPassesHeldOver(t *testing.T) {
	down := replica(3)
	down.Ready = false
	r := newRig(t, policy.Config{}, of(1, 100), of(2, -100), down)
	for _, c := range []struct {
		subset []string
		want   string
	}{{nil, "10.0.0.1:8000"}, {[]string{"10.0.0.2", "10.0.0.1"}, "10.0.0.1:8000"}, {[]string{"10.0.0.2", "10.0.0.3"}, "10.0.0.2:8000"}, {[]string{"10.0.0.3"}, ""}} {
		for range 3 {
			if got := r.decider.Any("", c.subset, new(Work)); got != c.want {
				t.Errorf("of %v: %q, want %q", c.subset, got, c.want)
			}
		}
	}
}
