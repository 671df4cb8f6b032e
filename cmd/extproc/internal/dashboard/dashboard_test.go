package dashboard

import (
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// clocked is a history on a clock of its own.
func clocked() (h *History, counters map[string]Counters, step func()) {
	now := time.Unix(1_800_000_000, 0)
	counters = map[string]Counters{}
	h = NewHistory(func() time.Time { return now }, func() map[string]Counters {
		out := map[string]Counters{}
		for model, c := range counters {
			out[model] = c
		}
		return out
	})
	return h, counters, func() { h.Sample(); now = now.Add(Every) }
}

func TestRatesAreOfTheTimeBetweenSamples(t *testing.T) {
	h, counters, step := clocked()
	counters["m"] = Counters{InFlight: 1, Hits: 900, Queries: 1000, TTFTSum: 50, TTFTCount: 10}
	step()
	counters["m"] = Counters{InFlight: 3, Queued: 1.5, Hits: 930, Queries: 1100, TTFTSum: 51, TTFTCount: 14}
	counters["new"] = Counters{Hits: 5, Queries: 10}
	step()
	step()                                        // no request came
	counters["m"] = Counters{Hits: 1, Queries: 2} // a replica was restarted
	step()
	samples := h.Samples()
	if len(samples) != 4 {
		t.Fatalf("%d samples", len(samples))
	}
	if p := samples[0].Models["m"]; p.HitRate != nil || p.TTFT != nil || p.InFlight != 1 {
		t.Errorf("the first sample has rates: %+v", p)
	}
	p := samples[1].Models["m"]
	if p.HitRate == nil || *p.HitRate != 0.3 || p.TTFT == nil || *p.TTFT != 0.25 || p.InFlight != 3 || p.Queued != 1.5 {
		t.Errorf("%+v, want a hit rate of 0.3 and a TTFT of 0.25 s", p)
	}
	if p := samples[1].Models["new"]; p.HitRate != nil {
		t.Errorf("a new model has a rate: %v", *p.HitRate)
	}
	for _, i := range []int{2, 3} {
		if p := samples[i].Models["m"]; p.HitRate != nil || p.TTFT != nil {
			t.Errorf("sample %d has rates of nothing: %+v", i, p)
		}
	}
}

func TestAnHourIsKept(t *testing.T) {
	h, counters, step := clocked()
	n := int(Span / Every)
	for i := range n + 10 {
		counters["m"] = Counters{InFlight: i}
		step()
	}
	samples := h.Samples()
	if len(samples) != n || samples[0].Models["m"].InFlight != 10 || samples[n-1].Models["m"].InFlight != n+9 {
		t.Errorf("%d samples, from %+v to %+v", len(samples), samples[0], samples[len(samples)-1])
	}
	for i := range samples[1:] {
		if samples[i+1].At.Sub(samples[i].At) != Every {
			t.Fatalf("sample %d is %v after the one before", i+1, samples[i+1].At.Sub(samples[i].At))
		}
	}
}

func TestHistoryAsJSON(t *testing.T) {
	h, counters, step := clocked()
	counters["m"] = Counters{InFlight: 2}
	step()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/debug/history", nil))
	var answer struct {
		Every   float64 `json:"every_seconds"`
		Samples []Sample
	}
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || answer.Every != 5 || len(answer.Samples) != 1 || answer.Samples[0].Models["m"].InFlight != 2 {
		t.Errorf("%v, %s", err, w.Body)
	}
	if strings.Contains(w.Body.String(), "hit_rate") {
		t.Errorf("a rate of nothing: %s", w.Body)
	}
}

// TestPage: every file the page names is served, and nothing from elsewhere.
func TestPage(t *testing.T) {
	page := Page("/dashboard/")
	get := func(path string) (int, string, string) {
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		body, _ := io.ReadAll(w.Result().Body)
		return w.Code, string(body), w.Header().Get("Content-Security-Policy")
	}
	code, html, policy := get("/dashboard/")
	if code != 200 || !strings.Contains(html, "<title>warmroute</title>") || !strings.Contains(policy, "default-src 'none'") {
		t.Fatalf("%d %q %s", code, policy, html)
	}
	for _, file := range []string{"dashboard.js", "dashboard.css", "uPlot.iife.min.js", "uPlot.min.css"} {
		if !strings.Contains(html, `"`+file+`"`) {
			t.Errorf("the page does not name %s", file)
		}
		if code, body, _ := get("/dashboard/" + file); code != 200 || strings.Contains(body, "https://") && file[0] == 'd' {
			t.Errorf("%s: %d", file, code)
		}
	}
	if code, _, _ := get("/dashboard/../doc.go"); code == 200 {
		t.Error("a file outside the page is served")
	}
}
