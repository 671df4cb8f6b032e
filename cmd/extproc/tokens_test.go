package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/must"
)

// A request's text is shown to the replicas that may be named for it: ready, of its model, of its
// tenant or shared, and of the gateway's subset. The start-up conversations go to all.
func TestWhoIsAskedForTokens(t *testing.T) {
	r := must.Get(newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()))(t)
	replica := func(addr, tenant, model string, ready bool) *fleet.Replica {
		return &fleet.Replica{Addr: addr, Configured: fleet.Configured{Tenant: tenant}, Ready: ready, Reported: fleet.Reported{Version: "0.32.0", Models: []fleet.Model{{ID: model, Base: model, MaxLen: 9}}}}
	}
	asleep := replica("10.0.0.6:80", "", "m", false)
	asleep.Held = true
	s := fleet.NewSnapshot(replica("10.0.0.1:80", "", "m", true), replica("10.0.0.2:80", "acme", "m", true), replica("10.0.0.3:80", "acme", "own", true),
		replica("10.0.0.4:80", "zoo", "m", true), replica("10.0.0.5:80", "", "m", false), asleep)
	urls := func(list []tokens.Endpoint) (out []string) {
		for _, e := range list {
			if e.Version != "0.32.0" || e.MaxLen != 9 {
				t.Errorf("endpoint %+v", e)
			}
			out = append(out, e.URL)
		}
		return out
	}
	for _, c := range []struct {
		served tokens.Served
		want   string
	}{
		{tokens.Served{Model: "m"}, "[http://10.0.0.1:80]"},
		{tokens.Served{Model: "m", Tenant: "acme"}, "[http://10.0.0.1:80 http://10.0.0.2:80]"},
		{tokens.Served{Model: "m", Tenant: "other"}, "[http://10.0.0.1:80]"},
		{tokens.Served{Model: "own", Tenant: "acme"}, "[http://10.0.0.3:80]"},
		{tokens.Served{Model: "own"}, "[]"},
		{tokens.Served{Model: "own", Tenant: "zoo"}, "[]"},
		{tokens.Served{Model: "m", Tenant: "acme", Subset: []string{"10.0.0.2:80", "10.0.0.3"}}, "[http://10.0.0.2:80]"},
		{tokens.Served{Model: "m", Subset: []string{}}, "[]"},
	} {
		if got := fmt.Sprint(urls(r.ids.renderers(s, c.served))); got != c.want {
			t.Errorf("%+v: %s, want %s", c.served, got, c.want)
		}
	}
	s.Replicas[1].Models[0].Base = "" // it takes the name for another model's
	if got := fmt.Sprint(urls(r.ids.serving(s, "m"))); got != "[http://10.0.0.1:80 http://10.0.0.4:80]" {
		t.Errorf("all that serve it: %s", got)
	}
}

