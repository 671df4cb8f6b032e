package fleet

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/index"
)

// counted is a page of a replica with so many requests running and waiting that has counted so
// much; more are further lines.
func counted(running, waiting, steps int, usage float64, more ...string) string {
	return metricsText(1, float64(running), 100) + fmt.Sprintf("vllm:num_requests_waiting{engine=\"0\"} %d\nvllm:kv_cache_usage_perc{engine=\"0\"} %v\n"+
		"vllm:generation_tokens_total{engine=\"0\"} %d\n", waiting, usage, steps) + strings.Join(more, "\n") + "\n"
}

func sleeps(awake string) string {
	return `vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="weights_offloaded"} 0
vllm:engine_sleep_state{engine="0",model_name="m",sleep_state="awake"} ` + awake
}

func defers(n int) string {
	return fmt.Sprintf(`vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="deferred"} %d`, n)
}

// TestHeld: a replica that is asleep, or has work and makes no step for a while, is passed over
// without having left, and comes back by itself; one that may be computing never is.
func TestHeld(t *testing.T) {
	const long = 60 // s
	tests := map[string]struct {
		page func(second int) string               // while the state lasts
		ours func(second int) (sent, flying int64) // nil: none
		from int                                   // second in which it is held at the latest, 0 = never
		not  int                                   // second until which it is not
		why  string
		over string // the page afterwards
	}{
		"asleep":               {page: func(int) string { return counted(0, 0, 5, 0, sleeps("0.0")) }, from: 2, why: "asleep", over: counted(0, 0, 5, 0, sleeps("1.0"))},
		"asleep with requests": {page: func(int) string { return counted(3, 1, 5, 0.1, sleeps("0")) }, from: 2, why: "asleep", over: counted(3, 1, 6, 0.1, sleeps("1"))},
		"awake":                {page: func(int) string { return counted(0, 0, 5, 0, sleeps("1.0")) }},
		"paused":               {page: func(int) string { return counted(2, 0, 5, 0.1) }, from: 13, not: 8, why: "stalled", over: counted(2, 0, 6, 0.1)},
		"paused, one waits":    {page: func(int) string { return counted(0, 1, 5, 0.1) }, from: 13, not: 8, why: "stalled", over: counted(0, 0, 5, 0.1)},
		"paused when idle": {page: func(int) string { return counted(0, 0, 5, 0) }, ours: func(int) (int64, int64) { return 8, 1 }, from: 13, not: 8, why: "stalled",
			over: counted(0, 0, 6, 0)},
		"paused between a step and a request that come in one look": {page: func(int) string { return counted(0, 0, 6, 0) }, ours: func(int) (int64, int64) { return 8, 1 }, from: 13, not: 8,
			why: "stalled", over: counted(0, 0, 7, 0)},
		"a slow reader":                   {page: func(s int) string { return counted(0, 0, 5+min(s, 2), 0) }, ours: func(s int) (int64, int64) { return min(8, 7+int64(s)), 1 }},
		"idle":                            {page: func(int) string { return counted(0, 0, 5, 0) }, ours: func(int) (int64, int64) { return 7, 0 }},
		"decodes":                         {page: func(s int) string { return counted(2, 0, 5+s, 0.1) }},
		"one long prompt, chunk by chunk": {page: func(s int) string { return counted(1, 0, 5, 0.1+float64(s/8)/100) }},
		"a grammar is compiled":           {page: func(int) string { return counted(0, 1, 5, 0, defers(1)) }, ours: func(int) (int64, int64) { return 8, 1 }},
		"paused beside a deferred request": {page: func(int) string { return counted(0, 1, 5, 0, defers(1)) }, ours: func(int) (int64, int64) { return 9, 2 }, from: 13, not: 8, why: "stalled",
			over: counted(0, 0, 6, 0)},
		"hangs beside a deferred request": {page: func(int) string { return counted(1, 1, 5, 0.1, defers(1)) }, from: 13, not: 8, why: "stalled", over: counted(1, 1, 6, 0.1, defers(1))},
		"counts nothing":                  {page: func(int) string { return metricsText(1, 4, 100) }, ours: func(s int) (int64, int64) { return int64(s), 4 }},
		"SGLang": {page: func(int) string {
			return metricsText(1, 0, 100) + "sglang:num_running_reqs 4\nsglang:generation_tokens_total 7\n"
		}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fake(1, 0)
				r.answer["/metrics"] = counted(0, 0, 5, 0)
				var sent, flying atomic.Int64
				sent.Store(7)
				w := startWith(t, Options{Replicas: list(a)}, Hooks{Requests: func(h index.Holder) (int64, int64) {
					if h != (index.Holder{Replica: a}) {
						t.Errorf("asked for %v", h)
					}
					return sent.Load(), flying.Load()
				}}, map[string]*fakeReplica{a: r})
				w.pass(2 * time.Second)
				w.expect("joined " + a + " 1")
				last := long
				if tt.from > 0 {
					last = tt.from
				}
				for s := range last {
					w.net.change(func() { r.answer["/metrics"] = tt.page(s) })
					if tt.ours != nil {
						all, now := tt.ours(s)
						sent.Store(all)
						flying.Store(now)
					}
					w.pass(time.Second)
					if got := w.fleet.Snapshot().Replica(a); !got.Ready && (tt.from == 0 || s < tt.not) {
						t.Fatalf("held in second %d: %s", s, got.Why)
					}
				}
				if tt.from == 0 {
					return
				}
				s := w.fleet.Snapshot()
				if got := s.Replica(a); got.Ready || !got.Held || !strings.HasPrefix(got.Why, tt.why+": ") || s.Ready != 0 || len(got.Ranks) != 1 || len(got.Events) != 1 {
					t.Fatalf("not held: %+v", got)
				}
				w.expectServing(a) // for when there is no other
				w.net.change(func() { r.answer["/metrics"] = tt.over })
				flying.Store(0)
				w.pass(1300 * time.Millisecond)
				if got := w.fleet.Snapshot().Replica(a); !got.Ready || got.Held || got.Why != "" {
					t.Fatalf("it does not come back: %+v", got)
				}
				w.expect() // it never left
				w.net.change(func() { r.refuse = true })
				w.pass(4 * time.Second)
				w.expect("left " + a + " 1")
			})
		})
	}
}

