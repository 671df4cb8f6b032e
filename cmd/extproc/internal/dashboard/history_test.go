package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
)

// clocked is a history on a clock of its own; step takes a sample of what reading holds.
func clocked() (h *History, reading *Reading, step func() Sample) {
	now := time.Unix(1_800_000_000, 0)
	reading = &Reading{}
	h = NewHistory(func() time.Time { return now }, func() Reading { return *reading })
	return h, reading, func() Sample {
		h.Sample()
		now = now.Add(Every)
		all := h.After(0).Samples
		return all[len(all)-1]
	}
}

// counted is a rank that has looked up and found tokens.
func counted(model, replica string, hits, prompt float64) Rank {
	return Rank{Model: model, Replica: replica, Counted: true, Counters: Counters{Hits: hits, Prompt: prompt}}
}

// TestSumsOfRanks: what was counted between two samples is the sum over the ranks that were
// there at both; a replica that restarts or comes adds nothing, and takes nothing away from
// what the others have counted.
func TestSumsOfRanks(t *testing.T) {
	_, r, step := clocked()
	for i, c := range []struct {
		ranks        []Rank
		hits, prompt float64
	}{
		{[]Rank{counted("m", "a", 900, 1000), counted("m", "b", 50, 100)}, 0, 0}, // the first readings are of years
		{[]Rank{counted("m", "a", 930, 1100), counted("m", "b", 60, 200)}, 40, 200},
		{[]Rank{counted("m", "a", 930, 1100), counted("m", "b", 60, 200)}, 0, 0},
		{[]Rank{counted("m", "a", 5, 10), counted("m", "b", 80, 300)}, 20, 100},                                       // a has restarted
		{[]Rank{counted("m", "a", 6, 20), counted("m", "c", 1e6, 2e6)}, 1, 10},                                        // b has left, c came
		{[]Rank{counted("m", "a", 7, 30), {Model: "m", Replica: "c"}}, 1, 10},                                         // c is dead
		{[]Rank{counted("m", "a", 7, 30), counted("m", "c", 2e6, 3e6)}, 0, 0},                                         // and back
		{[]Rank{counted("m", "a", 8, 40), {Model: "m", Replica: "c", Joined: 9, Counted: true}}, 1, 10},               // another at its address
		{[]Rank{counted("m", "a", 8, 40), counted("m", "c", 2e6, 3e6)}, 0, 0},                                         // which the first one's counters
		{[]Rank{{Model: "m", Replica: "a", InFlight: 2, Queued: 0.5}, {Model: "m", Replica: "c", InFlight: 1}}, 0, 0}, // no counters
	} {
		r.Ranks = c.ranks
		if p := step().Models["m"]; p.Hits != c.hits || p.Prompt != c.prompt || i == 9 && (p.InFlight != 3 || p.Queued != 0.5) {
			t.Errorf("sample %d: %+v, want %v of %v", i+1, p, c.hits, c.prompt)
		}
	}
}

// TestFirstReadings: the first reading of a process counts if the process is younger than the
// history, than the replica before it, or than the last sample without it. An older process
// that comes, or comes back, adds nothing.
func TestFirstReadings(t *testing.T) {
	h, r, step := clocked()
	began := func(replica string, after time.Duration, prompt float64) Rank {
		k := counted("m", replica, 0, prompt)
		k.Began, k.Joined = h.since.Add(after), uint64(after/time.Second+100)
		return k
	}
	down := Rank{Model: "m", Replica: "a"}
	for i, c := range []struct {
		ranks  []Rank // at 0 s, 5 s, and so on
		prompt float64
	}{
		{[]Rank{began("old", -time.Hour, 1e6), down}, 0},
		{[]Rank{began("old", -time.Hour, 1e6), began("a", time.Second, 30)}, 30},
		{[]Rank{began("a", time.Second, 40)}, 10},
		{[]Rank{began("old", -time.Hour, 2e6), began("a", time.Second, 40)}, 0},
		{[]Rank{began("old", -time.Hour, 2e6), down}, 0},
		{[]Rank{began("old", -time.Hour, 2e6), began("a", 21*time.Second, 7)}, 7}, // another process
		{[]Rank{began("a", 21*time.Second, 7), began("new", 26*time.Second, 5)}, 5},
		{[]Rank{began("a", 21*time.Second, 7)}, 0},
		{[]Rank{began("a", 21*time.Second, 7), began("new", 26*time.Second, 9)}, 0}, // it was away, and may have been counted
	} {
		r.Ranks = c.ranks
		if p := step().Models["m"]; p.Prompt != c.prompt {
			t.Errorf("sample %d: %v prompt tokens, want %v", i+1, p.Prompt, c.prompt)
		}
	}
}

