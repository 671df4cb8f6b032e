package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/lab/simulator"
	"warmroute/lab/stage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prompt is the token ids of a request's body.
func prompt(t *testing.T, blockSize int, r *simulator.Request) []int32 {
	t.Helper()
	b, err := body("m", blockSize, r)
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Prompt    []int32 `json:"prompt"`
		MaxTokens int     `json:"max_tokens"`
		Stream    bool    `json:"stream"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if !v.Stream || v.MaxTokens != r.Output {
		t.Errorf("%+v for an answer of %d tokens", v, r.Output)
	}
	return v.Prompt
}

// TestTraffic: prompts share exactly the blocks that requests of the trace do.
func TestTraffic(t *testing.T) {
	a, b := makeTrace(300, 1), makeTrace(300, 1)
	for i := range a.Requests {
		x, y := &a.Requests[i], &b.Requests[i]
		if x.At != y.At || !slices.Equal(x.Blocks, y.Blocks) {
			t.Fatalf("request %d differs between two traces of a seed", i)
		}
		ids := prompt(t, 16, x)
		if len(ids) != 16*len(x.Blocks) || x.Input != simulator.Block*len(x.Blocks) {
			t.Fatalf("request %d has %d ids and %d tokens for %d blocks", i, len(ids), x.Input, len(x.Blocks))
		}
		if i == 0 {
			continue
		}
		before := prompt(t, 16, &a.Requests[i-1])
		for j, block := range x.Blocks {
			same := j < len(a.Requests[i-1].Blocks) && a.Requests[i-1].Blocks[j] == block
			if j*16 < len(before) && same != slices.Equal(ids[j*16:j*16+16], before[j*16:j*16+16]) {
				t.Errorf("block %d of request %d: shared is %v, its ids differ", j, i, same)
			}
		}
	}
}

// streams answers every request with one token, and each third with 503 where bad.
func streams(bad bool, served *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if n := served.Add(1); bad && n%3 == 0 {
			http.Error(w, "no", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "data: {\"choices\":[{\"text\":\"so\"}]}\n\ndata: [DONE]\n\n")
	}
}

func testClient(t *testing.T, trace *simulator.Trace, h http.HandlerFunc) *client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := newClient(srv.URL, stage.Fleet{Model: "m", BlockSize: 16}, trace)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestOpen(t *testing.T) {
	trace := makeTrace(60, 1)
	var served atomic.Int64
	o := testClient(t, trace, streams(false, &served)).open(t.Context(), trace, 600)
	if len(o.ttft) != 60 || o.failed != 0 || served.Load() != 60 {
		t.Errorf("%d answers, %d failures, %d served", len(o.ttft), o.failed, served.Load())
	}
	served.Store(0)
	o = testClient(t, trace, streams(true, &served)).open(t.Context(), trace, 600)
	if len(o.ttft) != 40 || o.failed != 20 || o.err == nil {
		t.Errorf("%d answers, %d failures (%v), expected 40 and 20", len(o.ttft), o.failed, o.err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if o := testClient(t, trace, streams(false, &served)).open(stopped, trace, 0.1); len(o.ttft)+o.failed != 0 {
		t.Errorf("%d requests after the end", len(o.ttft)+o.failed)
	}
}

func TestClosed(t *testing.T) {
	trace := makeTrace(30, 1)
	release := make(chan struct{})
	var most, now atomic.Int64
	slow := func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		select {
		case <-release:
		case <-r.Context().Done():
		}
	}
	rate, o := testClient(t, trace, slow).closed(t.Context(), 4, 100*time.Millisecond)
	if most.Load() > 4 || rate != 0 || o.failed != 0 {
		t.Errorf("%d in flight, expected 4; rate %v of requests that never end; %d failed", most.Load(), rate, o.failed)
	}
	close(release)
	var served atomic.Int64
	if _, o := testClient(t, trace, streams(false, &served)).closed(t.Context(), 4, time.Minute); o.failed != 1 {
		t.Errorf("a trace that ended early is no failure: %+v", o)
	}
}

func TestCPU(t *testing.T) {
	before, err := parseCPU("cpu  100 10 40 800 50 5 5 0 7 7\ncpu0 1 1 1 1 1 1 1 1\n")
	if err != nil || before != (cpu{busy: 160, all: 1010}) {
		t.Fatalf("%+v, %v", before, err)
	}
	after := cpu{busy: 190, all: 1110}
	if got := after.since(before); math.Abs(got-0.3) > 1e-9 {
		t.Errorf("30 of 100 ticks are a share of %v", got)
	}
	if got := before.since(before); got != 0 {
		t.Errorf("no time is a share of %v", got)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "intr 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7 x"} {
		if _, err := parseCPU(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// passes are three policies with the given means, measured and simulated, in ms.
func passes(live, sim [3]int) []*pass {
	var out []*pass
	for i, c := range contenders {
		out = append(out, &pass{
			policy: c.name, load: 0.7, ttft: []time.Duration{time.Duration(live[i]) * time.Millisecond},
			sim: simulator.Result{Mean: float64(sim[i]) / 1000},
		})
	}
	return out
}

func TestVerdict(t *testing.T) {
	good := passes([3]int{90, 60, 30}, [3]int{80, 50, 20})
	m := &measurement{full: 10, passes: [][]*pass{good}}
	if err := m.verdict(); err != nil {
		t.Error(err)
	}
	var b bytes.Buffer
	if err := m.table(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 % is 10.0 requests/s (machine 0 % busy)", "| 70 % | ttft | 0.0 % | 30 ms | 0.333 | 30 ms | 30 ms | 0.333 |", "| 20 ms | 0.250 |", "ttft < filter-then-score < least_request; the same order"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if err := (&measurement{busy: 0.51}).verdict(); err == nil {
		t.Error("a calibration on a busy machine is not void")
	}
	for want, spoil := range map[string]func([]*pass){
		"void":            func(p []*pass) { p[1].busy = 0.51 },
		"1 requests fail": func(p []*pass) { p[2].failed, p[2].err = 1, errors.New("no") },
		"the order is":    func(p []*pass) { p[2].ttft[0] = 70 * time.Millisecond },
	} {
		p := passes([3]int{90, 60, 30}, [3]int{80, 50, 20})
		spoil(p)
		if err := (&measurement{passes: [][]*pass{p}}).verdict(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// TestSimulate: the simulation's prediction for this traffic, at a load where its order
// is clear (0.4, 0.14 and 0.1 s).
func TestSimulate(t *testing.T) {
	o, err := parse(nil, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	trace := makeTrace(600, o.seed)
	full := simulator.Saturation(trace, simulator.Config{Replicas: o.fleet.Replicas, Hardware: hardware(o.fleet)})
	var p []*pass
	for _, c := range contenders {
		r, err := simulate(o.fleet, c, trace, 0.9*full, o.seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.TTFT) != 600 {
			t.Errorf("%s: %d of 600 requests count", c.name, len(r.TTFT))
		}
		p = append(p, &pass{policy: c.name, sim: r})
	}
	if _, sim := orders(p); sim != "ttft < filter-then-score < least_request" {
		t.Errorf("simulated: %s", sim)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-pass", "0s"}, {"-prefill-rate", "-1"}, {"now"}, {"-nonsense"}} {
		if err := run(t.Context(), args, io.Discard, io.Discard); err == nil {
			t.Errorf("%v was taken", args)
		}
	}
}
