package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/cmd/extproc/internal/outcome"
	"warmroute/filter"
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/testenv"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestAReplicaThatDoesNotHitIsSaidOnce: from fleet snapshots and counters to the
// log, over virtual minutes; a replica whose metrics were never read is not
// judged.
func TestAReplicaThatDoesNotHitIsSaidOnce(t *testing.T) {
	var log bytes.Buffer
	r := must.Get(newRouter(defaultConfig(), slog.New(slog.NewTextHandler(&log, nil)), prometheus.NewRegistry()))(t)
	predicted := int64(0)
	now := time.Unix(1_700_000_000, 0)
	for minute := range 20 {
		honest := fleet.Load{PrefixHits: float64(predicted) / 2, PrefixQueries: float64(predicted)}
		s := fleet.NewSnapshot(
			&fleet.Replica{Addr: "10.0.0.1:8000", Joined: 1, Load: []fleet.Load{honest, honest}},
			&fleet.Replica{Addr: "10.0.0.2:8000", Joined: 1, Load: []fleet.Load{{PrefixHits: float64(minute), PrefixQueries: float64(2 * predicted)}}},
			&fleet.Replica{Addr: "10.0.0.3:8000", Joined: 1},
		)
		claims := load.Claims{Tokens: predicted}
		r.outcomes.judge(now, s, map[string]load.Claims{"10.0.0.1:8000": claims, "10.0.0.2:8000": claims, "10.0.0.3:8000": claims})
		now, predicted = now.Add(time.Minute), predicted+100_000
	}
	if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), "replica=10.0.0.2:8000") {
		t.Errorf("%d warnings:\n%s", n, log.String())
	}
	if v := r.outcomes.watch.State("10.0.0.1:8000"); !v.Complete || v.Flagged {
		t.Errorf("the honest replica: %+v", v)
	}
}

// TestConstructedPromptsMakeNoReplicaSuspect: that prompts with one first block are not found, and
// those of another are, raises no suspicion, whichever of the replica's two parts has counted them;
// that those of many are not found does, unless another replica has computed them.
func TestConstructedPromptsMakeNoReplicaSuspect(t *testing.T) {
	sim := testenv.StartSimulator(t)
	const split = "an answer whose prompt another replica has computed"
	answer := func(prefill string) func(r *router, d *decision.Decision, id string, cached int) {
		return func(r *router, d *decision.Decision, id string, cached int) {
			r.outcomes.learn(&outcome.Answer{
				RequestID: id, Hint: sim.Addr, Replica: sim.Addr, Status: 200, Prefill: prefill,
				Decision: d.Seq, Prediction: outcome.Prediction{Prompt: 100, Reported: 64},
				Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: 100, Cached: cached},
			})
		}
	}
	for part, learns := range map[string]func(r *router, d *decision.Decision, id string, cached int){
		"an answer": answer(""), split: answer("10.0.0.2:8000"),
		"a prefill": func(r *router, d *decision.Decision, id string, cached int) {
			r.outcomes.learnPrefill(&filter.Prefilled{Replica: sim.Addr, Decision: d.Seq, ID: id, Prompt: 100, Reported: 64, Counted: 100, Cached: cached})
		},
	} {
		for heads, suspect := range map[int]bool{1: false, 20: true} {
			r, _ := startRouter(t, fmt.Sprintf("fleet: {replicas: [{address: %q}]}\n", sim.Addr))
			r.outcomes.judge(time.Now(), r.replicas.fleet.Snapshot(), nil) // the replica is known
			sent := 0
			tell := func(head, cached int) {
				sent++
				ids, id := []string{strconv.Itoa(head)}, strconv.Itoa(sent)
				for n := range 99 {
					ids = append(ids, strconv.Itoa(n))
				}
				d := r.envoys.filter.Route(t.Context(), &filter.Query{ID: id, Route: openai.Completions, Body: fmt.Appendf(nil, `{"model":"sim","prompt":[%s]}`, strings.Join(ids, ","))})
				if d.Chosen == "" {
					t.Fatalf("no hint: %s", d.Reason)
				}
				learns(r, &d, id, cached)
				d.Reservation.Release()
			}
			for range 4 {
				tell(1, 64)
			}
			for n := range 40 {
				tell(1000+n%heads, 0)
			}
			if got := r.outcomes.watch.State(sim.Addr).Flagged; got != (suspect && part != split) {
				t.Errorf("%s: suspect %v where prompts of %d first blocks are not found", part, got, heads)
			}
		}
	}
}

// TestDisprovedBlocksLeaveTheIndex: what a replica's answers do not find again and again is no block
// of it any more.
func TestDisprovedBlocksLeaveTheIndex(t *testing.T) {
	sim := testenv.StartSimulator(t)
	r, _ := startRouter(t, fmt.Sprintf("envoy: {usage_share: 100}\nfleet: {replicas: [{address: %q}]}\n", sim.Addr))
	r.outcomes.judge(time.Now(), r.replicas.fleet.Snapshot(), nil) // the replica is known
	prompt := make([]uint32, 100)
	complete(t, sim.Addr, prompt)
	blocks := func() int { return r.replicas.index.Holdings(index.Holder{Replica: sim.Addr}) }
	until(t, "its events have told of the prompt", func() bool { return blocks() == 6 })
	body := must.Get(json.Marshal(map[string]any{"model": "sim", "prompt": prompt}))(t)
	sent := 0
	for ; blocks() == 6 && sent < 20; sent++ {
		id := strconv.Itoa(sent)
		d := r.envoys.filter.Route(t.Context(), &filter.Query{ID: id, Route: openai.Completions, Body: body})
		d.Reservation.Answered(200)
		d.Reservation.Release()
		r.outcomes.learn(&outcome.Answer{
			RequestID: id, Hint: sim.Addr, Replica: sim.Addr, Status: 200, Decision: d.Seq,
			Prediction: outcome.Prediction{Prompt: 100, Predicted: 96, Reported: 96}, Usage: outcome.Usage{State: outcome.UsageComplete, Prompt: 100},
		})
	}
	if blocks() != 0 || sent != 10 {
		t.Errorf("%d blocks after %d answers that found none, want 0 after 10", blocks(), sent)
	}
}
