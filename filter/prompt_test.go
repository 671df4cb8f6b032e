package filter

import (
	"slices"
	"testing"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
)

// A cache_salt is part of the keys unless no replica reads it on that route.
func TestSaltCountsWhereItIsRead(t *testing.T) {
	tests := map[string]struct {
		route    openai.Route
		versions []string
		salted   bool
	}{
		"messages, 0.21":            {openai.Messages, []string{"0.21.0", "0.21.0"}, false},
		"messages, 0.32":            {openai.Messages, []string{"0.32.0", "0.33.1"}, true},
		"messages, both":            {openai.Messages, []string{"0.21.0", "0.32.0"}, true},
		"messages, in between":      {openai.Messages, []string{"0.27.0"}, true},
		"messages, not known":       {openai.Messages, []string{""}, true},
		"chat, 0.21":                {openai.Chat, []string{"0.21.0"}, true},
		"completions, 0.21":         {openai.Completions, []string{"0.21.0"}, true},
		"responses, 0.21, its dev0": {openai.Responses, []string{"0.21.1.dev0"}, true},
	}
	salt := "blue"
	ids := make([]uint32, 3*blockSize+1)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var replicas []*fleet.Replica
			for i, v := range tt.versions {
				r := replica(i + 1)
				r.Version = v
				replicas = append(replicas, r)
			}
			mv, _ := newBench(t, nil, replicas...).decider.Find("m", "")
			chain := func(salt *string) []uint64 {
				var p tokenPrompts
				var out []uint64
				p.set(mv, &openai.Request{Route: tt.route, CacheSalt: salt}, []tokens.Prompt{{Tokens: ids}}, len(ids))
				for _, k := range p.AppendKeys(nil, &index.Scope{BlockSize: blockSize}, 0) {
					out = append(out, uint64(k))
				}
				return out
			}
			plain, with := chain(nil), chain(&salt)
			if len(plain) != 3 || slices.Equal(plain, with) == tt.salted {
				t.Errorf("keys without salt %v, with %v", plain, with)
			}
		})
	}
}
