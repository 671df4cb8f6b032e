package filter

import (
	"slices"
	"strings"
	"testing"

	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// TestKeysOfATextCoverTheWholeRequest: two requests whose prompts differ in their
// salt, their tools or their model share no key of the text chain.
func TestKeysOfATextCoverTheWholeRequest(t *testing.T) {
	b := newBench(t, nil, replica(1))
	long := strings.Repeat("a word ", 2*prefixhash.TextWindow)
	tools := func(name string) string {
		return `"tools":[{"type":"function","function":{"name":"` + name + `","description":"` + long + `"}}],`
	}
	chain := func(members string) []prefixhash.Key {
		t.Helper()
		r, err := openai.Parse(openai.Chat, []byte(`{"model":"m",`+members+`"messages":[{"role":"user","content":"`+long+`"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		mv, _ := b.decider.Find("m", "")
		var s scratch
		s.readText(r, mv)
		return s.ask.Text
	}
	plain := chain("")
	if len(plain) < 4 || !slices.Equal(plain, chain("")) {
		t.Fatalf("%d keys, or others for the same request", len(plain))
	}
	other := map[string][]prefixhash.Key{
		"a salt": chain(`"cache_salt":"blue",`), "another salt": chain(`"cache_salt":"red",`),
		"a tool": chain(tools("f")), "another tool": chain(tools("g")),
	}
	for name, keys := range other {
		if len(keys) == 0 || slices.ContainsFunc(keys, func(k prefixhash.Key) bool { return slices.Contains(plain, k) }) {
			t.Errorf("with %s the request shares keys with the plain one", name)
		}
		for third, more := range other {
			if third != name && keys[0] == more[0] {
				t.Errorf("requests with %s and with %s share keys", name, third)
			}
		}
	}
}
