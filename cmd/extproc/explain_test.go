package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/render/testkit/must"
)

// TestExplainHandler: the body is judged and not kept; a body that is not a
// request is refused in one sentence.
func TestExplainHandler(t *testing.T) {
	c := defaultConfig()
	c.Filter.MaxBody = 1000
	r := must.Get(newRouter(c, slog.New(slog.DiscardHandler), prometheus.NewRegistry()))(t)
	h := explainNow(r.envoys.filter, func() Config { return c }, r.ids.view)
	for _, tc := range []struct {
		target, body string
		status       int
		want         string
	}{
		{"/debug/explain", `{"model":"m","messages":[]}`, 200, `"reason":"not_ready"`}, // there is no replica at all
		{"/debug/explain?path=/v1/completions", `{"model":"m"}`, 200, `"reason":"no_prompt"`},
		{"/debug/explain", `{`, 200, `"reason":"unreadable_json"`},
		{"/debug/explain?path=/v1/embeddings", `{}`, 400, `"/v1/embeddings" is no route`},
		{"/debug/explain", strings.Repeat(" ", 1001), 413, "larger than 1000 bytes"},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, tc.target, strings.NewReader(tc.body)))
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %.40s: %d %s", tc.target, tc.body, w.Code, w.Body)
		}
	}
	if last := r.decisions.ring.Last(1, nil); len(last) != 0 {
		t.Errorf("explaining was recorded: %+v", last)
	}
}

// recorded is a decision as the router sends it: the second replica holds more,
// the first is less loaded and failed, the third holds nothing.
const recorded = `{"seq":7,"id":"r-1","took_ns":21000,"route":"/v1/chat/completions","model":"m","reason":"warm","policy":"ttft",
"token_source":"in_process","prompts":1,"prompt_tokens":1000,"blocks":62,"predicted_cached_tokens":960,"chosen":"10.0.0.2:8000,10.0.0.3:8000","served_by":"10.0.0.2:8000","actual_prompt_tokens":1001,"actual_cached_tokens":944,
"request":{"input_tokens":1000,"ordinal":7},"why":{"text":"no candidate has more","do":"Nothing."},"candidates":[
{"replica":"10.0.0.1:8000","rank":0,"state":{"hash":"1","match":[{"place":"gpu","tokens":96,"source":"reported","credit":1}],"failing":true},"score":{"cost":0.09,"verdict":"failing"}},
{"replica":"10.0.0.2:8000","rank":0,"events":true,"state":{"hash":"2","match":[{"place":"gpu","tokens":960,"source":"reported","credit":1},{"place":"cpu","tokens":500,"source":"reported","credit":1,"seconds_each_token":0.00001}],"in_flight":1,"live_tokens":2000},"score":{"cost":0.0063,"verdict":"ranked"},"why":{"cause":"evicted","text":"has 960 tokens; the next block was evicted"}},
{"replica":"10.0.0.3:8000","rank":0,"state":{"hash":"3"},"score":{"cost":0.1065,"verdict":"ranked"}}]}`