// TestTimesAndDecisions: times, buckets and decisions are of the time between two samples.
func TestTimesAndDecisions(t *testing.T) {
	_, r, step := clocked()
	k := counted("m", "a", 0, 0)
	k.FirstTokens[3], k.TTFT = 7, fleet.Spent{Seconds: 70, Requests: 7}
	decided := func(warm, cold int64) Decisions {
		return Decisions{decision.ClassWarm: warm, decision.ClassCold: cold}
	}
	r.Ranks, r.Router = []Rank{k}, fleet.Spent{Seconds: 5, Requests: 1000}
	r.Decided = map[string]Decisions{"m": decided(100, 50), "": {}}
	if s := step(); s.Router != (fleet.Spent{}) || s.Models["m"].Decisions != nil || len(s.Models["m"].FirstTokens) > 0 {
		t.Errorf("the first sample has %+v", s)
	}
	k.FirstTokens[3], k.FirstTokens[5] = 8, 2
	k.TTFT, k.Queue, k.Prefill, k.Decode = fleet.Spent{Seconds: 73, Requests: 10}, fleet.Spent{Seconds: 1, Requests: 3}, fleet.Spent{Seconds: 2, Requests: 3}, fleet.Spent{Seconds: 9, Requests: 3}
	r.Ranks, r.Router = []Rank{k}, fleet.Spent{Seconds: 6, Requests: 1004}
	r.Decided = map[string]Decisions{"m": decided(103, 50), "new": decided(0, 4), "": {decision.ClassFailed: 2}}
	want := Point{
		TTFT: fleet.Spent{Seconds: 3, Requests: 3}, FirstTokens: []float64{0, 0, 0, 1, 0, 2},
		Queue: fleet.Spent{Seconds: 1, Requests: 3}, Prefill: fleet.Spent{Seconds: 2, Requests: 3}, Decode: fleet.Spent{Seconds: 9, Requests: 3},
		Decisions: Decisions{decision.ClassWarm: 3},
	}
	s := step()
	if !reflect.DeepEqual(s.Models["m"], want) || s.Router != (fleet.Spent{Seconds: 1, Requests: 4}) {
		t.Errorf("%+v\nwant %+v", s, want)
	}
	if s.Models["new"].Decisions[decision.ClassCold] != 4 || s.Models[""].Decisions[decision.ClassFailed] != 2 {
		t.Errorf("%+v", s.Models)
	}
}

// TestTotals: tokens and seconds saved are of the time since the start of the history, not of
// the replicas.
func TestTotals(t *testing.T) {
	h, r, step := clocked()
	k := counted("m", "a", 1e9, 2e9)
	k.Prefill = fleet.Spent{Seconds: 1e6, Requests: 1e6}
	r.Ranks = []Rank{k}
	step()
	if total := h.After(0).Totals["m"]; total.Hits != 0 || total.Saved != nil {
		t.Errorf("at the start: %+v", total)
	}
	k.Hits, k.Prompt, k.Prefill.Seconds = k.Hits+300, k.Prompt+400, k.Prefill.Seconds+2 // 100 tokens in 2 s
	r.Ranks = []Rank{k}
	step()
	step()
	if total := h.After(0).Totals["m"]; total.Hits != 300 || total.Prompt != 400 || total.Saved == nil || *total.Saved != 6 {
		t.Errorf("%+v, want 6 s saved", total)
	}
	if since := h.After(0).Since; since.Unix() != 1_800_000_000 {
		t.Errorf("since %v", since)
	}
}

