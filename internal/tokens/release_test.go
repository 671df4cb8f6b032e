package tokens

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/must"
)

// The memory of ids is used again once they are released, and not that of ids which
// wait to be compared with a replica's.
func TestRelease(t *testing.T) {
	m := must.Get(LoadFolder(t.Context(), chattest.MistralFolder(t, 7, true), Flags{}))(t)
	for _, every := range []int{-1, 1} {
		l := NewLocal(LocalOptions{TrustUnverified: ^openai.Features(0), SampleEvery: every,
			Reference: NewRemote(RemoteOptions{}), Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0", MaxLen: 1 << 20}} }})
		must.Do(t, l.Load("m", m))
		l.CheckAll(t.Context())
		ask := func(text string) Result {
			t.Helper()
			req := must.Get(openai.Parse(openai.Chat, fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%q}]}`, text)))(t)
			return must.Get(l.Tokens(t.Context(), req, Served{Model: "m"}))(t)
		}
		first := ask(strings.Repeat("one two three ", 3000))
		ids := slices.Clone(first.Prompts[0].Tokens)
		memory := first.Prompts[0].Tokens
		first.Release()
		reused := false
		for range 50 { // a pool may forget
			second := ask("four five six")
			reused = reused || &second.Prompts[0].Tokens[0] == &memory[0]
			memory = second.Prompts[0].Tokens
			second.Release()
			if every == 1 {
				break
			}
		}
		if every < 0 {
			if !reused {
				t.Error("released memory is not used again")
			}
			continue
		}
		if s := <-l.samples; reused || !slices.Equal(s.ids[0], ids) {
			t.Error("ids that wait to be compared were overwritten")
		}
	}
}
