package main

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// TestFailuresInTheAccessLog: the log's ends count for all ranks of the replica that failed or
// answered; what clients cause counts for nobody.
func TestFailuresInTheAccessLog(t *testing.T) {
	const one, two = "10.0.0.1:8000", "10.0.0.2:8000"
	o := silentRouter(t, defaultConfig(), prometheus.NewRegistry()).outcomes
	l := o.replicas.ledger
	s := decisiontest.NewFleet(&fleet.Replica{Addr: one, Ranks: []int{0, 1}}, &fleet.Replica{Addr: two, Ranks: []int{0}}).Snapshot()
	at := []*load.Account{l.Of(index.Holder{Replica: one}), l.Of(index.Holder{Replica: one, Rank: 1}), l.Of(index.Holder{Replica: two})}
	for _, step := range []struct {
		what string
		a    outcome.Answer
		want [3]int // failures in a row
	}{
		{"a failure", outcome.Answer{Replica: one, Failure: outcome.Failure{Failed: one}, Status: 500}, [3]int{1, 1, 0}},
		{"a client's error", outcome.Answer{Replica: one, Status: 400}, [3]int{1, 1, 0}},
		{"a client that left", outcome.Answer{}, [3]int{1, 1, 0}},
		{"a retry", outcome.Answer{Hint: two + "," + one, Replica: one, Failure: outcome.Failure{PassedOver: true}, Status: 400}, [3]int{1, 1, 1}},
		{"an answer", outcome.Answer{Replica: one, Status: 200}, [3]int{0, 0, 1}},
		{"a stranger", outcome.Answer{Failure: outcome.Failure{Failed: "10.9.9.9:1"}}, [3]int{0, 0, 1}},
		{"an answer that broke off", outcome.Answer{Replica: one, Failure: outcome.Failure{Failed: one}, Status: 200}, [3]int{1, 1, 1}},
	} {
		o.learnHealth(s, &step.a)
		if got := [3]int{at[0].Failures(), at[1].Failures(), at[2].Failures()}; got != step.want {
			t.Errorf("%s: failures %v, want %v", step.what, got, step.want)
		}
		if down, want := at[1].Down(time.Now()), step.what == "an answer that broke off"; down != want {
			t.Errorf("%s: it counts as down %v, want %v", step.what, down, want)
		}
	}
}

// TestUsageIsDrawn: as many numbers as the percentage says, and the same ones again.
func TestUsageIsDrawn(t *testing.T) {
	const numbers = 100_000
	var u usageShare
	for _, percent := range []int{0, 1, 10, 100} {
		u.Set(percent)
		n, both := 0, 0
		for seq := range uint64(numbers) {
			if !u.draws(seq) {
				continue
			}
			if n++; u.draws(seq + 1) {
				both++
			}
		}
		want, pairs := numbers*percent/100, numbers*percent*percent/10_000
		if n < want*9/10 || n > want*11/10 || both < pairs*7/10 || both > pairs*13/10+10 {
			t.Errorf("%d percent: %d drawn of %d, %d of them before another", percent, n, numbers, both)
		}
	}
}

// TestNoUsageIsAskedForWithoutAShare: not even of a replica that is new and whose answer tells
// something, of which it is with any share.
func TestNoUsageIsAskedForWithoutAShare(t *testing.T) {
	r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
	for percent, want := range map[int]int{0: 0, 1: 100} {
		r.outcomes.usage.Set(percent)
		asked := 0
		for seq := range uint64(100) {
			if r.outcomes.wantsUsage(seq, "10.0.0.1:8000", true) {
				asked++
			}
		}
		if asked != want {
			t.Errorf("usage_share %d: %d of 100 answers are asked for their usage, want %d", percent, asked, want)
		}
	}
}

