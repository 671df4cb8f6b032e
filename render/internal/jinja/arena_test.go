package jinja

import (
	"reflect"
	"strings"
	"testing"

	"warmroute/render/internal/pyvalue"
)

// TestARenderLeavesNothingBehind: the memory that the next render uses holds nothing of the
// conversation, however many values the render made.
func TestARenderLeavesNothingBehind(t *testing.T) {
	tmpl, err := Compile(`{% for m in messages[::-1] %}{{ loop.index }}{% if m.x %}{% endif %}{{ m.startswith('a', 0) }}{% endfor %}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 200} {
		messages := pyvalue.NewList()
		for range n {
			messages.Items = append(messages.Items, "a text")
		}
		vars := pyvalue.NewDict()
		vars.Set("messages", messages)
		out, err := tmpl.Render(nil, vars, Env{})
		if want := "1True"; err != nil || !strings.HasPrefix(string(out), want) {
			t.Fatalf("%d messages: %q, %v", n, out, err)
		}
		st, _ := tmpl.states.Get().(*state)
		if st == nil {
			continue // the pool may drop it
		}
		for name, kept := range map[string]any{"values": st.values.all, "calls": st.calls.all, "unknowns": st.unknowns.all, "loops": st.loops.all} {
			v := reflect.ValueOf(kept)
			if v.Len() == 0 && n == 1 {
				t.Errorf("%s: no block was kept", name)
			}
			for i := range v.Len() {
				if !v.Index(i).IsZero() {
					t.Errorf("%d messages: %s %d is left", n, name, i)
				}
			}
		}
		tmpl.states.Put(st)
	}
}
