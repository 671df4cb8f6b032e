package main

import (
	"strings"
	"testing"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv"
)

// TestADoubtIsReported: what a router that reads the events itself would say of a replica, it says
// of one with a sidecar too: that its matches are upper bounds, and why. An index that comes later
// is told as well.
func TestADoubtIsReported(t *testing.T) {
	adapted := stored(0)
	adapted.LoRA = "sql"
	twin := stored(0)
	twin.Hashes = []uint64{7}
	for name, c := range map[string]struct {
		scheme string
		events []kvtest.Event
		why    string // "" = no doubt
	}{
		"nothing strange":          {"tokens", []kvtest.Event{stored(0)}, ""},
		"an unknown kind of event": {"tokens", []kvtest.Event{stored(0), {Kind: "TierBlocksCleared"}}, "TierBlocksCleared"},
		"the same, with adapters":  {"tokens", []kvtest.Event{adapted, {Kind: "TierBlocksCleared"}}, "TierBlocksCleared"},
		"an adapter's path":        {"tokens", []kvtest.Event{stored(0), adapted}, "adapters"},
		"which vLLM's hash covers": {"engine", []kvtest.Event{stored(0), adapted}, ""},
		"two hashes of a key":      {"tokens", []kvtest.Event{stored(0), twin}, "tells blocks apart"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := index.Holder{Replica: "10.0.0.1:8000"}
			doubted := func(x *index.Index) (why string) {
				testenv.Until(t, patience, "blocks are reported", func() bool { return x.Holdings(h) > 0 })
				testenv.Until(t, patience, "a doubt is reported", func() bool { return x.Doubt(h) != "" || c.why == "" })
				why = x.Doubt(h)
				if trust, _ := x.Trust(x.ID(h), "", "m"); trust.Above != (why != "") || c.why != "" && trust.Why != why {
					t.Errorf("doubt %q, but matches are %+v", why, trust)
				}
				return why
			}
			one := serveIndex(t, "127.0.0.1:0")
			p := running(t, one.addr, "-hash-scheme", c.scheme, "-window", "5ms", "-backoff", "20ms")
			p.Publish(c.events...)
			if why := doubted(one.x); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("the doubt is %q, want %q", why, c.why)
			}
			one.stop()
			two := serveIndex(t, one.addr)
			if why := doubted(two.x); (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
				t.Errorf("of an index that came later the doubt is %q, want %q", why, c.why)
			}
		})
	}
}
