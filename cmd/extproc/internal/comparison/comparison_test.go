package comparison

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/internal/decision"
	"warmroute/render/testkit/must"
)

// fixture is a comparison whose fleet serves base, its adapter "base-lora" and models
// "m0", "m1", and so on.
func fixture() (c *Comparison, reg *prometheus.Registry, wait func(time.Duration)) {
	now := time.Unix(1_800_000_000, 0)
	reg = prometheus.NewRegistry()
	base := func(model string) string {
		switch {
		case model == "base-lora":
			return "base"
		case model == "base", strings.HasPrefix(model, "m"):
			return model
		}
		return ""
	}
	return New(reg, base, func(seq uint64) bool { return seq != 13 }, func() time.Time { return now }), reg, func(d time.Duration) { now = now.Add(d) }
}

func answer(hint string, withheld decision.Withheld, prompt, cached int) *outcome.Answer {
	return &outcome.Answer{
		Model: "base", Hint: hint, Withheld: withheld, Status: 200, Replica: "10.0.0.1:8000",
		Times: outcome.Times{FirstByte: 100 * time.Millisecond, Duration: time.Second},
		Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: prompt, Cached: cached},
	}
}

// value returns a counter, or a histogram's count and sum.
func value(t *testing.T, reg *prometheus.Registry, name string, labels ...string) (n, sum float64) {
	t.Helper()
	families := must.Get(reg.Gather())(t)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && has(m, labels) {
				if h := m.GetHistogram(); h != nil {
					return float64(h.GetSampleCount()), h.GetSampleSum()
				}
				return m.GetCounter().GetValue(), 0
			}
		}
	}
	return math.NaN(), math.NaN()
}

func has(m *dto.Metric, values []string) bool {
	all := ""
	for _, l := range m.GetLabel() {
		all += l.GetValue() + " "
	}
	for _, v := range values {
		if !strings.Contains(" "+all, " "+v+" ") {
			return false
		}
	}
	return true
}

// TestGroups: every answer is in the group of its hint, and those without a decision, and
// those that opted out, are in none.
func TestGroups(t *testing.T) {
	c, reg, _ := fixture()
	const hint = "10.0.0.1:8000"
	c.Add(answer(hint, "", 100, 80))
	adapter := answer(hint, "", 50, 0)
	adapter.Model = "base-lora"
	c.Add(adapter)
	c.Add(answer("", decision.WithheldShare, 100, 10))
	c.Add(answer("", decision.WithheldShadow, 100, 20))
	c.Add(answer("", decision.WithheldOptedOut, 1000, 1000))
	c.Add(answer("", "", 1000, 1000)) // the decision had no replica
	nobody := answer(hint, "", 1000, 1000)
	nobody.Model = ""
	c.Add(nobody) // picked without a decision
	stranger := answer(hint, "", 1000, 1000)
	stranger.Model = "x"
	c.Add(stranger)
	refused := answer("", decision.WithheldShare, 0, 0)
	refused.Status, refused.Usage = 400, outcome.Usage{}
	c.Add(refused)
	broken := answer(hint, "", 0, 0)
	broken.Status, broken.Usage = 0, outcome.Usage{}
	c.Add(broken)
	partial := answer(hint, "", 100, 0)
	partial.Usage.State = outcome.UsagePartial
	c.Add(partial)
	curious := answer(hint, "", 100, 0) // read because its replica is suspect
	curious.Decision, curious.Status = 13, 404
	c.Add(curious)

	_, all := c.Figures()
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	hinted, unhinted := all[0], all[1]
	if hinted.Group != "hinted" || hinted.Model != "base" || hinted.Requests != 5 || hinted.Failed != 1 || hinted.UsageRead != 2 || hinted.PromptTokens != 150 ||
		hinted.CachedTokens != 80 || *hinted.HitRate != 80.0/150 || *hinted.Prefilled != 35 || hinted.Timed != 3 || hinted.FirstByte.Sum != 0.3 {
		t.Errorf("hinted: %+v", hinted)
	}
	if unhinted.Group != "unhinted" || unhinted.Requests != 3 || unhinted.Failed != 0 || unhinted.PromptTokens != 200 || unhinted.CachedTokens != 30 || unhinted.Timed != 2 || unhinted.Duration.Sum != 2 {
		t.Errorf("unhinted: %+v", unhinted)
	}
	for _, f := range all {
		answered, _ := value(t, reg, "warmroute_compared_requests_total", f.Group, "base", "answered")
		failed, _ := value(t, reg, "warmroute_compared_requests_total", f.Group, "base", "failed")
		prompt, _ := value(t, reg, "warmroute_compared_tokens_total", f.Group, "prompt")
		cached, _ := value(t, reg, "warmroute_compared_tokens_total", f.Group, "cached")
		timed, first := value(t, reg, "warmroute_compared_seconds", f.Group, "first_byte")
		_, whole := value(t, reg, "warmroute_compared_seconds", f.Group, "end")
		if int(answered) != f.Requests-f.Failed || int(failed) != f.Failed || int(prompt) != f.PromptTokens || int(cached) != f.CachedTokens ||
			int(timed) != f.Timed || math.Abs(first-f.FirstByte.Sum) > 1e-9 || math.Abs(whole-f.Duration.Sum) > 1e-9 {
			t.Errorf("metrics %v %v %v %v %v %v %v, page %+v", answered, failed, prompt, cached, timed, first, whole, f)
		}
	}
}

// TestRestart: the page begins again, the metrics go on.
func TestRestart(t *testing.T) {
	c, reg, wait := fixture()
	c.Add(answer("10.0.0.1:8000", "", 100, 80))
	wait(time.Hour)
	c.Restart()
	since, all := c.Figures()
	if len(all) != 0 || since.Unix() != 1_800_003_600 {
		t.Errorf("since %v: %+v", since, all)
	}
	c.Add(answer("", decision.WithheldShare, 100, 80))
	if n, _ := value(t, reg, "warmroute_compared_tokens_total", "hinted", "prompt"); n != 100 {
		t.Errorf("a counter fell to %v", n)
	}
	if _, all := c.Figures(); len(all) != 2 || all[0].HitRate != nil || all[1].HitRate == nil || *all[1].HitRate != 0.8 {
		t.Errorf("%+v", all)
	}
}

// TestModelsAreBounded: a fleet with more names than that makes no more series.
func TestModelsAreBounded(t *testing.T) {
	c, _, _ := fixture()
	for i := range mostModels + 10 {
		a := answer("10.0.0.1:8000", "", 1, 1)
		a.Model = fmt.Sprint("m", i)
		c.Add(a)
	}
	if _, all := c.Figures(); len(all) != 2*mostModels || len(c.models) != mostModels {
		t.Errorf("%d figures, %d models", len(all), len(c.models))
	}
}

// TestQuantiles are exact to 5 %.
func TestQuantiles(t *testing.T) {
	var s spread
	if s.times() != nil {
		t.Error("times of nothing")
	}
	for i := 1; i <= 1000; i++ {
		s.add(time.Duration(i) * 3 * time.Millisecond)
	}
	got := s.times()
	for _, q := range []struct{ got, want float64 }{{got.P50, 1.5}, {got.P90, 2.7}, {got.P99, 2.97}} {
		if q.got < q.want*0.95 || q.got > q.want*1.05 {
			t.Errorf("%v, want %v", q.got, q.want)
		}
	}
	var far spread
	far.add(time.Nanosecond)
	far.add(1000 * time.Hour)
	if far.bands[0] != 1 || far.bands[bands-1] != 1 {
		t.Errorf("%v", far.bands)
	}
}
