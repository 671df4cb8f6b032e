package index

import (
	"slices"
	"testing"
)

// TestGroupsFull: of a prompt that parts from a cached one, a match has the hit, which is
// zero where the window does not reach, and the blocks of full attention; for the scope
// of full attention, for another, and where the rule is run.
func TestGroupsFull(t *testing.T) {
	p := somePrompt(20 * groupBlock)
	branch := slices.Concat(p[:10*groupBlock], somePrompt(7*groupBlock))
	for name, told := range map[string]*GroupSettings{
		"ends": {Rule: GroupRule032, EagleKnown: true},
		"rule": {Rule: GroupRule032, EagleKnown: true, Eagle: 2},
	} {
		x := newGroups(t, nil)
		h := Holder{Replica: "a:1"}
		x.SetGroups(h.Replica, told)
		b := Batch{Holder: h, Incarnation: x.Begin(h), Events: fullAndWindow(p, 16)}
		if _, err := x.Apply(&b); err != nil {
			t.Fatal(err)
		}
		keys := branch.AppendChain(nil, Keying{Unit: groupBlock})
		for group := range 2 {
			s := groupSpace
			s.Group = group
			var f Found
			x.FindPrompt(&f, s, keys, branch)
			all := f.AppendTo(nil)
			if len(all) != 1 || all[0].Hit != 0 || all[0].Full != 10*groupBlock || !all[0].Grouped {
				t.Errorf("%s, asked for group %d: %+v", name, group, all)
			}
		}
	}
}
