package fleet

import (
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// pageOf shows these ranks.
func pageOf(ranks ...int) (text string) {
	for _, rank := range ranks {
		text += fmt.Sprintf("vllm:num_requests_running{engine=\"%d\"} 0\n", rank)
	}
	return text
}

// sourcesOf is a /kv_event_sources of these ranks.
func sourcesOf(ranks ...int) string {
	text := "{"
	for i, rank := range ranks {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(`"%d":{"endpoint":"tcp://*:%d"}`, rank, 5557+rank)
	}
	return text + "}"
}

// TestNumbersOfRanks: the first rank of a header is the server's own first where it counts its
// own ranks, 0 where it counts those of the deployment, and not known where it does not tell.
func TestNumbersOfRanks(t *testing.T) {
	const python, rust = `{"version":"0.32.0"}`, `{"version":"0.32.0","rust_frontend_version":"0.1.0"}`
	configured := []EventSource{{Rank: 3, Endpoint: "tcp://*:1"}, {Rank: 4, Endpoint: "tcp://*:2"}}
	local := []EventSource{{Endpoint: "tcp://*:1"}, {Rank: 1, Endpoint: "tcp://*:2"}}
	tests := map[string]struct {
		version, metrics, sources string
		events                    []EventSource
		ranks                     []int
		first                     int
		refused                   bool // a source is
	}{
		"one rank":                           {version: python, metrics: pageOf(0), sources: sourcesOf(0), ranks: []int{0}},
		"the first node":                     {version: python, metrics: pageOf(0, 1), sources: sourcesOf(0, 1), ranks: []int{0, 1}},
		"the second node":                    {version: python, metrics: pageOf(2, 3), sources: sourcesOf(2, 3), ranks: []int{2, 3}, first: 2},
		"without events":                     {version: python, metrics: pageOf(4, 5, 6, 7), sources: `{}`, ranks: []int{4, 5, 6, 7}, first: 4},
		"without metrics":                    {version: python, sources: sourcesOf(2, 3), ranks: []int{2, 3}, first: 2},
		"events of some ranks":               {version: python, metrics: pageOf(2, 3, 4), sources: sourcesOf(3), ranks: []int{2, 3, 4}, first: 2},
		"the Rust front end":                 {version: rust, metrics: pageOf(2, 3), sources: sourcesOf(2, 3), ranks: []int{2, 3}},
		"no version":                         {metrics: pageOf(2, 3), sources: sourcesOf(2, 3), ranks: []int{2, 3}, first: -1},
		"another answer":                     {version: `[]`, metrics: pageOf(2, 3), sources: sourcesOf(2, 3), ranks: []int{2, 3}, first: -1},
		"no version of the first node":       {metrics: pageOf(0, 1), sources: sourcesOf(0, 1), ranks: []int{0, 1}},
		"configured, and no metrics":         {version: python, events: configured, ranks: []int{3, 4}, first: -1},
		"configured, and in part of metrics": {version: python, events: configured, metrics: pageOf(2, 3, 4), ranks: []int{2, 3, 4}, first: 2},
		"configured as the server's own":     {version: python, events: local, metrics: pageOf(2, 3), ranks: []int{2, 3}, first: 2},
		"in another order":                   {version: python, events: []EventSource{local[1], local[0]}, metrics: pageOf(2, 3), ranks: []int{2, 3}, first: 2},
		"one of them, of external balancing": {version: python, events: local[:1], metrics: pageOf(3), ranks: []int{3}, first: 3},
		"one of them, of two":                {version: python, events: local[:1], metrics: pageOf(0, 1), ranks: []int{0, 1}},
		"one more than there are":            {version: python, events: local, metrics: pageOf(0), ranks: []int{0}, refused: true},
		"and of external balancing":          {version: python, events: local, metrics: pageOf(3), ranks: []int{3}, first: 3, refused: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fake(1, 0)
				r.answer["/kv_event_sources"] = tt.sources
				for path, text := range map[string]string{"/version": tt.version, "/metrics": tt.metrics} {
					if r.answer[path] = text; text == "" {
						delete(r.answer, path)
					}
				}
				w := start(t, Options{Replicas: []ReplicaOptions{{Address: a, Events: tt.events}}}, map[string]*fakeReplica{a: r})
				got := w.fleet.Snapshot().Replica(a)
				if !got.Ready || !reflect.DeepEqual(got.Ranks, tt.ranks) || got.FirstRank != tt.first {
					t.Errorf("ranks %v from %d, want %v from %d (%s)", got.Ranks, got.FirstRank, tt.ranks, tt.first, got.Why)
				}
				if (got.EventsRefused != "") != tt.refused {
					t.Errorf("refused: %q", got.EventsRefused)
				}
			})
		})
	}
}

// TestRanksThatGo: a rank that metrics show no more is gone at once, and back with them; the
// numbers of the others stay, and a page without any shows nothing.
func TestRanksThatGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		r.answer["/kv_event_sources"], r.answer["/metrics"] = sourcesOf(2, 3, 4), pageOf(2, 3) // of rank 4 there are events alone
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		expect := func(page string, want ...int) {
			t.Helper()
			w.net.change(func() { r.answer["/metrics"] = page })
			w.pass(1300 * time.Millisecond)
			if got := w.fleet.Snapshot().Replica(a); !reflect.DeepEqual(got.Ranks, want) || got.FirstRank != 2 {
				t.Errorf("ranks %v from %d, want %v from 2", got.Ranks, got.FirstRank, want)
			}
		}
		expect(pageOf(2, 3), 2, 3, 4)
		expect(pageOf(2), 2, 4)
		expect(pageOf(3), 3, 4)
		expect("x 1\n", 3, 4)
		expect(pageOf(2, 3, 5), 2, 3, 4, 5)
		w.expect("joined " + a + " 1")
	})
}

// TestRanksThatCome: what a rank publishes is asked for when the metrics show it first; ranks in
// place of others are another node's, and the header counts from the first of them.
func TestRanksThatCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		r.answer["/kv_event_sources"], r.answer["/metrics"] = sourcesOf(2, 3), pageOf(2, 3)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		expect := func(first int, ranks ...int) {
			t.Helper()
			w.net.change(func() { r.answer["/kv_event_sources"], r.answer["/metrics"] = sourcesOf(ranks...), pageOf(ranks...) })
			w.pass(2500 * time.Millisecond)
			got := w.fleet.Snapshot().Replica(a)
			if !reflect.DeepEqual(got.Ranks, ranks) || got.FirstRank != first || len(got.Events) != len(ranks) {
				t.Errorf("ranks %v from %d with %d event sources, want %v from %d", got.Ranks, got.FirstRank, len(got.Events), ranks, first)
			}
		}
		expect(2, 2, 3, 4, 5)
		expect(4, 4, 5, 6, 7)
		expect(8, 8, 9)
		expect(0, 0, 1)
	})
}
