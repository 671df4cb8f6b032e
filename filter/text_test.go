package filter

import (
	"context"
	"slices"
	"strings"
	"testing"

	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestKeysOfATextCoverTheWholeRequest: two requests whose prompts differ in their
// salt, their tools or their model share no key of the text chain.
func TestKeysOfATextCoverTheWholeRequest(t *testing.T) {
	b := newBench(t, nil, replica(1))
	long := strings.Repeat("a word ", 2*prefixhash.TextToken*prefixhash.TextUnit)
	tools := func(name string) string {
		return `"tools":[{"type":"function","function":{"name":"` + name + `","description":"` + long + `"}}],`
	}
	chain := func(members string) []prefixhash.Key {
		t.Helper()
		r := must.Get(openai.Parse(openai.Chat, []byte(`{"model":"m",`+members+`"messages":[{"role":"user","content":"`+long+`"}]}`)))(t)
		mv, _ := b.decider.Find("m", "")
		var s scratch
		must.Do(t, b.router.readText(t.Context(), &s, r, mv))
		return s.chain
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

// TestTextsAreReadToTheirEnd, and no further than their request waits.
func TestTextsAreReadToTheirEnd(t *testing.T) {
	b := newBench(t, nil, replica(1))
	read := func(ctx context.Context, last string) ([]prefixhash.Key, error) {
		body := `{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("a word ", 1<<17) + last + strings.Repeat("x", 8192) + `"}]}`
		r := must.Get(openai.Parse(openai.Chat, []byte(body)))(t)
		mv, _ := b.decider.Find("m", "")
		var s scratch
		err := b.router.readText(ctx, &s, r, mv)
		return s.chain, err
	}
	one, err := read(t.Context(), "one")
	other, _ := read(t.Context(), "two")
	if err != nil || len(one) != len(other) || len(one) < 100 {
		t.Fatalf("%d and %d keys: %v", len(one), len(other), err)
	}
	for i := range one {
		if same, end := one[i] == other[i], prefixhash.TextToken*prefixhash.TextMarks.End(i+1); same != (end <= 7<<17) && (end < 7<<17 || end > 7<<17+100) {
			t.Fatalf("the keys at byte %d are equal: %v", end, same)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := read(ended, "one"); err == nil {
		t.Error("the text of a request that has ended was read")
	}
}
