package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/testenv"
	"warmroute/lab/stage"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var small = shape{seed: 3, talks: 6, turns: 3, systems: 2, systemWords: 60, userWords: 10, answer: 9, window: 20 * time.Millisecond, pause: time.Millisecond}

// startReplica runs a simulated replica until the test ends.
func startReplica(t *testing.T, f stage.Fleet) *vllmsim.Sim {
	t.Helper()
	s, err := vllmsim.New(vllmsim.Options{
		Model: f.Model, Blocks: f.Blocks, BlockSize: f.BlockSize, MaxModelLen: f.MaxModelLen, PrefillRate: -1, DecodeRate: -1, Seed: f.Seed,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	testenv.Run(t, s.Run)
	return s
}

// TestTraffic plays the same traffic against two replicas: the same requests,
// byte for byte, and a hit rate between nothing and the bound.
func TestTraffic(t *testing.T) {
	f := stage.Fleet{Replicas: 1, Blocks: 400, BlockSize: 16, MaxModelLen: 4096, Model: "demo"}
	var sums []string
	for range 2 {
		s := startReplica(t, f)
		calls := 0
		r := makeTraffic(small).send(t.Context(), "http://"+s.Addr(), "demo", func(int, int) { calls++ })
		if len(r.exchanges) != 18 || r.failed != 0 || calls != 18 {
			t.Fatalf("%d exchanges, %d failed (%v), %d calls of progress", len(r.exchanges), r.failed, r.firstErr, calls)
		}
		sums = append(sums, r.checksum())
		c, err := testenv.Count(t.Context(), s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		p := &pass{report: r, replicas: []testenv.Counters{c}}
		cached := 0
		for _, e := range r.exchanges {
			cached += e.Cached
		}
		if c.Requests != 18 || float64(cached) != c.Hits {
			t.Errorf("the replica counts %+v, the answers %d cached tokens", c, cached)
		}
		pooled, infinite, err := bounds(t.Context(), r, f, small.answer, s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		if hit := testenv.HitRate(p.replicas); !(hit > 0.3 && hit <= infinite && pooled <= infinite && infinite < 1) {
			t.Errorf("hit rate %v, bounds %v and %v", hit, pooled, infinite)
		}
		if p.ttft(0.5) <= 0 || p.ttft(0.99) < p.ttft(0.5) {
			t.Errorf("TTFT %v and %v", p.ttft(0.5), p.ttft(0.99))
		}
	}
	if sums[0] != sums[1] {
		t.Errorf("checksums %v differ", sums)
	}
	other := small
	other.seed++
	if makeTraffic(other).talks[0].system == makeTraffic(small).talks[0].system {
		t.Error("another seed makes the same traffic")
	}
}

// TestFailures: an answer that is no stream, or one cut short, is a failure and
// ends its conversation.
func TestFailures(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"status 503":     func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) },
		"unexpected EOF": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("data: {}\n\n")) },
		"no JSON":        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("data: oops\n\n")) },
	} {
		srv := httptest.NewServer(h)
		r := makeTraffic(small).send(t.Context(), srv.URL, "demo", func(int, int) {})
		srv.Close()
		if r.failed != small.talks || len(r.exchanges) != small.talks || !strings.Contains(r.firstErr.Error(), name) {
			t.Errorf("%s: %d of %d failed with %v", name, r.failed, len(r.exchanges), r.firstErr)
		}
	}
}

// TestStops: the traffic ends when its context does.
func TestStops(t *testing.T) {
	slow := small
	slow.window = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := makeTraffic(slow).send(ctx, "http://127.0.0.1:1", "demo", func(int, int) {}); len(r.exchanges) != 0 {
		t.Errorf("%d exchanges after the end", len(r.exchanges))
	}
}