// TestExplainedBodiesAreFew: bodies that do not end hold as many places as there are,
// and further ones get 503 at once.
func TestExplainedBodiesAreFew(t *testing.T) {
	page := explainNow(nil, defaultConfig, nil)
	post := func(body io.Reader) int {
		answer := httptest.NewRecorder()
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/debug/explain", body))
		return answer.Code
	}
	codes := make(chan int)
	var ends []*io.PipeWriter
	for range maxExplained {
		body, end := io.Pipe()
		ends = append(ends, end)
		go func() { codes <- post(body) }()
		if _, err := end.Write([]byte("{")); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	if code := post(strings.NewReader("{}")); code != http.StatusServiceUnavailable {
		t.Errorf("beyond the limit: %d", code)
	}
	for _, end := range ends {
		end.CloseWithError(io.ErrUnexpectedEOF)
		if code := <-codes; code != http.StatusRequestEntityTooLarge {
			t.Errorf("a body that was cut off: %d", code)
		}
	}
	if code := post(iotest.ErrReader(io.ErrUnexpectedEOF)); code != http.StatusRequestEntityTooLarge {
		t.Errorf("when the others have ended: %d", code)
	}
}

func TestExplainCommand(t *testing.T) {
	var asked, carried []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, carried = append(asked, r.Method+" "+r.URL.RawQuery), append(carried, r.Header.Get("Authorization"))
		switch {
		case r.Method == http.MethodPost:
			_, _ = w.Write([]byte(`{"decision":` + recorded + `,"demoted":[{"model":"m","feature":"tools","first_difference_at_token":7,"at":"2026-03-05T07:08:09Z","differences":2}]}`))
		case r.URL.Query().Has("n") && r.URL.Query().Get("id") == "gone":
			_, _ = w.Write([]byte(`{"decisions":null}`))
		case r.URL.Query().Get("id") == "r-1":
			_, _ = w.Write([]byte(`{"decisions":[` + recorded + `]}`))
		case r.URL.Query().Get("id") == "":
			_, _ = w.Write([]byte(`{"decisions":[{"seq":8,"id":"r-2","reason":"unknown_model"}]}`))
		default:
			http.Error(w, `no kept decision has the id "gone"`, http.StatusNotFound)
		}
	}))
	defer srv.Close()
	admin := strings.TrimPrefix(srv.URL, "http://")
	file := filepath.Join(t.TempDir(), "other.yaml")
	other := "admin: {listen: " + admin + "}\nfleet: {replicas: [{address: 10.0.0.1:8000}]}\npolicy: {route_policy: filter-then-score, balance_abs_threshold: 0, balance_rel_threshold: 1.0}\n"
	must.Do(t, os.WriteFile(file, []byte(other), 0o600))
	explain := func(args ...string) (string, error) {
		var out bytes.Buffer
		err := program().Run(t.Context(), append([]string{"explain"}, args...), stdio{In: strings.NewReader("{}"), Out: &out, Err: &out})
		return out.String(), err
	}
	out, err := explain("-admin", admin, "-path", "/v1/completions", "-subset", "10.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"reason     warm\n", "goes to    10.0.0.2:8000, then 10.0.0.3:8000\n", "1000 from in_process", "demoted    tools of m: ids differed from vLLM's at token 7 (2026-03-05T07:08:09Z)\n", "960 tokens predicted", "actual     944 of 1001 tokens, as 10.0.0.2:8000 counted\n", "failing",
		"  replica  rank  events  matched", "10.0.0.2:8000     0     yes ", "10.0.0.3:8000     0    none ", "why        no candidate has more\n", "to do      Nothing.\n", "\n10.0.0.2:8000 rank 0 has 960 tokens; the next block was evicted\n", "\nevicted: Give the replicas more KV cache, or add replicas.\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	first, second := strings.Index(out, "\n  10.0.0.2:8000"), strings.Index(out, "\n  10.0.0.3:8000")
	if first < 0 || second < first || strings.Index(out, "\n  10.0.0.1:8000") < second {
		t.Errorf("not best first:\n%s", out)
	}
	if out, err = explain("-config", file, "-id", "r-1"); err != nil || !strings.Contains(out, "by the policy of "+file+": 10.0.0.") {
		t.Errorf("by another policy: %v\n%s", err, out)
	}
	if out, err = explain("-admin", admin, "-json"); err != nil || !strings.Contains(out, `"verdict": "failing"`) {
		t.Errorf("as JSON: %v\n%s", err, out)
	}
	const none = "\nThere were no candidates to compare: the decision ended early with the reason unknown_model.\n"
	for _, args := range [][]string{{"-admin", admin, "-last"}, {"-config", file, "-last"}} {
		if out, err = explain(args...); err != nil || !strings.HasSuffix(out, none) {
			t.Errorf("%v, which has no candidates: %v\n%s", args, err, out)
		}
	}
	if _, err = explain("-admin", admin, "-id", "gone"); err == nil || !strings.Contains(err.Error(), `no kept decision has the id "gone"`) {
		t.Errorf("unknown id: %v", err)
	}
	_, err = explain("-last") // of the router at the default address, where there may be one
	if unreached := errors.Is(err, syscall.ECONNREFUSED); errors.Is(err, errNoConfig) || unreached != strings.Contains(fmt.Sprint(err), "127.0.0.1:9090: connect: connection refused; that is the default of admin.listen") {
		t.Errorf("without a file and an address: %v", err)
	}
	secret, own := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "token")
	for file, text := range map[string]string{secret: "s3cret\n", own: "of-the-router"} {
		must.Do(t, os.WriteFile(file, []byte(text), 0o600))
	}
	inFile := filepath.Join(t.TempDir(), "token.yaml")
	must.Do(t, os.WriteFile(inFile, []byte(strings.Replace(other, "admin: {", "admin: {token_file: "+own+", ", 1)), 0o600))
	for want, args := range map[string][]string{
		"": {"-admin", admin}, "Bearer s3cret": {"-config", inFile, "-token-file", secret}, "Bearer of-the-router": {"-config", inFile},
	} {
		if _, err := explain(append(args, "-last")...); err != nil || carried[len(carried)-1] != want {
			t.Errorf("%v carries %q, want %q: %v", args, carried[len(carried)-1], want, err)
		}
	}
	if want := "POST path=%2Fv1%2Fcompletions&subset=10.0.0.2&tenant="; asked[0] != want {
		t.Errorf("asked %q, want %q", asked[0], want)
	}
}

// TestExplainRefusesWhatItDoesNotKnow instead of finding nothing. The admin
// server refuses unknown parameters, for every page.
func TestExplainRefusesWhatItDoesNotKnow(t *testing.T) {
	ring, long := decision.NewRing(4), strings.Repeat("long", 1000)
	ring.Put(&decision.Record{Subject: decision.Subject{ID: decision.RequestID(long)}})
	h := explain(ring, (*decision.Record).Explain, func(*decision.Record) tokenView { return tokenView{} })
	for query, want := range map[string]int{"": 200, "?id=" + long: 200, "?n=3&reason=warm": 200, "?id=x": 404, "?reason=warm&id=x": 404, "?n=3&id=x": 200, "?reason=wram": 400, "?n=0": 400} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/explain"+query, nil))
		if w.Code != want {
			t.Errorf("%q: %d %s, want %d", query, w.Code, w.Body, want)
		}
	}
}

// TestSilentModelsAreNoted, each by its name.
func TestSilentModelsAreNoted(t *testing.T) {
	up, down := &fleet.Replica{Addr: "1:1", Ready: true}, &fleet.Replica{Addr: "2:1"}
	up.Models, down.Models = []fleet.Model{{ID: "a", Base: "a"}}, []fleet.Model{{ID: "b", Base: "b"}, {ID: "l", Base: "b"}}
	for _, c := range []struct {
		of   []*fleet.Replica
		want string
	}{
		{[]*fleet.Replica{up}, ""}, {[]*fleet.Replica{up, down}, `no replica of model "b" is ready`}, {[]*fleet.Replica{down}, "no replica is ready, of 1"},
		{[]*fleet.Replica{up, {Addr: "3:1"}}, "replica 3:1 has not answered yet, so its models are not known: requests for models that no other replica serves are sent there"},
	} {
		got := ""
		if notes := unservedModels(fleet.NewSnapshot(c.of...)); len(notes) == 1 {
			got = notes[0]
		}
		if got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
