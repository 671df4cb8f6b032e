package filter

import (
	"errors"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
)

// TestRequestsKeepToTheContext: a request goes past a replica that has no room for its prompt
// and the answer that its body asks for, as far as its length is sure.
func TestRequestsKeepToTheContext(t *testing.T) {
	const room = 1000 // tokens of the short replica's context
	ids := func(n int) tokens.Source { return fakeTokens{n: n} }
	text := fakeTokens{err: errors.New("none")}
	chatOf := func(members, content string) string {
		return `{"model":"m",` + members + `"messages":[{"role":"user","content":` + content + `}]}`
	}
	words := func(bytes int) string { return `"` + strings.Repeat("a ", bytes/2) + `"` }
	image := `[{"type":"image_url","image_url":{"url":"data:image/png;base64,` + strings.Repeat("A", 40*room) + `"}}]`
	tests := map[string]struct {
		source tokens.Source
		route  openai.Route
		body   string
		short  bool // the short replica has no room
	}{
		"it fits":                  {ids(room - 1), openai.Chat, chatOf("", words(2)), false},
		"no token is left":         {ids(room), openai.Chat, chatOf("", words(2)), true},
		"with the answer":          {ids(room - 100), openai.Chat, chatOf(`"max_tokens":100,`, words(2)), false},
		"beyond it":                {ids(room - 100), openai.Chat, chatOf(`"max_tokens":101,`, words(2)), true},
		"by the newer name":        {ids(room - 100), openai.Chat, chatOf(`"max_completion_tokens":101,`, words(2)), true},
		"the newer name has force": {ids(room - 100), openai.Chat, chatOf(`"max_completion_tokens":100,"max_tokens":101,`, words(2)), false},
		"null":                     {ids(room - 100), openai.Chat, chatOf(`"max_tokens":null,`, words(2)), false},
		"a huge answer":            {ids(10), openai.Chat, chatOf(`"max_tokens":9223372036854775807,`, words(2)), false}, // for which no replica has room
		"messages":                 {ids(room - 100), openai.Messages, chatOf(`"max_tokens":101,`, words(2)), true},
		"responses":                {ids(room - 100), openai.Responses, `{"model":"m","input":"a","max_output_tokens":101}`, true},
		"completions":              {ids(room - 100), openai.Completions, `{"model":"m","prompt":"a","max_tokens":101}`, true},
		"cut":                      {ids(room), openai.Chat, chatOf(`"truncate_prompt_tokens":-1,`, words(2)), false},
		"not cut":                  {ids(room), openai.Chat, chatOf(`"truncate_prompt_tokens":null,`, words(2)), true},
		"truncation":               {ids(room), openai.Responses, `{"model":"m","input":"a","truncation":"auto"}`, false},
		"no truncation":            {ids(room), openai.Responses, `{"model":"m","input":"a","truncation":"disabled"}`, true},
		"a text of some length":    {text, openai.Chat, chatOf("", words(6*room)), false},
		"surely too long a text":   {text, openai.Chat, chatOf("", words(17*room)), true},
		"an image":                 {text, openai.Chat, chatOf("", image), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			short, long := replica(1), replica(2)
			short.Models[0].MaxLen, long.Models[0].MaxLen = room, 100*room
			b := newBench(t, tt.source, short, long)
			b.holds(short.Addr, 0, 10)
			d := b.route(&Query{Route: tt.route, Body: []byte(tt.body)})
			if strings.Contains(d.Chosen, short.Addr) == tt.short || !strings.Contains(d.Chosen, long.Addr) {
				t.Errorf("%s: %s", d.Reason, d.Chosen)
			}
		})
	}
}

// TestTheRankIsLogged: the access log has the value of the header, and nothing without one.
func TestTheRankIsLogged(t *testing.T) {
	for _, ranks := range [][]int{{2, 3}, {2}} {
		c := replica(1, ranks...)
		c.FirstRank = 2
		b := newBench(t, fakeTokens{n: 100}, c)
		d := b.route(query())
		got, logged := new(answerMetadata).of(&d).GetFields()[envoy.MetadataOwn].GetStructValue().GetFields()[envoy.KeyRank]
		if logged != (len(ranks) > 1) || got.GetStringValue() != d.Rank || logged && d.Rank != "0" && d.Rank != "1" {
			t.Errorf("of ranks %v %q is named and %v logged", ranks, d.Rank, got)
		}
	}
}

// TestOrderIsTold: an answer has the order of a request as text, which Envoy prints as it is.
func TestOrderIsTold(t *testing.T) {
	for order, want := range map[int64]string{0: "", 1_900_000_000_123: "1900000000123"} {
		d := decision.Decision{Model: "m", Choice: decision.Choice{Chosen: "10.0.0.1:8000"}, Order: order}
		own := new(answerMetadata).of(&d).GetFields()[envoy.MetadataOwn].GetStructValue().GetFields()
		if got, told := own[envoy.KeyPriority]; told != (want != "") || got.GetStringValue() != want {
			t.Errorf("of %d: %v", order, got)
		}
	}
}
