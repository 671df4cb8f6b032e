package compare

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
)

func compared(t *testing.T, o Options) string {
	t.Helper()
	var out bytes.Buffer
	if err := Run(context.Background(), &out, o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestEveryRunHasALine: one for each cell, policy and seed, with figures, and the same again.
func TestEveryRunHasALine(t *testing.T) {
	o := Options{Workloads: []string{"zipf", "light"}, Rivals: []string{"least", "llm-d-tokens"}, Seeds: []uint64{1, 2}, Share: 0.05, Jobs: 2, JSON: true}
	first := compared(t, o)
	var lines []Line
	for text := range strings.Lines(first) {
		var l Line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatal(err)
		}
		if l.Throughput <= 0 || l.Mean <= 0 || l.P99 < l.Mean || l.Hit <= 0 || l.Hit >= 1 {
			t.Errorf("%+v", l)
		}
		lines = append(lines, l)
	}
	if len(lines) != (3+9)*2*3 || lines[0].Policy != ours || lines[0].Workload != "zipf" || lines[0].Load != "40/s" || lines[5].Seed != 2 {
		t.Errorf("%d lines, the first %+v", len(lines), lines[0])
	}
	o.Jobs = 1
	if again := compared(t, o); again != first {
		t.Error("the same comparison gives other figures")
	}
}

// TestTheTableNamesTheBestRival: by figure, with the ratio and half of the seeds' spread.
func TestTheTableNamesTheBestRival(t *testing.T) {
	lines := []Line{
		{Policy: ours, Seed: 1, Mean: 1, Throughput: 8}, {Policy: "a", Seed: 1, Mean: 2, Throughput: 8}, {Policy: "b", Seed: 1, Mean: 1, Throughput: 4},
		{Policy: ours, Seed: 2, Mean: 4, Throughput: 8}, {Policy: "a", Seed: 2, Mean: 2, Throughput: 16}, {Policy: "b", Seed: 2, Mean: 1, Throughput: 4},
	}
	rivals := []string{"a", "b"}
	if got, want := against(rivals, lines, figures[1].of, false), (best{2, 2, 1.5, "b"}); !near(got, want) {
		t.Errorf("mean %+v, want %+v", got, want)
	}
	if got, want := against(rivals, lines, figures[0].of, true), (best{8, 0.7071, 0.25, "a"}); !near(got, want) {
		t.Errorf("throughput %+v, want %+v", got, want)
	}
}

func near(a, b best) bool {
	close := func(x, y float64) bool { return x-y < 1e-3 && y-x < 1e-3 }
	return a.rival == b.rival && close(a.value, b.value) && close(a.ratio, b.ratio) && close(a.noise, b.noise)
}

func TestWrongNamesAreErrors(t *testing.T) {
	for want, o := range map[string]Options{
		`called "tea"`:  {Workloads: []string{"tea"}, Seeds: []uint64{1}, Share: 1},
		`called "none"`: {Workloads: []string{"zipf"}, Rivals: []string{"none"}, Seeds: []uint64{1}, Share: 1},
		"share of 2":    {Workloads: []string{"zipf"}, Seeds: []uint64{1}, Share: 2},
		"0 seeds":       {Workloads: []string{"zipf"}, Share: 1},
	} {
		if err := Run(context.Background(), &bytes.Buffer{}, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
