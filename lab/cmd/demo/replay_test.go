package main

import (
	"bytes"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/cli/replay"
	"warmroute/lab/stage"
	"warmroute/render/testkit/race"
)

// TestReplayGivesTheMeasuredHitRate plays the same traffic with the router in shadow mode,
// balanced by Envoy alone, and routed. The replicas count their hits. The trace of the
// routed pass, replayed, gives its hit rate to two points, and so does the trace of the
// shadow, which has seen no hint followed. A replay in coarser blocks than the replicas'
// does not.
func TestReplayGivesTheMeasuredHitRate(t *testing.T) {
	if race.Enabled {
		t.Skip("takes a minute of real time: make test-long runs it, without the race detector")
	}
	st := &stage.Stage{Dir: t.TempDir(), Fleet: stage.Fleet{
		Replicas: 4, Blocks: 800, BlockSize: 16, MaxModelLen: 4096, PrefillRate: 6000, DecodeRate: 50, StepTokens: 2048, Model: "demo",
	}}
	if err := st.Build(t.Context()); err != nil {
		t.Fatal(err)
	}
	traffic := makeTraffic(shape{seed: 2, talks: 60, turns: 4, systems: 4, systemWords: 700, userWords: 80, answer: 48, window: 16 * time.Second, pause: time.Second})
	play := func(name string, shadow bool) (trace string, measured float64) {
		t.Helper()
		trace = filepath.Join(t.TempDir(), "trace.jsonl")
		p, err := playPass(t.Context(), st, passKind(name), &stage.Router{TraceFile: trace, Shadow: shadow}, traffic, newProgress(io.Discard, 1))
		if err != nil {
			t.Fatal(err)
		}
		if p.report.failed > 0 {
			t.Fatal(p.report.firstErr)
		}
		measured = 100 * testenv.HitRate(p.replicas)
		t.Logf("%s: measured %.1f %%", name, measured)
		return trace, measured
	}
	shadow, without := play("shadow", true)
	routed, with := play("routed", false)
	within := func(what string, got, want, points float64) {
		t.Helper()
		if math.Abs(got-want) > points {
			t.Errorf("%s: replayed %.1f %%, measured %.1f %%", what, got, want)
		}
	}
	within("routed", replayed(t, routed, "warmroute", 0), with, 2)
	within("routed, foretold by the shadow", replayed(t, shadow, "warmroute", 0), with, 2)
	within("not routed", replayed(t, shadow, "p2c", 0), without, 8) // a random policy on few requests
	if got := replayed(t, routed, "warmroute", 512); math.Abs(got-with) < 4 {
		t.Errorf("in blocks of 512 tokens: replayed %.1f %%, measured %.1f %%: the comparison shows nothing", got, with)
	}
}

// replayed returns the hit rate of a policy on a trace in percent.
func replayed(t *testing.T, trace, policy string, block int) float64 {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out bytes.Buffer
	if err := replay.Run(t.Context(), []io.Reader{f}, &out, replay.Options{Rivals: []string{"p2c"}, Block: block}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", out.String())
	m := regexp.MustCompile(policy + ` +([0-9.]+) %`).FindStringSubmatch(out.String())
	if m == nil {
		t.Fatalf("no result of %s", policy)
	}
	hit, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return hit
}