// A feature that a replica's answer demoted is in the explain output about its model, with
// the position of the difference and without any text.
func TestExplainTellsOfDemotedFeatures(t *testing.T) {
	r := must.Get(newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()))(t)
	ask := func(h http.Handler, method, body string) map[string]json.RawMessage {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/debug/explain", strings.NewReader(body)))
		var v map[string]json.RawMessage
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		return v
	}
	handlers := map[string]http.Handler{http.MethodGet: explain(r.decisions.ring, (*decision.Record).Explain, r.ids.view), http.MethodPost: explainNow(r.envoys.filter, func() Config { return Config{Filter: FilterConfig{MaxBody: 1000}} }, r.ids.view)}
	for method, h := range handlers {
		if v := ask(h, method, `{"model":"m","messages":[]}`); v["demoted"] != nil {
			t.Errorf("%s: %s although nothing is demoted", method, v["demoted"])
		}
	}
	// The server agrees on plain chats and gives another fourth id where there are tools.
	replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		var v struct{ Messages []struct{ Content string } }
		if json.Unmarshal(body, &v) != nil || len(v.Messages) != 1 || req.URL.Path != "/v1/chat/completions/render" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		var ids []uint32
		for _, b := range []byte("text:" + v.Messages[0].Content) {
			ids = append(ids, uint32(b))
		}
		if strings.Contains(string(body), `"tools":`) {
			ids[3]++
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"token_ids": ids})
	}))
	defer replica.Close()
	endpoints := []tokens.Endpoint{{URL: replica.URL, Version: "0.32.0", Render: true}}
	remote := tokens.NewRemote(tokens.RemoteOptions{Endpoints: func(tokens.Served) []tokens.Endpoint { return endpoints }, Client: replica.Client()})
	defer remote.Close()
	r.ids.local = tokens.NewLocal(tokens.LocalOptions{Reference: remote, Endpoints: func(string) []tokens.Endpoint { return endpoints }})
	m := must.Get(tokens.LoadFolder(t.Context(), chattest.BytesFolder(t, "text:{{ messages[0].content }}"), tokens.Flags{Transformers: "5.19.0"}))(t)
	must.Do(t, r.ids.local.Load("m", m))
	r.ids.local.CheckAll(t.Context())
	for method, h := range handlers {
		var demoted []tokens.Demotion
		if err := json.Unmarshal(ask(h, method, `{"model":"m","messages":[]}`)["demoted"], &demoted); err != nil || len(demoted) != 1 {
			t.Fatalf("%s: %v %+v", method, err, demoted)
		}
		if d := demoted[0]; d.Model != "m" || d.Feature != "tools" || d.Position != 3 || d.Differs == 0 || d.At.IsZero() || len(d.By) != 1 {
			t.Errorf("%s: %+v", method, d)
		}
	}
	notes := strings.Join(r.ids.tokenNotes(fleet.NewSnapshot()), "\n")
	if want := `tokens of model "m": tools is not computed in process, because ` + replica.Listener.Addr().String() + " returned other ids (the first at token 3)"; !strings.Contains(notes, want) {
		t.Errorf("the notes lack %q: %q", want, notes)
	}
	if v := ask(handlers[http.MethodPost], http.MethodPost, `{"model":"other","messages":[]}`); v["demoted"] != nil {
		t.Errorf("a request for another model is told of %s", v["demoted"])
	}
}

// TestANoteNamesTheReplicaWithOtherTokens: of replicas that compute requests' ids.
func TestANoteNamesTheReplicaWithOtherTokens(t *testing.T) {
	r := must.Get(newRouter(defaultConfig(), slog.New(slog.DiscardHandler), prometheus.NewRegistry()))(t)
	var endpoints []tokens.Endpoint
	for i := range 3 {
		replica := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			fmt.Fprintf(w, `{"tokens":[1,2,%d]}`, max(i, 1))
		}))
		defer replica.Close()
		endpoints = append(endpoints, tokens.Endpoint{URL: replica.URL, Version: "0.32.0"})
	}
	r.ids.remote = tokens.NewRemote(tokens.RemoteOptions{Endpoints: func(tokens.Served) []tokens.Endpoint { return endpoints }})
	defer r.ids.remote.Close()
	req := must.Get(openai.Parse(openai.Completions, []byte(`{"model":"m","prompt":"hi"}`)))(t)
	must.Get(r.ids.remote.Tokens(t.Context(), req, tokens.Served{Model: "m"}))(t)
	for len(r.ids.remote.Dissents()) == 0 && t.Context().Err() == nil {
		time.Sleep(time.Millisecond)
	}
	addr := strings.TrimPrefix(endpoints[2].URL, "http://")
	want := `tokens of model "m": ` + addr + " returned other ids than other replicas for the same text (the first at token 2); no request is sent to it for its ids"
	if got := r.ids.tokenNotes(fleet.NewSnapshot()); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestEffortMapOfAModel(t *testing.T) {
	good := ModelConfig{ID: "m", EffortMap: map[string]string{"medium": "low", "max": "anything"}}
	if f, err := good.flags(); err != nil || good.Validate() != nil || f.EffortMap["medium"] != "low" {
		t.Errorf("%v %v %v", f.EffortMap, err, good.Validate())
	}
	bad := ModelConfig{ID: "m", EffortMap: map[string]string{"mighty": "low", "high": ""}}
	err := fmt.Sprint(bad.Validate())
	for _, want := range []string{`reasoning_effort_map: "mighty" is no reasoning effort of vLLM`, `reasoning_effort_map: "high" is mapped to nothing`} {
		if !strings.Contains(err, want) {
			t.Errorf("%s lacks %s", err, want)
		}
	}
}