// TestHeldAgain: a replica whose work is gone without a step gets requests again, and is passed
// over sooner if these make no step either.
func TestHeldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		r.answer["/metrics"] = counted(1, 0, 4, 0)
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		ready := func(want bool, why string) {
			t.Helper()
			if got := w.fleet.Snapshot().Replica(a); got.Ready != want {
				t.Errorf("%s: %+v", why, got)
			}
		}
		w.pass(13 * time.Second)
		ready(false, "paused")
		w.net.change(func() { r.answer["/metrics"] = counted(0, 0, 4, 0) })
		w.pass(1300 * time.Millisecond)
		ready(true, "its work is gone")
		w.net.change(func() { r.answer["/metrics"] = counted(1, 0, 4, 0) })
		w.pass(4 * time.Second)
		ready(false, "the next request makes no step")
		w.net.change(func() { r.answer["/metrics"] = counted(1, 0, 5, 0) })
		w.pass(6 * time.Second)
		ready(true, "a step was made")
		w.net.change(func() { r.answer["/metrics"] = counted(1, 0, 5, 0, sleeps("0")) })
		w.pass(1300 * time.Millisecond)
		ready(false, "it sleeps")
		w.net.change(func() { r.hang = true })
		w.pass(3100 * time.Millisecond)
		w.expect("joined "+a+" 1", "left "+a+" 1") // deaf is down
	})
}

// TestSleepDiscardsTheCache: what is known of a replica's cache is dropped when it falls asleep, once
// each time, unless it keeps its cache; it stays offered for when there is no other.
func TestSleepDiscardsTheCache(t *testing.T) {
	for level, discards := range []bool{false, true, true} {
		synctest.Test(t, func(t *testing.T) {
			page := func(asleep bool) string {
				state := []string{"awake", "weights_offloaded", "discard_all"}[level]
				return counted(0, 0, 5, 0, sleeps(map[bool]string{true: "0", false: "1"}[asleep]),
					fmt.Sprintf(`vllm:engine_sleep_state{engine="0",sleep_state=%q} %d`, state, map[bool]int{asleep: 1}[level > 0]))
			}
			r := fake(1, 0)
			r.answer["/metrics"] = page(false)
			w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
			w.pass(2 * time.Second)
			want := []string{"joined " + a + " 1"}
			for n := range 2 {
				for _, asleep := range []bool{true, false} {
					w.net.change(func() { r.answer["/metrics"] = page(asleep) })
					w.pass(30 * time.Second)
					w.expectServing(a)
					if got := w.fleet.Snapshot().Replica(a); got.Ready == asleep || got.Empty != (asleep && discards) {
						t.Errorf("level %d: asleep %t, ready %t, empty %t", level, asleep, got.Ready, got.Empty)
					}
				}
				if discards {
					want = append(want, fmt.Sprint("left ", a, " ", n+1), fmt.Sprint("joined ", a, " ", n+2))
				}
			}
			w.expect(want...)
		})
	}
}
