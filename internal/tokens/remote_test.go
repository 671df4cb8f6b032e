package tokens

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRemote(t *testing.T, o RemoteOptions) *Remote {
	t.Helper()
	transport := &http.Transport{}
	o.Client = &http.Client{Transport: transport}
	if o.Budget == 0 {
		o.Budget = 10 * time.Second
	}
	if o.CompareEvery == 0 {
		o.CompareEvery = -1
	}
	r := NewRemote(o)
	t.Cleanup(func() { r.Close(); transport.CloseIdleConnections() })
	return r
}

func TestBody(t *testing.T) {
	got, err := (Body{}).Tokens(t.Context(), parse(t, openai.Completions, `{"model":"m","prompt":[[1,2],[3]]}`), someModel)
	if err != nil || len(got.Prompts) != 2 || got.Source != FromBody || got.Prompts[1].Tokens[0] != 3 {
		t.Errorf("%+v %v", got, err)
	}
	for _, body := range []string{`{"model":"m","prompt":"x"}`, `{"model":"m","prompt":[1],"truncate_prompt_tokens":1}`} {
		if _, err := (Body{}).Tokens(t.Context(), parse(t, openai.Completions, body), someModel); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestRemoteCachesAndSendsTheBody(t *testing.T) {
	f := newFakeServer(t)
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true)})
	req := chatRequest(t, "hi")
	for range 3 {
		got, err := r.Tokens(t.Context(), req, someModel)
		if err != nil || got.Source != FromRender || len(got.Prompts) != 1 || len(got.Prompts[0].Tokens) != len(req.Body()) {
			t.Fatalf("%+v %v", got, err)
		}
	}
	if n := f.asked.Load(); n != 1 || *f.last.Load() != string(req.Body()) {
		t.Errorf("asked %d times, last %s", n, *f.last.Load())
	}
	// A field that does not decide the prompt causes no new question; a field
	// that does, causes one.
	for body, want := range map[string]int64{
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"temperature":0.5,"max_tokens":9}`: 1,
		`{"model":"m","messages":[{"role":"user","content":"hi"}],"reasoning_effort":"low"}`:         2,
	} {
		before := f.asked.Load()
		if _, err := r.Tokens(t.Context(), parse(t, openai.Chat, body), someModel); err != nil || f.asked.Load()-before != want-1 {
			t.Errorf("%s: %v, asked %d", body, err, f.asked.Load()-before)
		}
	}
	if _, err := r.Tokens(t.Context(), req, Served{Model: "other model"}); err != nil || f.asked.Load() != 3 {
		t.Errorf("the model must be part of the key: %v, asked %d", err, f.asked.Load())
	}
}

func TestRemoteCacheEnds(t *testing.T) {
	f := newFakeServer(t)
	now := time.Unix(1000, 0)
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true), Now: func() time.Time { return now }})
	ask := func() { _, _ = r.Tokens(context.Background(), chatRequest(t, "hi"), someModel) }
	ask()
	now = now.Add(DefaultCacheTTL + time.Second)
	ask()
	if f.asked.Load() != 2 {
		t.Errorf("asked %d times", f.asked.Load())
	}
	small := newCache(4000)
	one := Result{Prompts: []Prompt{{Tokens: make([]uint32, 60)}}}
	for i := range uint64(100) {
		small.put(key{i, 0}, one, nil, now, time.Hour)
	}
	if small.size > 4000 || len(small.byKey) != small.order.Len() || len(small.byKey) != 4000/(overhead+one.bytes()) {
		t.Errorf("size %d, %d entries", small.size, len(small.byKey))
	}
	if _, _, ok := small.get(key{0, 0}, now); ok {
		t.Error("the oldest must have fallen out")
	}
}

func TestRemoteOneFlight(t *testing.T) {
	f := newFakeServer(t)
	f.block = make(chan struct{})
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true), Flights: 2})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := r.Tokens(context.Background(), chatRequest(t, "same"), someModel); err != nil {
				t.Errorf("shared flight: %v", err)
			}
		})
	}
	waitFor(t, func() bool { return f.asked.Load() == 1 })
	wg.Go(func() {
		_, _ = r.Tokens(context.Background(), chatRequest(t, "same"), Served{Model: "m", Likely: func() string { t.Error("asked of one that joins"); return "" }})
	})
	// A second question takes the last slot; a third is turned away at once.
	wg.Go(func() { _, _ = r.Tokens(context.Background(), chatRequest(t, "two"), someModel) })
	waitFor(t, func() bool { return f.asked.Load() == 2 })
	if _, err := r.Tokens(t.Context(), chatRequest(t, "three"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("over the limit: %v", err)
	}
	close(f.block)
	wg.Wait()
	if f.asked.Load() != 2 {
		t.Errorf("asked %d times", f.asked.Load())
	}
}

// waitFor polls a condition that another goroutine fulfils over a real socket.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	testenv.Until(t, 10*time.Second, "what the test waits for", ok)
}

func TestRemoteBudgetAndLateAnswer(t *testing.T) {
	f := newFakeServer(t)
	f.block = make(chan struct{})
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true), Budget: time.Millisecond, Timeout: time.Minute})
	if _, err := r.Tokens(t.Context(), chatRequest(t, "slow"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("past the budget: %v", err)
	}
	close(f.block)
	// The answer still reaches the cache.
	waitFor(t, func() bool {
		_, err := r.Tokens(t.Context(), chatRequest(t, "slow"), someModel)
		return err == nil
	})
	if f.asked.Load() != 1 {
		t.Errorf("asked %d times", f.asked.Load())
	}
}

func TestRemoteRefusalsAndFailures(t *testing.T) {
	f := newFakeServer(t)
	f.status.Store(400)
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true)})
	for range 2 {
		if _, err := r.Tokens(t.Context(), chatRequest(t, "bad"), someModel); !errors.Is(err, ErrNone) {
			t.Errorf("refused: %v", err)
		}
	}
	if f.asked.Load() != 1 {
		t.Errorf("a refusal is remembered; asked %d times", f.asked.Load())
	}
	f.status.Store(500)
	for range 2 {
		if _, err := r.Tokens(t.Context(), chatRequest(t, "worse"), someModel); err == nil || strings.Contains(err.Error(), "worse") {
			t.Errorf("failed: %v", err)
		}
	}
	if f.asked.Load() != 3 {
		t.Errorf("a failure is not remembered; asked %d times", f.asked.Load())
	}
	nobody := newRemote(t, RemoteOptions{Endpoints: func(Served) []Endpoint { return nil }})
	if _, err := nobody.Tokens(t.Context(), chatRequest(t, "x"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("nobody to ask: %v", err)
	}
}

// TestQuestionsToSGLang: SGLang's /tokenize gets what its chats read, and none of its own
// switches.
func TestQuestionsToSGLang(t *testing.T) {
	for _, c := range []struct {
		route      openai.Route
		body, want string
	}{
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none","reasoning_effort":"low","thinking":{"type":"adaptive"},"continue_final_message":true,"add_generation_prompt":false,"add_special_tokens":true,"documents":[]`,
			`{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none","reasoning_effort":"low","thinking":{"type":"adaptive"},"continue_final_message":true}`},
		{openai.Completions, `"prompt":"x","add_special_tokens":false`, `{"model":"m","prompt":"x"}`},
		{openai.Chat, `"messages":[{"role":"user","content":[{"type":"image_url"}]}]`, ""},
		{openai.Chat, `"messages":[],"chat_template":"t"`, ""},
		{openai.Chat, `"messages":[],"input_ids":[1]`, ""},
		{openai.Responses, `"input":"x"`, ""},
	} {
		f := newFakeServer(t)
		r := NewRemote(RemoteOptions{})
		_, err := r.Ask(t.Context(), parse(t, c.route, `{"model":"alias",`+c.body+`}`), "m", []Endpoint{{URL: f.URL, Version: "sglang 0.5.23"}})
		r.Close()
		got := ""
		if last := f.last.Load(); last != nil {
			got = *last
		}
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s: asked %s, %v", c.body, got, err)
		}
	}
}

