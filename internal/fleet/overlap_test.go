package fleet

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/render/testkit/must"
)

// TestOverlap: replicas that are no longer listed stay for as long as others that
// come in their place have to be learned, and no longer.
func TestOverlap(t *testing.T) {
	const c = "10.0.0.3:1"
	for name, test := range map[string]struct {
		before, after []string
		change        func(b *fakeReplica)
		soon, later   []string // events within 0.8 s, and in the second after
		serving       []string // after 0.8 s
	}{
		"all are replaced":         {before: []string{a}, after: []string{b}, soon: []string{"joined " + b, "left " + a}, serving: []string{b}},
		"the new one is dead":      {before: []string{a}, after: []string{b}, change: func(b *fakeReplica) { b.refuse = true }, soon: []string{"left " + a}},
		"the new one hangs":        {before: []string{a}, after: []string{b}, change: func(b *fakeReplica) { b.hang = true }, later: []string{"left " + a}, serving: []string{a}},
		"another serves the model": {before: []string{a, c}, after: []string{b, c}, change: func(b *fakeReplica) { b.hang = true }, soon: []string{"left " + a}, serving: []string{c}},
		"nobody comes":             {before: []string{a}, soon: []string{"left " + a}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, Options{Replicas: list(test.before...)}, map[string]*fakeReplica{a: fake(1, 0), b: fake(1, 0), c: fake(1, 0)})
				w.take()
				if test.change != nil {
					w.net.change(func() { test.change(w.net.replicas[b]) })
				}
				must.Do(t, w.fleet.Set(Options{Replicas: list(test.after...)}))
				w.pass(800 * time.Millisecond)
				happened(w, test.soon)
				w.expectServing(test.serving...)
				w.pass(time.Second)
				happened(w, test.later)
				if w.fleet.Snapshot().Replica(a) != nil {
					t.Error("what is not listed stays")
				}
			})
		})
	}
}

// happened compares the events since its last call, without the numbers of joins.
func happened(w *world, want []string) {
	w.Helper()
	events := w.take()
	for i, e := range events {
		events[i] = e[:strings.LastIndexByte(e, ' ')]
	}
	if !slices.Equal(events, want) {
		w.Errorf("events %q, want %q", events, want)
	}
}

// TestRelisted: a replica that is listed again before it has gone has not been
// disturbed.
func TestRelisted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: fake(1, 0), b: {hang: true}})
		w.take()
		for _, addr := range []string{b, a} {
			must.Do(t, w.fleet.Set(Options{Replicas: list(addr)}))
			w.pass(300 * time.Millisecond)
		}
		w.pass(10 * time.Second)
		w.expect()
		w.expectServing(a)
	})
}