// TestWhoseAnswersTeach: the predicted replica's are compared with the prediction. Others' are
// not; neither is what the predicted one took from its cache of a prompt that another one has
// computed for it, and the record has no such number. The trace file has the times of all.
func TestWhoseAnswersTeach(t *testing.T) {
	const one, two = "127.0.0.1:1", "127.0.0.1:2" // where nothing answers
	c, reg := defaultConfig(), prometheus.NewRegistry()
	c.Fleet.Replicas = []fleet.ReplicaOptions{{Address: one}, {Address: two}}
	c.Filter.TraceFile = filepath.Join(t.TempDir(), "trace.jsonl")
	r := silentRouter(t, c, reg)
	testenv.Run(t, r.replicas.fleet.Run)
	until(t, "the replicas have joined", func() bool { return len(r.replicas.fleet.Snapshot().Replicas) == 2 })
	for _, tt := range []struct {
		what              string
		a                 outcome.Answer
		cached            bool // in the record
		compared, lengths int  // answers
	}{
		{"another replica's", outcome.Answer{Hint: one, Replica: two}, true, 0, 0},
		{"the second choice's", outcome.Answer{Hint: one + "," + two, Replica: two}, true, 0, 0},
		{"without a hint", outcome.Answer{Replica: one}, true, 0, 0},
		{"of a split", outcome.Answer{Hint: one, Replica: one, Prefill: two}, false, 0, 1},
		{"the predicted one's", outcome.Answer{Hint: one, Replica: one}, true, 1, 2},
	} {
		a := tt.a
		a.Decision, a.RequestID = r.decisions.ring.Put(&decision.Record{Subject: decision.Subject{ID: tt.what}}), tt.what
		a.Status, a.Prompt, a.Reported, a.FirstByte, a.Duration = 200, 100, 64, 30*time.Millisecond, 90*time.Millisecond
		a.Usage = outcome.Usage{State: outcome.UsageComplete, Prompt: 101, Cached: 64}
		r.outcomes.learn(&a)
		kept := r.decisions.ring.Last(1, nil)[0].Answered
		if kept == nil || kept.Served != a.Replica || kept.ActualPrompt != 101 || kept.FirstByte != 0.03 || (kept.ActualCached != nil) != tt.cached || tt.cached && *kept.ActualCached != 64 {
			t.Errorf("%s: the record has %+v", tt.what, kept)
		}
		compared := gathered(t, reg, "warmroute_prediction_difference_tokens", func(m *dto.Metric) float64 { return float64(m.GetHistogram().GetSampleCount()) })
		lengths := gathered(t, reg, "warmroute_prompt_length_differs_total", func(m *dto.Metric) float64 { return m.GetCounter().GetValue() })
		if compared != tt.compared || lengths != tt.lengths {
			t.Errorf("%s: until now %d answers are compared, %d lengths differ; want %d and %d", tt.what, compared, lengths, tt.compared, tt.lengths)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	must.Do(t, r.outcomes.requests.Run(ended))
	if text, err := os.ReadFile(c.Filter.TraceFile); strings.Count(string(text), `"first_us":30000,"took_us":90000`) != 5 {
		t.Errorf("the trace file has %s, %v", text, err)
	}
}

// TestPromptsThatNobodyComputedAreForgotten: the access log tells of prompts that were refused, or whose
// clients left before the answer could begin: the history of a replica without events does not have them.
func TestPromptsThatNobodyComputedAreForgotten(t *testing.T) {
	silent := decisiontest.Replica(1)
	silent.Events = nil
	for what, a := range map[string]*outcome.Answer{"answered": {Replica: silent.Addr, Status: 200}, "refused": {Replica: silent.Addr, Status: 401}, "left": {GaveUp: 1}} {
		r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
		r.decisions.decider = decision.New(decisiontest.NewFleet(silent), r.replicas.index, r.replicas.ledger, r.decisions.book, decision.Options{})
		ask := func(dry bool) decision.Record {
			w, text := new(decision.Work), make([]prefixhash.Key, 60)
			for i := range text {
				text[i] = prefixhash.Key(i + 1)
			}
			d := r.decisions.decider.Decide(&decision.Ask{Model: "m", Text: text, TextTokens: len(text) * prefixhash.TextUnit, Dry: dry}, w)
			if d.Reservation != nil {
				d.Reservation.Answered(http.StatusOK) // all that is known without the log
				d.Reservation.Release()
			}
			return w.Record
		}
		rec := ask(false)
		rec.ID, a.RequestID = what, what
		a.Decision = r.decisions.ring.Put(&rec)
		r.outcomes.learn(a)
		if n := ask(true).Candidates[0].State.Match.Matched(); (n > 0) != (a.Status == 200) {
			t.Errorf("%s: the history has %d tokens", what, n)
		}
	}
}

// canned answers requests to replicas, by path.
type canned func(path string) (status int, body string)

func (a canned) RoundTrip(req *http.Request) (*http.Response, error) {
	status, body := a(req.URL.Path)
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: req, Header: http.Header{}}, nil
}

// TestFailuresOfOtherFilters: while the access log tells that no replica answered, the 5xx that streams
// show are no failures of the replica that the hint named.
func TestFailuresOfOtherFilters(t *testing.T) {
	at := index.Holder{Replica: "10.0.0.1:1"}
	for _, logs := range []bool{true, false} {
		r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
		account := r.replicas.ledger.Of(at)
		for range 20 {
			var c load.Charge
			r.replicas.ledger.Lock()
			c.Put(account, load.Terms{})
			r.replicas.ledger.Unlock()
			c.Release()
			c.RecordEnd(http.StatusServiceUnavailable, false)
			if logs {
				r.outcomes.learn(&outcome.Answer{Hint: at.Replica, Status: http.StatusServiceUnavailable})
			}
		}
		if n := account.Failures(); logs != (n == 0) {
			t.Errorf("the access log tells: %v, %d failures of the replica", logs, n)
		}
	}
}

// TestNotFoundHasTheReplicaRead: an answer 404 to a decided request has the replica read again before
// its time; other answers do not.
func TestNotFoundHasTheReplicaRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const replica = "127.0.0.1:1"
		var reads atomic.Int64
		c := defaultConfig()
		c.Fleet.Replicas = []fleet.ReplicaOptions{{Address: replica, NoEvents: true}}
		c.Fleet.Transport = canned(func(path string) (int, string) {
			switch path {
			case "/version":
				reads.Add(1)
			case "/v1/models":
				return http.StatusOK, `{"data":[{"id":"m","root":"/m"}]}`
			}
			return http.StatusNotFound, ""
		})
		r := silentRouter(t, c, prometheus.NewRegistry())
		testenv.Run(t, r.replicas.Run)
		time.Sleep(10 * time.Second)
		for _, tt := range []struct {
			a    outcome.Answer
			read bool
		}{{outcome.Answer{Decision: 1, Status: 200}, false}, {outcome.Answer{Status: 404}, false}, {outcome.Answer{Decision: 1, Status: 404}, true}} {
			tt.a.Replica = replica
			before := reads.Load()
			r.outcomes.learn(&tt.a)
			time.Sleep(time.Millisecond)
			if read := reads.Load() > before; read != tt.read {
				t.Errorf("decision %d, status %d: read again %v", tt.a.Decision, tt.a.Status, read)
			}
		}
	})
}

