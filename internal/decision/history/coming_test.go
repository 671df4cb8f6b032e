package history

import (
	"testing"
	"time"
)

// TestComing: what is on its way counts until its time, as far as prompts agree, and a request that
// ends takes back what no other request has.
func TestComing(t *testing.T) {
	c := newCache()
	first, second := prompt(1, 2, 4, 8), prompt(1, 3, 4, 8)
	holds := []Hold{c.Use(first, 0, start), c.Use(second, 0, start)}
	c.Expect(first, start.Add(time.Second))
	c.Expect(second, start.Add(2*time.Second))
	end := first.Marks.End
	for name, s := range map[string]struct {
		p             Prompt
		after         time.Duration
		tokens, whole int
	}{
		"whole":                  {first, 0, end(8), end(8)},
		"it goes on":             {prompt(1, 2, 4, 12), 0, end(8), end(8)},
		"a part":                 {prompt(1, 4, 4, 8), 0, end(4), 0},
		"less of it":             {prompt(1, 2, 4, 6), 0, end(6), 0},
		"its time has come":      {first, time.Second, end(4), 0},
		"the other one's too":    {second, 2 * time.Second, 0, 0},
		"nothing begins so here": {prompt(9, 9, 4, 8), 0, 0, 0},
	} {
		if tokens, whole := c.Coming(s.p, start.Add(s.after)); tokens != s.tokens || whole != s.whole {
			t.Errorf("%s: %d and %d tokens, want %d and %d", name, tokens, whole, s.tokens, s.whole)
		}
	}
	c.Expect(second, time.Time{})
	c.End(second, holds[1], true, start)
	if tokens, _ := c.Coming(second, start); tokens != end(4) {
		t.Errorf("%d tokens of a prompt that is taken back, want %d", tokens, end(4))
	}
	c.End(first, holds[0], false, start)
	if tokens, whole := c.Coming(first, start); tokens != 0 || whole != 0 {
		t.Errorf("%d and %d tokens of a prompt that was not computed", tokens, whole)
	}
}