// TestModelsAreBounded: models beyond the limit have one point together.
func TestModelsAreBounded(t *testing.T) {
	h, r, step := clocked()
	for round := range 3 {
		r.Ranks, r.Decided = nil, map[string]Decisions{}
		for i := range 3 * mostModels {
			name := fmt.Sprintf("m%03d", i)
			r.Ranks = append(r.Ranks, counted(name, name, float64(round), float64(10*round)))
			r.Decided[name] = Decisions{decision.ClassWarm: int64(round)}
		}
		s := step()
		if len(s.Models) != mostModels+1 || round > 0 && (s.Models[""].Hits != 2*mostModels || s.Models[""].Decisions[decision.ClassWarm] != 2*mostModels || s.Models["m000"].Hits != 1) {
			t.Fatalf("%d models; %+v", len(s.Models), s.Models[""])
		}
	}
	for i := range 3 * mostModels { // a fleet whose models change
		name := fmt.Sprintf("n%03d", i)
		r.Ranks, r.Decided = []Rank{counted(name, name, 0, 0)}, nil
		step()
	}
	if n := len(h.After(0).Totals); n != mostModels+1 {
		t.Errorf("%d models have totals", n)
	}
}

func TestAnHourIsKept(t *testing.T) {
	h, r, step := clocked()
	n := int(Span / Every)
	for i := range n + 10 {
		r.Ranks = []Rank{{Model: "m", InFlight: i}}
		step()
	}
	samples := h.After(0).Samples
	if len(samples) != n || samples[0].Models["m"].InFlight != 10 || samples[n-1].Models["m"].InFlight != n+9 {
		t.Errorf("%d samples, from %+v to %+v", len(samples), samples[0], samples[len(samples)-1])
	}
	for i := range samples[1:] {
		if samples[i+1].At.Sub(samples[i].At) != Every || samples[i+1].Number != samples[i].Number+1 {
			t.Fatalf("sample %d is %v after the one before", i+1, samples[i+1].At.Sub(samples[i].At))
		}
	}
	for after, want := range map[uint64]int{0: n, 10: n, 11: n - 1, uint64(n + 9): 1, uint64(n + 10): 0, uint64(n + 11): n} {
		if got := h.After(after).Samples; len(got) != want || want > 0 && got[want-1].Number != uint64(n+10) {
			t.Errorf("after %d: %d samples, want %d", after, len(got), want)
		}
	}
}

func TestHistoryAsJSON(t *testing.T) {
	h, r, step := clocked()
	r.Ranks = []Rank{{Model: "m", InFlight: 2}}
	step()
	step()
	get := func(query string) (int, string) {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/debug/history"+query, nil))
		return w.Code, w.Body.String()
	}
	code, text := get("?after=1")
	var answer Excerpt
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != 200 || answer.Every != 5 || len(answer.Samples) != 1 || answer.Samples[0].Models["m"].InFlight != 2 {
		t.Errorf("%v, %s", err, text)
	}
	if answer.Classes[decision.ReasonLearned] != decision.ClassWarm || len(answer.Bounds) != len(fleet.FirstTokenBounds) || answer.Now.Sub(answer.Since) != 2*Every {
		t.Errorf("%+v", answer)
	}
	if strings.Contains(text, "first_tokens\"") || strings.Contains(text, "decisions") || strings.Contains(text, "saved") {
		t.Errorf("numbers of nothing: %s", text)
	}
	if code, _ := get("?after=-1"); code != 400 {
		t.Errorf("after=-1: %d", code)
	}
}

// TestSplitsBetweenSamples: a sample has what rose since the one before, and nothing of it where
// no request might have been split.
func TestSplitsBetweenSamples(t *testing.T) {
	_, r, step := clocked()
	r.Splits = decision.Splits{Reasons: map[decision.SplitReason]uint64{decision.SplitDone: 7}, Moved: 900}
	if s := step(); s.Splits != nil {
		t.Errorf("the first reading may be of years: %+v", s.Splits)
	}
	if s := step(); s.Splits != nil {
		t.Errorf("nothing rose: %+v", s.Splits)
	}
	r.Splits = decision.Splits{Reasons: map[decision.SplitReason]uint64{decision.SplitDone: 9, decision.SplitLocalIdle: 1}, Moved: 1000, Move: fleet.Spent{Seconds: 3, Requests: 2}}
	want := &Splits{Reasons: map[decision.SplitReason]uint64{decision.SplitDone: 2, decision.SplitLocalIdle: 1}, Moved: 100, Move: fleet.Spent{Seconds: 3, Requests: 2}}
	if s := step(); !reflect.DeepEqual(s.Splits, want) {
		t.Errorf("%+v, want %+v", s.Splits, want)
	}
}