// gathered returns the sum of a metric's series.
func gathered(t *testing.T, reg *prometheus.Registry, name string, of func(*dto.Metric) float64) int {
	t.Helper()
	all := must.Get(reg.Gather())(t)
	sum := 0.0
	for _, family := range all {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += of(m)
			}
		}
	}
	return int(sum)
}

// silentRouter is a router that logs nothing.
func silentRouter(t *testing.T, c Config, reg *prometheus.Registry) *router {
	t.Helper()
	return must.Get(newRouter(c, slog.New(slog.DiscardHandler), reg))(t)
}

// TestUnableReplicasAreNoted: those that are passed over, and those that choose ranks themselves,
// one of them because the access log tells of its refusal.
func TestUnableReplicasAreNoted(t *testing.T) {
	refuses := &fleet.Replica{Addr: "10.0.0.1:1", Ready: true, Ranks: []int{0, 1}}
	s := fleet.NewSnapshot(refuses,
		&fleet.Replica{Addr: "10.0.0.2:1", Ready: true, Ranks: []int{0, 1}},
		&fleet.Replica{Addr: "10.0.0.3:1", Ready: true, Ranks: []int{2, 3}, FirstRank: -1},
		&fleet.Replica{Addr: "10.0.0.4:1", Held: true, Why: "asleep: it is", Ranks: []int{0}},
		&fleet.Replica{Addr: "10.0.0.5:1", Why: "unreachable: it is"})
	r := silentRouter(t, defaultConfig(), prometheus.NewRegistry())
	r.decisions.decider = decision.New(snapshotOf{s}, r.replicas.index, r.replicas.ledger, r.decisions.book, decision.Options{})
	for _, a := range []outcome.Answer{
		{Replica: "10.0.0.2:1", Rank: "1", Status: 400, Told: true}, {Replica: "10.0.0.2:1", Status: 400}, {Replica: "10.0.0.2:1", Rank: "1", Status: 200},
		{Replica: refuses.Addr, Rank: "1", Status: 400},
	} {
		r.outcomes.learn(&a)
	}
	fails := r.replicas.ledger.Of(index.Holder{Replica: "10.0.0.2:1", Rank: 1})
	for range 2 {
		fails.Logged(true)
	}
	before := strings.Join(r.decisions.unableReplicas(s), "\n")
	fails.Logged(true)
	got := strings.Join(r.decisions.unableReplicas(s), "\n")
	fails.Logged(false)
	if after := strings.Join(r.decisions.unableReplicas(s), "\n"); before != after || after == got {
		t.Errorf("before the third failure:\n%s\nafter an answer:\n%s", before, after)
	}
	want := "replica 10.0.0.1:1 gets no x-data-parallel-rank: it has refused one, or does not say how it counts ranks\n" +
		"replica 10.0.0.2:1 is a last resort: its last 3 requests have failed, by a status of 5xx or a broken connection\n" +
		"replica 10.0.0.3:1 gets no x-data-parallel-rank: it has refused one, or does not say how it counts ranks\n" +
		"replica 10.0.0.4:1 is passed over: asleep: it is"
	if got != want {
		t.Errorf("notes:\n%s\nwant\n%s", got, want)
	}
}