func TestTokenizeOnlyWhereEqual(t *testing.T) {
	for _, c := range []struct {
		route openai.Route
		body  string
		want  int
	}{
		{openai.Chat, `"messages":[{"role":"user","content":"x"}]`, 1},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"chat_template_kwargs":{}`, 1},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}],"tool_choice":"none"`, 0},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"`, 0},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"documents":[]`, 0},
		{openai.Chat, `"messages":[{"role":"assistant","content":"x","reasoning_content":"y"}]`, 0},
		{openai.Chat, `"messages":[{"role":"user","content":[{"type":"image_url"}]}]`, 0},
		{openai.Chat, `"messages":[{"role":"user","content":"x"}],"truncate_prompt_tokens":5`, 0},
		{openai.Completions, `"prompt":"x","add_special_tokens":false`, 1},
		{openai.Completions, `"prompt":["x","y"]`, 2},
		{openai.Completions, `"prompt":"x","suffix":"y"`, 0},
		{openai.Responses, `"input":"x"`, 0},
		{openai.Messages, `"messages":[{"role":"user","content":"x"}]`, 0},
	} {
		req := parse(t, c.route, `{"model":"alias",`+c.body+`}`)
		list := tokenizeQuestions(req, "m", false)
		if len(list) != c.want {
			t.Errorf("%s: %d questions, want %d", c.body, len(list), c.want)
		}
		for _, q := range list {
			if !strings.HasPrefix(string(q.body), `{"model":"m",`) {
				t.Errorf("body %s", q.body)
			}
			if _, err := openai.Parse(openai.Chat, []byte(strings.Replace(string(q.body), `"prompt"`, `"messages":[],"prompt"`, 1))); err != nil {
				t.Errorf("%s: %v", q.body, err)
			}
		}
	}
	f := newFakeServer(t)
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(false)})
	got, err := r.Tokens(t.Context(), parse(t, openai.Completions, `{"model":"m","prompt":["x","y"]}`), someModel)
	if err != nil || got.Source != FromTokenize || len(got.Prompts) != 2 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestMultimodalAnswers(t *testing.T) {
	answer := func(features string) string {
		return `{"token_ids":[1,2,9,9,3,9,9,4],"features":` + features + `}`
	}
	both := `{"mm_hashes":{"image":["a","b"]},"mm_placeholders":{"image":[{"offset":2,"length":2},{"offset":5,"length":2}]}}`
	got, err := parseRender(openai.Chat, true)([]byte(answer(both)))
	if err != nil || len(got) != 1 || got[0].Partial || len(got[0].Tokens) != 8 || len(got[0].MM) != 2 || got[0].MM[1] != (prefixhash.MM{ID: "b", Offset: 5, Length: 2}) {
		t.Errorf("%+v %v", got, err)
	}
	one := `{"mm_hashes":{"image":["a"]},"mm_placeholders":{"image":[{"offset":2,"length":2},{"offset":5,"length":2}]}}`
	got, err = parseRender(openai.Chat, true)([]byte(answer(one)))
	if err != nil || !got[0].Partial || len(got[0].Tokens) != 5 || len(got[0].MM) != 1 {
		t.Errorf("up to the first item without a hash: %+v %v", got, err)
	}
	if _, err := parseRender(openai.Chat, true)([]byte(answer("null"))); !errors.Is(err, ErrNone) {
		t.Errorf("no features: %v", err)
	}
	outside := `{"mm_hashes":{"image":["a"]},"mm_placeholders":{"image":[{"offset":7,"length":2}]}}`
	if _, err := parseRender(openai.Chat, true)([]byte(answer(outside))); err == nil {
		t.Error("a placeholder outside the prompt must be refused")
	}
	q := renderQuestion(parse(t, openai.Chat, ` {"model":"m","messages":[{"content":[{"type":"image_url"}]}]}`), 0)
	if string(q.body) != ` {"mm_payload":"none","model":"m","messages":[{"content":[{"type":"image_url"}]}]}` {
		t.Errorf("body %s", q.body)
	}
}

