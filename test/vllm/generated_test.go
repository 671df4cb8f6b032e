//go:build vllm

package vllm

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/render"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/must"
)

// generatedRequests is how many requests are generated for a version. 0.21 has no
// /render for responses and messages, and unusual requests of these routes end
// its server: there everyRoute sends plain ones, and more of the others are made.
func (f *fixture) generatedRequests() int {
	if f.name == "0.21.0" {
		return 190
	}
	return 115
}

// generated sends requests of all routes: ids computed in process equal /render's on all
// of them, predictions equal vLLM's counts for all requests that it computes, and nearly
// all text requests are served in process. A request that vLLM refuses (a tool choice
// whose schema it cannot compile) has no count to compare with.
func (f *fixture) generated(t *testing.T) {
	f.awaitTrust(t)
	model := must.Get(render.Open(t.Context(), f.folder, render.Flags{Transformers: f.transformers(), ResponsesToolFields: f.toolFields(), MaxLen: 4000}))(t)
	requests := must.Get(model.Server(t.Context(), f.name, nil))(t)
	before := f.tokenSources(t)
	equal, left, sent, refused := 0, 0, 0, 0
	for _, c := range chattest.Generate(20261121, f.generatedRequests(), served) {
		answer, err := chattest.Ask(context.Background(), http.DefaultClient, "http://"+f.replicas[0].Addr, c)
		rendered := err == nil && answer.Status == 0
		ids, ours := requests.Tokenize(c.Route.String(), []byte(c.Body))
		switch {
		case rendered && ours == nil && !slices.EqualFunc(ids, answer.IDs, slices.Equal):
			t.Errorf("ids differ from /render's: %s %s", c.Route, c.Body)
		case rendered && ours == nil:
			equal++
		case rendered:
			left++
			t.Logf("left to a replica (%v): %s %s", ours, c.Route, c.Body)
		}
		body, ok := short(c.Body, c.Route.String())
		if !rendered || !ok {
			continue
		}
		sent++
		o := f.sendRaw(t, c.Route.String(), body)
		if o.refused {
			refused++
			continue
		}
		if o.decision.Predicted != o.hits || !o.decision.Reason.Hint() {
			t.Errorf("%s: reason %s, predicted %d cached tokens, vLLM counted %d (%d tokens): %s: %.300s",
				c.Route, o.decision.Reason, o.decision.Predicted, o.hits, o.decision.Tokens, body, o.body)
		}
	}
	inProcess, all := f.computed(t, before)
	t.Logf("%d of %d rendered requests equal in process, %d left to a replica; %d sent, %d refused by vLLM; of %v text requests %v served in process",
		equal, equal+left, left, sent, refused, all, inProcess)
	if sent-refused < 90 {
		t.Errorf("vLLM computed only %d of %d requests", sent-refused, sent)
	}
	if equal < 90 || all < 100 {
		t.Errorf("%d equal; only %v text requests", equal, all)
	}
	f.mostlyInProcess(t, before, 0.15) // one in eight is the first with its value of a setting, with or without tools
}

// computed counts the requests since before whose ids were not in the body, and
// those of them that were computed in process.
func (f *fixture) computed(t *testing.T, before map[string]float64) (inProcess, all float64) {
	t.Helper()
	after := f.tokenSources(t)
	for source, n := range after {
		if source != "body" && source != unconfirmed {
			all += n - before[source]
		}
	}
	return after["in_process"] - before["in_process"], all
}

// mostlyInProcess: the tokenizer was found without being named, and at least 95 % of the text
// requests since before were computed with it, apart from those that a replica computes because
// they are the first with a value of a setting, at most a share of all.
func (f *fixture) mostlyInProcess(t *testing.T, before map[string]float64, most float64) {
	t.Helper()
	inProcess, all := f.computed(t, before)
	first := f.tokenSources(t)[unconfirmed] - before[unconfirmed]
	t.Logf("%v of %v text requests were computed in process, %v were the first with a value", inProcess, all, first)
	if all == 0 || inProcess < 0.95*(all-first) || first > most*all {
		t.Errorf("%v of %v text requests were computed in process, and %v the first with a value: want 95%% of the others, and at most %v of all", inProcess, all, first, most)
	}
}

func (f *fixture) toolFields() []string {
	if f.name == "0.21.0" {
		return strings.Split(toolFields, ", ")
	}
	return nil
}

// awaitTrust waits until the start-up probes have been answered, and none differed.
// Their number depends on the model and the release: a probe that needs a field or
// a route that they lack is not sent.
func (f *fixture) awaitTrust(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		log := must.Get(os.ReadFile(f.extproc.Log))(t)
		for line := range strings.Lines(string(log)) {
			if !strings.Contains(line, "in-process tokens verified") {
				continue
			}
			checks := testenv.Metrics(t, f.admin)
			equal, differ := sum(checks, `warmroute_token_checks_total{model="`+served+`",outcome="equal"}`), sum(checks, `warmroute_token_checks_total{model="`+served+`",outcome="differs"}`)
			t.Logf("the start-up check: %v equal, %v differ: %s", equal, differ, line)
			if equal == 0 || differ > 0 {
				t.Fatal("in-process ids differ, or nothing was compared")
			}
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the in-process path is not confirmed after a minute; the router's log:\n%s", f.extproc.Tail())
		}
	}
}

// unconfirmed is the key in tokenSources of requests with a feature or value that no replica has
// confirmed yet.
const unconfirmed = "unconfirmed"

// tokenSources are the counts of where token ids came from, and of unconfirmed requests.
func (f *fixture) tokenSources(t *testing.T) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	for name, v := range testenv.Metrics(t, f.admin) {
		if label, ok := strings.CutPrefix(name, `warmroute_token_source_total{source="`); ok {
			out[strings.TrimSuffix(label, `"}`)] = v
		}
		if strings.HasPrefix(name, `warmroute_token_refusals_total{cause="untrusted"`) {
			out[unconfirmed] += v
		}
	}
	return out
}

// short is the body with an answer of one token, so that the run is quick.
// Number literals and key order of the rest stay as they are.
func short(body, path string) ([]byte, bool) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &fields); err != nil {
		return nil, false
	}
	limit := "max_tokens"
	if path == "/v1/responses" {
		limit = "max_output_tokens"
	}
	if _, ok := fields[limit]; ok {
		return []byte(body), true
	}
	if _, ok := fields["max_completion_tokens"]; ok {
		return []byte(body), true
	}
	n := "1"
	if limit == "max_output_tokens" {
		n = "16" // its least
	}
	return []byte(strings.Replace(body, "{", `{"`+limit+`":`+n+`,`, 1)), true
}