// TestUnservedNames: settings of models that no replica serves or served are named, once all have
// said what they serve.
func TestUnservedNames(t *testing.T) {
	c := defaultConfig()
	c.Policy.Models = map[string]policy.Overrides{"m": {}, "ad": {}, "typo": {}, "away": {}}
	r := silentRouter(t, c, prometheus.NewRegistry())
	serves := func(addr string, models ...string) *fleet.Replica {
		rep := &fleet.Replica{Addr: addr, Ready: true}
		for _, m := range models {
			rep.Models = append(rep.Models, fleet.Model{ID: m, Base: models[0]})
		}
		return rep
	}
	s := fleet.NewSnapshot(serves("10.0.0.1:1", "ad", "m"), serves("10.0.0.2:1", "away"))
	got := r.decisions.unservedNames(s, []ModelConfig{{ID: "m"}, {ID: "mistral"}})
	want := []string{`policy.models: no replica serves or served "typo", so that its policy has no effect: look at the name`,
		`tokens.models: no replica serves or served "mistral", so that its tokenizer has no effect: look at the name`}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	for _, s := range []*fleet.Snapshot{fleet.NewSnapshot(), fleet.NewSnapshot(serves("10.0.0.1:1", "m"), serves("10.0.0.2:1"))} {
		if got := r.decisions.unservedNames(s, nil); got != nil {
			t.Errorf("%q where it is not known what replicas serve", got)
		}
	}
}

// snapshotOf is a fleet that does not change.
type snapshotOf struct{ s *fleet.Snapshot }

func (f snapshotOf) Snapshot() *fleet.Snapshot { return f.s }
