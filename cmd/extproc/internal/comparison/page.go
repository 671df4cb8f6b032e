package comparison

import (
	"maps"
	"math"
	"slices"
	"time"
)

// sums are one group's numbers since the last Restart.
type sums struct {
	requests, failed    int
	read                int // answers with a complete usage
	prompt, cached      int // tokens of these
	firstByte, duration spread
}

// Figures are one group of one model for people. Nil means that nothing was counted.
type Figures struct {
	Model        string   `json:"model"`
	Group        string   `json:"group"`
	Requests     int      `json:"requests"`
	Failed       int      `json:"failed"`
	UsageRead    int      `json:"usage_read"` // answers whose usage is known
	PromptTokens int      `json:"prompt_tokens"`
	CachedTokens int      `json:"cached_tokens"`
	HitRate      *float64 `json:"hit_rate,omitempty"`
	Prefilled    *float64 `json:"prefilled_tokens_per_request,omitempty"`
	Timed        int      `json:"timed"` // answers whose times are known
	FirstByte    *Times   `json:"first_byte_seconds,omitempty"`
	Duration     *Times   `json:"answer_seconds,omitempty"`
}

// Times are the sum and quantiles of times, in seconds. Quantiles are exact to 5 %.
type Times struct {
	Sum float64 `json:"sum"`
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
}

// Figures returns both groups of each model, sorted by model, and since when they count.
func (c *Comparison) Figures() (since time.Time, all []Figures) {
	all = []Figures{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, model := range slices.Sorted(maps.Keys(c.models)) {
		sides := c.models[model]
		if sides[Hinted].requests+sides[Unhinted].requests == 0 { // since the last Restart
			continue
		}
		for g := range groups {
			all = append(all, sides[g].figures(model, g))
		}
	}
	return c.since, all
}

func (s *sums) figures(model string, g Group) Figures {
	f := Figures{
		Model: model, Group: g.String(), Requests: s.requests, Failed: s.failed, UsageRead: s.read,
		PromptTokens: s.prompt, CachedTokens: s.cached, Timed: s.firstByte.n, FirstByte: s.firstByte.times(), Duration: s.duration.times(),
	}
	if s.prompt > 0 {
		rate, prefilled := float64(s.cached)/float64(s.prompt), float64(s.prompt-s.cached)/float64(s.read)
		f.HitRate, f.Prefilled = &rate, &prefilled
	}
	return f
}

// spread counts times in bands whose bounds are a tenth apart: from 0.1 ms to hours.
type spread struct {
	n     int
	sum   time.Duration
	bands [bands]int
}

const (
	bands = 192
	first = 1e-4 // seconds, upper bound of the first band
	ratio = 1.1
)

func (s *spread) add(d time.Duration) {
	s.n++
	s.sum += d
	at := math.Ceil(math.Log(d.Seconds()/first) / math.Log(ratio))
	s.bands[int(min(max(at, 0), bands-1))]++
}

// quantile returns the middle of the band in which the share q of the times ends.
func (s *spread) quantile(q float64) float64 {
	left := int(math.Ceil(q * float64(s.n)))
	for i, n := range s.bands {
		if left -= n; left <= 0 {
			return first * math.Pow(ratio, float64(i)-0.5)
		}
	}
	return 0
}

func (s *spread) times() *Times {
	if s.n == 0 {
		return nil
	}
	return &Times{Sum: s.sum.Seconds(), P50: s.quantile(0.5), P90: s.quantile(0.9), P99: s.quantile(0.99)}
}
