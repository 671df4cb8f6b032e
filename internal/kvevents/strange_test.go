package kvevents

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/render/testkit/must"
)

// TestStrangeEvents: whatever of a publisher's events is not known and may change what it holds
// makes its matches inexact, named in a bounded text without control characters, and stays so.
func TestStrangeEvents(t *testing.T) {
	tagged := func(tag string, more ...kvtest.Field) kvtest.Fields {
		return append(kvtest.Fields{{Name: "type", Value: tag}}, more...)
	}
	gone := kvtest.Field{Name: "block_hashes", Value: []any{1}}
	cases := map[string]struct {
		event any
		want  string // part of the doubt; "" = there is none
	}{
		"an unknown tag of a map":      {tagged("TierBlocksCleared", kvtest.Field{Name: "medium", Value: "CPU"}), "events TierBlocksCleared"},
		"an unknown tag of an array":   {[]any{"BlockMoved", []any{1}}, "events BlockMoved"},
		"a further field of an array":  {[]any{"BlockRemoved", []any{1}, "GPU", nil, "LOCAL", "me", "shard"}, "field 6"},
		"an empty field of an array":   {[]any{"BlockRemoved", []any{1}, "GPU", nil, nil, nil, nil}, ""},
		"an empty tag":                 {[]any{""}, "events (empty)"},
		"a tag with a line":            {[]any{"a\nb\x1b[31m\xff"}, "events a?b??31m?"},
		"a long tag":                   {[]any{strings.Repeat("x", 5000)}, "events " + strings.Repeat("x", 40)},
		"a field that may narrow":      {tagged("BlockRemoved", gone, kvtest.Field{Name: "shard", Value: 1}), "field shard"},
		"a field of a store":           {append(named(nil), kvtest.Field{Name: "namespace", Value: "x"}), "field namespace"},
		"a kind":                       {append(named(nil), kvtest.Field{Name: "kv_cache_spec_kind", Value: "cross_attention"}), "kind cross_attention"},
		"a known kind":                 {append(named(nil), kvtest.Field{Name: "kv_cache_spec_kind", Value: "mla_attention"}), ""},
		"a medium":                     {tagged("BlockRemoved", gone, kvtest.Field{Name: "medium", Value: "HBM2"}), "medium HBM2"},
		"a clear of one tier":          {tagged("AllBlocksCleared", kvtest.Field{Name: "medium", Value: "CPU"}), "a part of the cache, in CPU"},
		"a clear of one group":         {tagged("AllBlocksCleared", kvtest.Field{Name: "group_idx", Value: 1}), "a part of the cache"},
		"a field without a value":      {tagged("BlockRemoved", gone, kvtest.Field{Name: "shard", Value: nil}), ""},
		"a field that tells of others": {tagged("BlockRemoved", gone, kvtest.Field{Name: "session_id", Value: "s"}), ""},
		"a medium in small letters":    {tagged("BlockRemoved", gone, kvtest.Field{Name: "medium", Value: "cpu"}), ""},
		"a clear":                      {tagged("AllBlocksCleared"), ""},
		"a clear of the GPU":           {tagged("AllBlocksCleared", kvtest.Field{Name: "medium", Value: "GPU"}), ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := NewReader(ReaderOptions{Model: "m"})
			for _, payload := range [][]byte{pack(c.event, named(nil)), pack(named(nil))} {
				b := must.Get(r.Read(payload))(t)
				if !strings.Contains(b.Doubt, c.want) || (b.Doubt == "") != (c.want == "") || len(b.Doubt) > 200 {
					t.Errorf("doubt %q, want %q in it", b.Doubt, c.want)
				}
				for _, e := range b.Events {
					if e.Kind == index.Cleared && c.want != "" {
						t.Error("the cache on GPU was cleared")
					}
				}
			}
		})
	}
	t.Run("many", func(t *testing.T) {
		r, long := NewReader(ReaderOptions{Model: "m"}), ""
		for i := range 1000 {
			b := must.Get(r.Read(pack([]any{fmt.Sprintf("%d%s", i, strings.Repeat("x", 100))})))(t)
			long = b.Doubt
		}
		if len(long) > 600 {
			t.Errorf("a text of %d bytes", len(long))
		}
	})
}
