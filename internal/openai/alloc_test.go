//go:build !race

// With the race detector a sync.Pool drops some of what it is given.

package openai

import "testing"

func TestParseAllocates(t *testing.T) {
	body := chatBody(220 << 10)
	if _, err := Parse(Chat, body); err != nil {
		t.Fatal(err)
	}
	// The Request and the model's name; the rest is pooled or points into the body.
	if n := testing.AllocsPerRun(50, func() { _, _ = Parse(Chat, body) }); n > 4 {
		t.Errorf("Parse allocates %v times", n)
	}
	r, _ := Parse(Chat, body)
	dst := r.AppendText(nil)
	if n := testing.AllocsPerRun(50, func() { dst = r.AppendText(dst[:0]) }); n > 2 { // its scanner and closure
		t.Errorf("AppendText allocates %v times", n)
	}
}
