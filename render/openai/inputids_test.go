package openai

import (
	"slices"
	"testing"
)

// TestInputIDs: an SGLang takes a chat's input_ids for its prompt; nothing else does.
func TestInputIDs(t *testing.T) {
	for _, tt := range []struct {
		route Route
		field string
		want  []uint32
	}{
		{Chat, `"input_ids":[1,2,300]`, []uint32{1, 2, 300}},
		{Chat, `"input_ids":[ 1 , 2 ]`, []uint32{1, 2}},
		{Chat, `"input_ids":null`, nil},
		{Chat, `"input_ids":[]`, nil},
		{Chat, `"input_ids":["1"]`, nil},
		{Chat, `"input_ids":"1"`, nil},
		{Messages, `"input_ids":[1]`, nil},
	} {
		r, err := Parse(tt.route, []byte(`{"messages":[{"role":"user","content":"x"}],`+tt.field+`}`))
		if err != nil || r.TokenPrompts != nil {
			t.Fatalf("%s: %v, prompts %v before they are asked for", tt.field, err, r.TokenPrompts)
		}
		r.TakeInputIDs()
		if got := slices.Concat(r.TokenPrompts...); !slices.Equal(got, tt.want) {
			t.Errorf("%s %s: %v, want %v", tt.route, tt.field, got, tt.want)
		}
	}
}
