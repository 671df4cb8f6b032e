package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// readAll is the configuration of a router that asks for the usage of all answers.
const readAll = "envoy: {usage_share: 100}\n"

// counted is a usage in an answer.
type counted struct{ prompt, cached int }

// call sends a body and returns the answer's request id, its usage as the client reads
// it, and whether it has one.
func (st *stack) call(path string, body map[string]any) (id string, u counted, ok bool) {
	st.t.Helper()
	r := testenv.Post(st.t, st.envoy.URL+path, body)
	r.Into(st.t, nil)
	for line := range strings.Lines(strings.ReplaceAll(string(r.Body), "data: ", "")) {
		if v, found := usageIn([]byte(line)); found {
			u, ok = v, true
		}
	}
	return r.Header.Get("X-Request-Id"), u, ok
}

// usageIn reads the usage of an answer or of an event: OpenAI's and Anthropic's names.
func usageIn(text []byte) (counted, bool) {
	type usage struct {
		Prompt        int  `json:"prompt_tokens"`
		Input         *int `json:"input_tokens"`
		Read          int  `json:"cache_read_input_tokens"`
		Created       int  `json:"cache_creation_input_tokens"`
		PromptDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		InputDetails struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
	var v struct {
		Type     string
		Usage    *usage
		Response struct{ Usage *usage }
	}
	if json.Unmarshal(text, &v) != nil {
		return counted{}, false
	}
	u := v.Usage
	if u == nil {
		u = v.Response.Usage
	}
	switch {
	case u == nil:
		return counted{}, false
	case u.Input == nil:
		return counted{u.Prompt, u.PromptDetails.Cached}, true
	case strings.HasPrefix(v.Type, "message"):
		return counted{*u.Input + u.Read + u.Created, u.Read}, true
	}
	return counted{*u.Input, u.InputDetails.Cached}, true
}

// known has the fields of the router's record of a request.
type known struct {
	Served    string `json:"served_by"`
	Chosen    string
	Predicted int  `json:"predicted_cached_tokens"`
	Tokens    int  `json:"prompt_tokens"`
	Prompt    *int `json:"actual_prompt_tokens"`
	Cached    *int `json:"actual_cached_tokens"`
}

func (st *stack) record(id string) known {
	st.t.Helper()
	var page struct{ Decisions []known }
	if st.page("/debug/explain?n=1&id="+id, &page); len(page.Decisions) != 1 {
		st.t.Fatalf("no record of %s", id)
	}
	return page.Decisions[0]
}

// TestUsageOfEveryAnswer: the router learns the replica's counts for each request,
// of every route, plain and streamed, in every body mode; it equals the usage in the
// answer, and the access log has it too.
func TestUsageOfEveryAnswer(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		for _, served := range []bool{false, true} {
			if served && mode != envoy.Buffered {
				continue // Envoy's telling who served is of the answer, its mode of the request
			}
			t.Run(fmt.Sprintf("%s, served %v", mode, served), func(t *testing.T) {
				t.Parallel()
				log := filepath.Join(t.TempDir(), "access.json")
				st := start(t, setup{
					replicas: 2, sim: fast(), config: readAll,
					envoy: envoy.Options{Mode: mode, Served: served, UsageShare: new(100), AccessLog: log},
				})
				answers := map[string]counted{}
				for i := range 2 {
					for _, stream := range []bool{false, true} {
						for path, body := range everyRoute(i) {
							if body["stream"] = stream; stream && strings.HasSuffix(path, "completions") {
								body["stream_options"] = map[string]any{"include_usage": true}
							}
							id, u, ok := st.call(path, body)
							if !ok || u.prompt == 0 {
								t.Fatalf("%s: the answer has no usage", path)
							}
							answers[id] = u
							st.settled()
						}
					}
				}
				st.agree(answers)
				st.logged(log, answers)
				if n := st.exact(); n != len(answers) {
					t.Errorf("%d of %d differences are counted as 0", n, len(answers))
				}
				if n := st.metrics()[`warmroute_answer_usage_total{state="complete"}`]; int(n) != len(answers) {
					t.Errorf("%v of %d usages are counted as complete", n, len(answers))
				}
				if sum := st.metrics()[`warmroute_hint_outcomes_total{model="sim",served_by="first"}`]; int(sum) != len(answers) {
					t.Errorf("%v of %d hints are counted as followed", sum, len(answers))
				}
			})
		}
	}
}

// exact returns how many predictions the router counts as exact.
func (st *stack) exact() (n int) {
	st.t.Helper()
	for name, v := range st.metrics() {
		if strings.HasPrefix(name, "warmroute_prediction_difference_tokens_bucket{") {
			switch {
			case strings.Contains(name, `le="0"`):
				n += int(v)
			case strings.Contains(name, `le="-1"`):
				n -= int(v)
			}
		}
	}
	return n
}

// everyRoute has a body for each route, with a prompt of about a thousand tokens that
// differs by i.
func everyRoute(i int) map[string]map[string]any {
	text := fmt.Sprintf("case %d: ", i) + strings.Repeat("words and words ", 60)
	chat := []message{{"user", text}}
	return map[string]map[string]any{
		"/v1/chat/completions": {"model": "sim", "messages": chat, "max_tokens": 4},
		"/v1/completions":      {"model": "sim", "prompt": text, "max_tokens": 4},
		"/v1/responses":        {"model": "sim", "input": text, "max_output_tokens": 4},
		"/v1/messages":         {"model": "sim", "messages": chat, "max_tokens": 4},
	}
}

// agree waits until the router has each usage, and holds it to the answers.
func (st *stack) agree(answers map[string]counted) {
	st.t.Helper()
	exact := 0
	for id, u := range answers {
		var rec known
		st.until("the usage of "+id+" arrives", func() bool { rec = st.record(id); return rec.Cached != nil })
		if *rec.Prompt != u.prompt || *rec.Cached != u.cached || rec.Served != rec.Chosen[:len(rec.Served)] {
			st.t.Errorf("the answer says %+v, the record %d and %d, served by %s", u, *rec.Prompt, *rec.Cached, rec.Served)
		}
		if *rec.Prompt == rec.Tokens && *rec.Cached == rec.Predicted {
			exact++
		}
	}
	if exact != len(answers) {
		st.t.Errorf("%d of %d predictions are exact", exact, len(answers))
	}
}

// logged holds Envoy's access log to the answers.
func (st *stack) logged(file string, answers map[string]counted) {
	st.t.Helper()
	var lines []string
	st.until("the access log has every request", func() bool {
		b := must.Get(os.ReadFile(file))(st.t)
		lines = strings.Split(strings.TrimSpace(string(b)), "\n")
		return len(lines) >= len(answers)
	})
	for _, line := range lines {
		var e struct {
			ID     string `json:"request_id"`
			Prompt *int   `json:"actual_prompt_tokens"`
			Cached *int   `json:"actual_cached_tokens"`
		}
		must.Do(st.t, json.Unmarshal([]byte(line), &e))
		if u, ok := answers[e.ID]; !ok || e.Prompt == nil || e.Cached == nil || *e.Prompt != u.prompt || *e.Cached != u.cached {
			st.t.Errorf("the answer says %+v, the access log %s", u, line)
		}
	}
}

// page reads a page of the admin port.
func (st *stack) page(path string, to any) {
	st.t.Helper()
	must.Do(st.t, json.Unmarshal([]byte(page(st.t, "http://"+st.admin+path)), to))
}
