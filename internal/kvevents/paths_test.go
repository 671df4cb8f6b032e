package kvevents

import (
	"strings"
	"testing"
	"time"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestAdapterPaths: the adapter of an event has the path from which the replica has loaded it. The
// replica is asked when an event shows a load that is new, and not more often than it can bear; a
// load that history hides makes matches inexact.
func TestAdapterPaths(t *testing.T) {
	now, path, asked := time.Unix(1_700_000_000, 0), "/v1", 0
	p := paths{of: func(_ string, ask bool) string {
		if ask {
			asked++
		}
		return path
	}}
	of := func(name string, id any, history bool) *Batch {
		b := must.Get(new(Decoder).Decode(pack(named(map[string]any{"lora_name": name, "lora_id": id}))))(t)
		p.resolve(b, now, history)
		return b
	}
	for i, c := range []struct {
		id      any
		path    string
		history bool
		asks    int
		strange bool
	}{
		{7, "/v1", true, 1, false}, {7, "/v1", false, 1, false}, // once for each load
		{7, "/v2", false, 1, false}, // in place: the fleet has noticed
		{8, "/v3", false, 2, false},
		{7, "/v3", false, 2, false}, // an old block again
		{9, "/v3", true, 3, true},
		{"text", "/v3", false, 3, false},
	} {
		path = c.path
		b := of("ad", c.id, c.history)
		if want := (prefixhash.LoRA{Name: "ad", Path: c.path, Set: true}); b.Events[0].LoRA != want || asked != c.asks || (len(b.Strange) > 0) != c.strange {
			t.Errorf("%d: %+v, asked %d times, strange %q; want %+v, %d", i, b.Events[0].LoRA, asked, b.Strange, want, c.asks)
		}
	}
	asked = 0
	for i := range 10_000 {
		of(strings.Repeat("x", 1+i%900)+string(rune('a'+i%26)), i, false)
	}
	if asked > asksEachSecond || len(p.loads) > maxLoads {
		t.Errorf("asked %d times in a second, %d loads kept", asked, len(p.loads))
	}
	now = now.Add(time.Second)
	if of("later", 1, false); asked == asksEachSecond {
		t.Error("not asked in the next second")
	}
	if b := of("", nil, false); b.Events[0].LoRA.Path != path {
		t.Errorf("an adapter without a name: %+v", b.Events[0].LoRA)
	}
	var none paths
	b, _ := new(Decoder).Decode(kvtest.Pack([]any{1.5, []any{named(map[string]any{"lora_name": "ad"})}, 0}))
	if none.resolve(b, now, false); b.Events[0].LoRA.Path != "" {
		t.Errorf("%+v without a fleet", b.Events[0].LoRA)
	}
}