func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"token_ids":[1],"features":{"mm_hashes":{"i":["a"]},"mm_placeholders":{"i":[{"offset":0,"length":1}]}}}`))
	f.Add([]byte(`[{"token_ids":[1]}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, route := range openai.Routes {
			prompts, err := parseRender(route, len(body)%2 == 0)(body)
			for _, p := range prompts {
				for _, m := range p.MM {
					if err == nil && (m.Offset < 0 || m.Length <= 0 || m.Offset+m.Length > len(p.Tokens) && !p.Partial) {
						t.Fatalf("%+v", p)
					}
				}
			}
		}
		_, _ = parseTokenize(body)
	})
}

// A tenant's requests are shown to the replicas that may serve it and to no
// others, in serving and in checking; answers are not shared between tenants.
func TestTenantsAskTheirOwnReplicas(t *testing.T) {
	shared, own := newFakeServer(t), newFakeServer(t)
	shared.answer, own.answer = honest(t), honest(t)
	var subset []string // the gateway's, of the last request or sample
	r := newRemote(t, RemoteOptions{Endpoints: func(s Served) []Endpoint {
		subset = s.Subset
		if s.Tenant == "acme" {
			return own.endpoints(true)(s)
		}
		return shared.endpoints(true)(s)
	}})
	for i, tt := range []struct {
		tenant      string
		shared, own int64
	}{{"", 1, 0}, {"acme", 1, 1}, {"acme", 1, 1}, {"other", 2, 1}, {"", 2, 1}} {
		must.Get(r.Tokens(t.Context(), chatRequest(t, "hi"), Served{Model: "m", Tenant: tt.tenant}))(t)
		if shared.asked.Load() != tt.shared || own.asked.Load() != tt.own {
			t.Errorf("%d, tenant %q: shared asked %d times, own %d", i, tt.tenant, shared.asked.Load(), own.asked.Load())
		}
	}
	l := NewLocal(LocalOptions{SampleEvery: 1, Reference: r, Endpoints: func(string) []Endpoint {
		return append(shared.endpoints(true)(Served{}), own.endpoints(true)(Served{})...)
	}})
	must.Do(t, l.Load("m", fakeModel(t)))
	l.CheckAll(t.Context())
	sharedBefore, ownBefore := shared.asked.Load(), own.asked.Load()
	if sharedBefore < 10 || ownBefore < 10 {
		t.Errorf("the start-up conversations asked shared %d, own %d times", sharedBefore, ownBefore)
	}
	must.Get(l.Tokens(t.Context(), chatRequest(t, "hi"), Served{Model: "m", Tenant: "acme", Subset: []string{"10.0.0.1"}}))(t)
	l.compare(t.Context(), <-l.samples)
	if !slices.Equal(subset, []string{"10.0.0.1"}) {
		t.Errorf("the sample is shown to replicas of %q, which its gateway did not allow", subset)
	}
	if shared.asked.Load() != sharedBefore || own.asked.Load() != ownBefore+1 {
		t.Errorf("the sample was shown to shared %d, own %d times", shared.asked.Load()-sharedBefore, own.asked.Load()-ownBefore)
	}
}
