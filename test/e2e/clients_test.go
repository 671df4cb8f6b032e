package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// No copy of these texts of a client may be found anywhere afterwards.
const (
	secretText = "Xylophonmarmelade"
	secretIDs  = "4711,4712,4713,4714" // as token ids; also looked for with spaces
)

// TestNoPromptTextIsKept runs the router at debug level, sends it secrets in
// every place that a client writes, over requests that succeed, that are broken
// and whose replicas fail, and finds them in no log, metric, debug page or trace file: only
// an unknown model's name is in the decisions.
func TestNoPromptTextIsKept(t *testing.T) {
	t.Parallel()
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	traced := fmt.Sprintf("filter: {%s, trace_file: %q", patient, trace)
	st := start(t, setup{replicas: 2, sim: fast(), config: "log: {level: debug}\n" + traced + ", tenant_header: x-tenant, reason_header: true}\n"})
	sent := 0
	send := func(path, body string) {
		t.Helper()
		testenv.Post(t, st.envoy.URL+path, []byte(body), "Authorization", "Bearer "+secretText, "Cookie", secretText)
		sent++
	}
	all := func() {
		for _, body := range secretBodies() {
			for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/" + secretText} {
				send(path+"?q="+secretText, body)
			}
		}
	}
	all()
	faults(st, vllmsim.Faults{ErrorEvery: 2, NoRender: true})
	all()
	faults(st, vllmsim.Faults{})
	for _, body := range secretBodies() { // the operator's own question
		testenv.Post(t, "http://"+st.admin+"/debug/explain", []byte(body))
	}
	st.sims = st.sims[:1]
	st.writeConfig("log: {level: debug}\n" + traced + "}\n") // a replica leaves
	st.until("the replica left", func() bool { return st.metrics()[`warmroute_fleet_replicas{state="ready"}`] == 1 })

	st.until("the trace file is written", func() bool { return strings.Contains(readLog(t, trace), `{"end":`) })
	pages := map[string]string{"log": readLog(t, st.extproc.Log), "trace file": readLog(t, trace)}
	for _, path := range []string{"/metrics", "/debug/explain?n=1000", "/debug/replicas", "/policy", "/pressure", "/readyz", "/healthz"} {
		pages[path] = page(t, "http://"+st.admin+path)
	}
	if n := strings.Count(pages["/debug/explain?n=1000"], `"reason"`); n < sent/2 {
		t.Errorf("%d decisions are recorded of %d requests", n, sent)
	}
	decisions := "/debug/explain?n=1000"
	asked := strings.Count(pages[decisions], `"asked_model":"`+secretText+`"`)
	if asked == 0 {
		t.Error("the operator is not told which unknown model was asked for")
	}
	pages[decisions] = strings.ReplaceAll(pages[decisions], `"asked_model":"`+secretText+`"`, "")
	pages[decisions] = strings.ReplaceAll(pages[decisions], `no replica serves or served \"`+secretText+`\"`, "")
	for name, text := range pages {
		if text == "" {
			t.Errorf("%s is empty", name)
		}
		for _, secret := range []string{secretText, strings.ToLower(secretText), secretIDs, strings.ReplaceAll(secretIDs, ",", " ")} {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s has what a client wrote: %q", name, text[max(0, i-200):min(len(text), i+100)])
			}
		}
	}
}

// secretBodies hold the secrets in every field, whole and broken.
func secretBodies() []string {
	s, ids := secretText, secretIDs
	return []string{
		fmt.Sprintf(`{"model":"sim","max_tokens":1,"messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}`, s, s),
		fmt.Sprintf(`{"model":"sim","max_tokens":1,"messages":[{"role":%q,"content":[{"type":"image_url","image_url":{"url":"http://%s"}}]}]}`, s, s),
		fmt.Sprintf(`{"model":"sim","max_tokens":1,"tools":[{"type":%q}],"messages":[{"role":"user","content":"x","name":%q}]}`, s, s),
		fmt.Sprintf(`{"model":"sim","max_tokens":1,"prompt":%q,"input":%q,"cache_salt":%q,"user":%q}`, strings.Repeat(s+" ", 100), s, s, s),
		fmt.Sprintf(`{"model":"sim","max_tokens":1,"prompt":[%s,%s,%s,%s,%s],"stream":true}`, ids, ids, ids, ids, ids),
		fmt.Sprintf(`{"model":%q,"prompt":%q}`, s, s),
		fmt.Sprintf(`{"model":"sim","prompt":%q`, s),
		fmt.Sprintf(`{"model":"sim","prompt":{%q:%q},"messages":%q}`, s, s, s),
		fmt.Sprintf(`{"model":"sim","%s":1,"%s":2,"messages":[{"role":"user","content":"\ud800%s"}]}`, s, s, s),
		fmt.Sprintf("{\"model\":\"sim\",\"prompt\":\"\xff%s\"}", s),
		s,
		strings.Repeat("[", 2000) + fmt.Sprintf("%q", s),
	}
}

func faults(st *stack, f vllmsim.Faults) {
	for _, sim := range st.sims {
		sim.SetFaults(f)
	}
}

func readLog(t *testing.T, path string) string {
	t.Helper()
	return string(must.Get(os.ReadFile(path))(t))
}

func page(t *testing.T, url string) string {
	t.Helper()
	return must.Get(testenv.Get(t.Context(), url))(t)
}

// TestClientsMakeNoSeries: the models, tenants, ids and paths that requests
// name add no series to the metrics.
func TestClientsMakeNoSeries(t *testing.T) {
	t.Parallel()
	const requests = 40
	st := start(t, setup{replicas: 2, sim: fast(), config: "filter: {" + patient + ", tenant_header: x-tenant}\n"})
	send := func(i int) {
		name := fmt.Sprint("name-", i)
		for _, model := range []string{"sim", name} {
			body := fmt.Sprintf(`{"model":%q,"max_tokens":1,"prompt":[%d,2,3],"user":%q,"cache_salt":%q}`, model, i, name, name)
			for _, path := range []string{"/v1/completions", "/v1/" + name} {
				testenv.Post(t, st.envoy.URL+path, []byte(body), "x-tenant", name)
			}
		}
	}
	for i := range 20 { // every replica has served, every reason has been given
		send(i)
	}
	before := st.metrics()
	for i := range requests {
		send(1000 + i)
	}
	for name := range st.metrics() {
		if _, old := before[name]; !old {
			t.Errorf("requests made the series %s", name)
		}
	}
}