func TestTable(t *testing.T) {
	r := &report{exchanges: []exchange{{Answer: testenv.Answer{TTFT: time.Second}}, {Answer: testenv.Answer{TTFT: 2 * time.Second}}}}
	var b bytes.Buffer
	err := table(&b, []*pass{
		{name: "least_request", report: r, replicas: []testenv.Counters{{Requests: 2, Queries: 10, Hits: 1}}},
		{name: "warmroute", report: r, replicas: []testenv.Counters{{Requests: 2, Queries: 10, Hits: 9}}, reasons: map[string]int{"cold": 1, "match": 4, "none": 0},
			sources: map[string]int{"in_process": 5}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0 %", "90.0 %", "2000 ms", "warmroute's reason codes: match 4, cold 1\n", "by source: in_process 5;"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestSplitTable: an answer counts within the limits if its first token and its others came in
// time, and a failed request does not.
func TestSplitTable(t *testing.T) {
	answer := func(first, each time.Duration) exchange {
		return exchange{Answer: testenv.Answer{TTFT: first, Last: first + 9*each}}
	}
	of := []exchange{answer(time.Second, 30*time.Millisecond), answer(3*time.Second, 30*time.Millisecond), answer(time.Second, 60*time.Millisecond), {err: io.EOF}}
	var b bytes.Buffer
	err := splitTable(&b, []*pass{
		{name: "never split", report: &report{exchanges: of, failed: 1}},
		{name: "split by price", report: &report{exchanges: of[:1]}, splits: map[string]int{"split": 3, "local_warm": 1, "off": 0}, moved: 4000},
	}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"25.0 %", "100.0 %", "60 ms", "4000", "split by price, by reason: split 3, local_warm 1\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// TestVerdict: the demo ends with one sentence that follows from the row of the limits.
func TestVerdict(t *testing.T) {
	of := func(good, splits int) *pass {
		p := &pass{report: &report{exchanges: make([]exchange, 100)}, splits: map[string]int{"split": splits}}
		for i := range p.report.exchanges[good:] {
			p.report.exchanges[good+i].err = io.EOF
		}
		return p
	}
	for _, c := range []struct {
		never, split, splits int
		says                 string
	}{
		{90, 99, 50, "Splits paid: 99.0 % of the requests were within both limits with splits, 90.0 % without"},
		{90, 91, 50, "Splits gained nothing that counts: 91.0 %"},
		{100, 100, 50, "Splits gained nothing that counts: 100.0 %"},
		{90, 89, 50, "Splits gained nothing that counts: 89.0 %"},
		{90, 80, 50, "Splits cost more than they gained: 80.0 %"},
		{80, 99, 0, "No prompt was computed elsewhere"},
	} {
		var b bytes.Buffer
		never, split := of(c.never, 0), of(c.split, c.splits)
		if err := splitTable(&b, []*pass{never, split}, 10); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(b.String()), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, c.says) {
			t.Errorf("%d and %d within, %d splits: %q, want %q", c.never, c.split, c.splits, last, c.says)
		}
	}
}

// TestSplitPasses plays a little of the demo of prefill and decode on two replicas: nothing is
// split in the first pass, the second moves what it splits, and no request fails.
func TestSplitPasses(t *testing.T) {
	if race.Enabled {
		t.Skip("takes half a minute of real time: make test-long runs it, without the race detector")
	}
	o := published(true)
	o.shape.talks, o.shape.window = 24, 4*time.Second
	st := &stage.Stage{Dir: t.TempDir(), Fleet: o.fleet}
	if err := st.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	passes, err := splitPasses(t.Context(), st, makeTraffic(o.shape), newProgress(io.Discard, 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := sound(passes); err != nil {
		t.Error(err)
	}
	if n := passes[0].splits["split"]; n != 0 || passes[0].moved != 0 {
		t.Errorf("the first pass split %d", n)
	}
	if p := passes[1]; p.splits["split"] == 0 || p.moved < 1000*p.splits["split"] {
		t.Errorf("the second pass has %v, %d tokens moved", p.splits, p.moved)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-replicas", "0"}, {"now"}, {"-nonsense"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
