package fleet

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// firstTokens returns numbers by their bounds.
func firstTokens(of map[float64]float64) (f FirstTokens) {
	for bound, n := range of {
		i, _ := slices.BinarySearch(FirstTokenBounds[:], bound)
		f[i] = n
	}
	return f
}

// TestTimesOfRealServers: every first token is in one bucket, and all requests have spent
// their times.
func TestTimesOfRealServers(t *testing.T) {
	for _, version := range []string{"0.21.0", "0.32.0"} {
		var p page
		must.Do(t, p.read(bytes.NewReader(realPage(t, version)), 1<<20))
		l := p.loads(time.Time{})[0]
		var sum float64
		for _, n := range l.FirstTokens {
			sum += n
		}
		if sum != l.TTFT.Requests || l.FirstTokens[len(FirstTokenBounds)] != 0 {
			t.Errorf("%s: %v first tokens in buckets of %v: %v", version, sum, l.TTFT.Requests, l.FirstTokens)
		}
		for name, s := range map[string]Spent{"queue": l.Queue, "prefill": l.Prefill, "decode": l.Decode} {
			if s.Requests != l.TTFT.Requests || s.Seconds <= 0 || s.Seconds > 60 {
				t.Errorf("%s: %s %+v", version, name, s)
			}
		}
	}
}

// TestFirstTokensOfSeveralSeries: the buckets of an engine's series add up, also with bounds
// that are not vLLM's own, and a page without sense gives no negative numbers.
func TestFirstTokensOfSeveralSeries(t *testing.T) {
	series := func(engine int, model string, upTo ...any) string {
		var b strings.Builder
		for i := 0; i < len(upTo); i += 2 {
			fmt.Fprintf(&b, "vllm:time_to_first_token_seconds_bucket{engine=\"%d\",le=\"%v\",model_name=%q} %v\n", engine, upTo[i], model, upTo[i+1])
		}
		return b.String()
	}
	text := series(0, "a", 0.001, 1, 0.25, 3, "+Inf", 4) + series(0, "b", 0.001, 0, 0.25, 2, "+Inf", 2) +
		series(1, "a", 0.03, 5, 0.3, 6, 99999, 7, "+Inf", 8) + // counted up to 0.04, 0.5 and above all
		series(2, "a", 0.001, 5, 0.25, 3, "+Inf", 6) + series(2, "a", "x", 5, "-1", 3, "NaN", 6) + series(2, "a", 0.5, -1)
	var p page
	must.Do(t, p.read(strings.NewReader(text), 1<<20))
	want := []FirstTokens{
		firstTokens(map[float64]float64{0.001: 1, 0.25: 4, math.Inf(1): 1}),
		firstTokens(map[float64]float64{0.04: 5, 0.5: 1, math.Inf(1): 2}),
		firstTokens(map[float64]float64{0.001: 5, math.Inf(1): 1}),
	}
	loads := p.loads(time.Time{})
	if len(loads) != len(want) {
		t.Fatalf("%d ranks", len(loads))
	}
	for i := range want {
		if loads[i].FirstTokens != want[i] {
			t.Errorf("rank %d: %v\nwant %v", i, loads[i].FirstTokens, want[i])
		}
	}
}
