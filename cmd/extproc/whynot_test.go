package main

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"warmroute/internal/decision"
	"warmroute/internal/decision/why"
	"warmroute/internal/testenv"
)

// whyNot asks a running router why requests would not be warmer.
type whyNot struct {
	t     *testing.T
	admin string
	sim   testenv.Simulator
}

// completionOf returns the body of a request for the completion of n tokens from a start on.
func completionOf(from, n int, more map[string]any) map[string]any {
	prompt := make([]int, n)
	for i := range prompt {
		prompt[i] = from + i
	}
	body := map[string]any{"model": "sim", "prompt": prompt, "max_tokens": 1}
	for k, v := range more {
		body[k] = v
	}
	return body
}

// serve has the replica serve a request.
func (w *whyNot) serve(body map[string]any) {
	w.t.Helper()
	testenv.Post(w.t, "http://"+w.sim.Addr+"/v1/completions", body).Into(w.t, nil)
}

func (w *whyNot) explain(body map[string]any) decision.Record {
	w.t.Helper()
	var answer struct{ Decision decision.Record }
	testenv.Post(w.t, "http://"+w.admin+"/debug/explain?path="+url.QueryEscape("/v1/completions"), body).Into(w.t, &answer)
	return answer.Decision
}

// until waits until the replica's line has a cause and a number of cached tokens.
func (w *whyNot) until(body map[string]any, cause why.Cause, cached int) why.End {
	w.t.Helper()
	var end why.End
	until(w.t, fmt.Sprintf("%s with %d tokens", cause, cached), func() bool {
		rec := w.explain(body)
		if len(rec.Candidates) != 1 || rec.Candidates[0].Why == nil {
			w.t.Fatalf("%+v", rec)
		}
		end = *rec.Candidates[0].Why
		return end.Cause == cause && end.Cached == cached
	})
	return end
}

// TestWhyNotMore: a running router and a simulated replica, and each thing that can happen
// to a prompt between them: explain tells which it was.
func TestWhyNotMore(t *testing.T) {
	sim := testenv.StartSimulator(t, "-blocks", "65", "-lora", "sql=/adapters/sql")
	r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: \"\"}\nfilter: {token_budget: 30s}\nfleet: {dead_after: 2m, replicas: [{address: %q}]}\n", sim.Addr))
	w := &whyNot{t, r.reloads.inForce().Admin.Listen, sim}

	w.until(completionOf(0, 10, nil), why.TooShort, 0)
	prompt := completionOf(1, 160, nil)
	if end := w.until(prompt, why.NeverStored, 0); end.Since.IsZero() || end.Left != 160 {
		t.Errorf("never stored: %+v", end)
	}
	w.serve(prompt)
	if end := w.until(prompt, why.Whole, 144); end.Left != 16 {
		t.Errorf("the whole prompt: %+v", end)
	}
	ids := prompt["prompt"].([]int)
	branch := completionOf(0, 0, map[string]any{"prompt": append(append([]int{}, ids[:100]...), 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7)})
	w.until(branch, why.Diverges, 96)

	elsewhere := func(body map[string]any) []why.Elsewhere { return w.explain(body).Why.Elsewhere }
	salted := completionOf(1, 160, map[string]any{"cache_salt": "s"})
	if got := elsewhere(salted); len(got) != 1 || got[0] != (why.Elsewhere{Place: why.Unsalted, More: 144}) {
		t.Errorf("with a salt: %+v", got)
	}
	if got := elsewhere(completionOf(1, 160, map[string]any{"model": "sql"})); len(got) != 1 || got[0] != (why.Elsewhere{Place: why.OtherAdapter, Model: "sim", More: 144}) {
		t.Errorf("of the adapter: %+v", got)
	}
	w.serve(salted)
	w.until(salted, why.Whole, 144)
	if got := elsewhere(completionOf(1, 160, map[string]any{"cache_salt": "t"})); len(got) != 1 || got[0].Place != why.Unsalted {
		t.Errorf("what another salt has is told: %+v", got)
	}

	for i := range 3 { // 64 blocks do not hold these too
		w.serve(completionOf(1000*(i+1), 480, nil))
	}
	if end := w.until(prompt, why.Evicted, 0); end.At.IsZero() || !strings.Contains(end.Text, "the first block was evicted at") {
		t.Errorf("evicted: %+v", end)
	}

	w.serve(prompt)
	w.until(prompt, why.Whole, 144)
	testenv.Post(w.t, "http://"+sim.Addr+"/reset_prefix_cache", nil).Into(w.t, nil)
	w.serve(completionOf(9000, 32, nil)) // vLLM publishes the event with the next step's
	if end := w.until(prompt, why.Cleared, 0); end.At.IsZero() {
		t.Errorf("cleared: %+v", end)
	}

	w.serve(prompt)
	w.until(prompt, why.Whole, 144)
	sim.Stop()
	w.sim = testenv.StartSimulator(t, "-listen", sim.Addr, "-events", sim.Events, "-replay", sim.Replay, "-blocks", "65", "-lora", "sql=/adapters/sql")
	if end := w.until(prompt, why.Restarted, 0); end.At.IsZero() {
		t.Errorf("restarted: %+v", end)
	}

	rec := w.explain(completionOf(1, 160, map[string]any{"model": "gpt-9"}))
	if rec.Reason != decision.ReasonUnknownModel || rec.Asked != "gpt-9" || rec.Why.Text != `no replica serves or served "gpt-9"; served are sim, sql` {
		t.Errorf("an unknown model: %s, %+v", rec.Reason, rec.Why)
	}
}

// TestWhyNotReady: a router whose replica never answers says which it is, and why.
func TestWhyNotReady(t *testing.T) {
	nobody := testenv.Addresses(t, 1)[0]
	r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: \"\"}\nfleet: {replicas: [{address: %q}]}\n", nobody))
	w := &whyNot{t: t, admin: r.reloads.inForce().Admin.Listen}
	rec := w.explain(completionOf(1, 160, nil))
	want := fmt.Sprintf(`no replica of "sim" is ready; %s: unreachable`, nobody)
	if rec.Reason != decision.ReasonNotReady || !strings.HasPrefix(rec.Why.Text, want) || rec.Why.Do != decision.ReasonNotReady.Do() {
		t.Errorf("%s: %+v\nwant %s", rec.Reason, rec.Why, want)
	}
}
