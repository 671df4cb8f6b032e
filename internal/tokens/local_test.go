package tokens

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/testkit/must"
)

const fakeTemplate = `{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>{{ m.content }}` +
	`{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{% if add_generation_prompt %}>{% endif %}`

// fakeModel is a model whose ids are the bytes of the text.
func fakeModel(t *testing.T) Model {
	t.Helper()
	return bytesModel(t, fakeTemplate, Flags{MaxLen: fakeLen})
}

// fakeLen is fakeModel's context in tokens.
const fakeLen = 4000

func bytesModel(t *testing.T, template string, f Flags) Model {
	t.Helper()
	f.Transformers, f.StoreBytes = "5.19.0", -1
	return must.Get(LoadFolder(t.Context(), chattest.BytesFolder(t, template), f))(t)
}

// honest makes the server render as fakeModel does.
func honest(t *testing.T) func(string, []byte) [][]uint32 {
	t.Helper()
	return answers(t, bytesModel(t, fakeTemplate, Flags{}), false)
}

// answers is a server of vLLM 0.32 of a model.
func answers(t *testing.T, m Model, byClass bool) func(string, []byte) [][]uint32 {
	t.Helper()
	r := must.Get(m.Renderer(t.Context(), "0.32.0", byClass))(t)
	return func(path string, body []byte) [][]uint32 {
		route := strings.TrimSuffix(path, "/render")
		switch {
		case route != "/tokenize":
		case bytes.Contains(body, []byte(`"messages"`)):
			route = openai.Chat.String()
		default:
			route = openai.Completions.String()
		}
		ids, _ := r.(*render.Server).Tokenize(route, body)
		return ids
	}
}

type events struct{ demoted, refused, checked []string }

func (e *events) hooks() Hooks {
	return Hooks{
		Demoted: func(_, f string) { e.demoted = append(e.demoted, f) },
		Refused: func(_, why string) { e.refused = append(e.refused, why) },
		Checked: func(_, outcome string) { e.checked = append(e.checked, outcome) },
	}
}

func newLocal(t *testing.T, f *fakeServer, o LocalOptions) (*Local, *events) {
	t.Helper()
	seen := &events{}
	o.Endpoints = func(model string) []Endpoint { return f.endpoints(true)(Served{Model: model}) }
	o.Hooks = seen.hooks()
	o.Reference = newRemote(t, RemoteOptions{Endpoints: f.endpoints(true)})
	l := NewLocal(o)
	must.Do(t, l.Load("m", fakeModel(t)))
	return l, seen
}

// differing is a Local of one model whose server has another one, compared. Nothing is sampled.
func differing(t *testing.T, here, there Model) (*fakeServer, *Local, *events) {
	t.Helper()
	f := newFakeServer(t)
	f.answer = answers(t, there, false)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1})
	l.Unload("m")
	must.Do(t, l.Load("m", here))
	l.CheckAll(t.Context())
	return f, l, seen
}

// featureState is "trusted", "configured", "unverified", or "demoted" with the evidence.
type featureState struct {
	State string
	Evidence
}

func state(l *Local, feature openai.Features) featureState {
	for _, d := range l.Status()[0].Demoted {
		if d.Feature == feature.String() {
			return featureState{"demoted", d.Evidence}
		}
	}
	switch m := only(l); {
	case m.trust.all(feature, 0):
		return featureState{State: "trusted"}
	case m.trust.all(feature, l.unverified()):
		return featureState{State: "configured"}
	}
	return featureState{State: "unverified"}
}

// only returns the only model.
func only(l *Local) (m *localModel) {
	l.models.Range(func(_, v any) bool {
		m = v.(*localModel)
		return true
	})
	return m
}

func TestLocalTrustsWhatAReplicaConfirms(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1})
	req := chatRequest(t, "hi")
	if _, err := l.Tokens(t.Context(), req, someModel); !errors.Is(err, ErrNone) || seen.refused[0] != "untrusted" {
		t.Fatalf("before it is verified: %v %v", err, seen.refused)
	}
	for _, feature := range openai.AllFeatures() {
		if s := state(l, feature); s.State != "unverified" {
			t.Errorf("%s is %s before a replica has answered", feature, s.State)
		}
	}
	l.CheckAll(t.Context())
	got, err := l.Tokens(t.Context(), req, someModel)
	if err != nil || got.Source != FromInProcess || len(got.Prompts) != 1 {
		t.Fatalf("%+v %v; %+v", got, err, l.Status())
	}
	if want := bytesOf([]byte("<user>hi>")); fmt.Sprint(got.Prompts[0].Tokens) != fmt.Sprint(want) {
		t.Errorf("ids %v", got.Prompts[0].Tokens)
	}
	for _, feature := range openai.AllFeatures() {
		if s := state(l, feature); s.State != "trusted" {
			t.Errorf("%s is %+v", feature, s)
		}
	}
	if n := f.asked.Load(); n < 30 {
		t.Errorf("only %d probes", n)
	}
	asked := f.asked.Load()
	l.CheckAll(t.Context())
	if f.asked.Load() != asked {
		t.Error("what is verified is not probed again")
	}
	if version := *only(l).version.Load(); version != "0.32.0" {
		t.Errorf("version %q", version)
	}
}

func TestLocalDemotesTheFeatureThatDiffers(t *testing.T) {
	f := newFakeServer(t)
	right := honest(t)
	f.answer = func(path string, body []byte) [][]uint32 {
		prompts := right(path, body)
		if bytes.Contains(body, []byte(`"tools":`)) && prompts != nil {
			prompts[0][7]++
		}
		return prompts
	}
	var log bytes.Buffer
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1, Log: slog.New(slog.NewTextHandler(&log, nil))})
	l.CheckAll(t.Context())
	if s := state(l, openai.FeatureTools); s.State != "demoted" || s.Position != 7 || s.Differs == 0 {
		t.Errorf("tools: %+v", s)
	}
	for _, feature := range []openai.Features{openai.FeatureChat, openai.FeatureMessages, openai.FeatureResponses, openai.FeatureToolCalls} {
		if s := state(l, feature); s.State != "trusted" {
			t.Errorf("%s is %+v", feature, s)
		}
	}
	if len(seen.demoted) != 1 || seen.demoted[0] != "tools" {
		t.Errorf("demoted %v", seen.demoted)
	}
	for _, want := range []string{`msg="in-process tokens verified in part; `, " differed=tools\n", `computed_here="chat, completions, `} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
	if !strings.Contains(log.String(), "first_difference_at_token=7") || strings.Contains(log.String(), "Zürich") {
		t.Errorf("log %s", log.String())
	}
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); err != nil {
		t.Errorf("plain chat stays: %v", err)
	}
	tools := parse(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f"}}]}`)
	if _, err := l.Tokens(t.Context(), tools, someModel); !errors.Is(err, ErrNone) {
		t.Errorf("tools must go to a replica: %v", err)
	}
}

func TestLocalSamplesTraffic(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: 1})
	l.CheckAll(t.Context())
	must.Get(l.Tokens(t.Context(), chatRequest(t, "hi"), someModel))(t)
	large := parse(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}]}`+strings.Repeat(" ", sampledBody))
	if _, err := l.Tokens(t.Context(), large, someModel); err != nil || len(l.samples) != 1 {
		t.Errorf("%d samples wait, %v: a large body is no sample", len(l.samples), err)
	}
	l.compare(t.Context(), <-l.samples)
	if last := seen.checked[len(seen.checked)-1]; last != Equal {
		t.Fatalf("check %q", last)
	}
	// The server changes under us, without a new version.
	f.answer = func(string, []byte) [][]uint32 { return [][]uint32{{1, 2, 3}} }
	must.Get(l.Tokens(t.Context(), chatRequest(t, "hi"), someModel))(t)
	l.compare(t.Context(), <-l.samples)
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("chat must not be trusted any more: %v", err)
	}
	if fmt.Sprint(seen.demoted) != "[chat]" {
		t.Errorf("demoted %v", seen.demoted)
	}
}

// TestAnswersOfAnotherLengthAreFollowedUp: of the next requests one with each set of features is
// compared, and what differs is demoted; no sooner than a minute later again, and nothing where
// samples are off.
func TestAnswersOfAnotherLengthAreFollowedUp(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	now := time.Unix(1_700_000_000, 0)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: 1 << 40, Now: func() time.Time { return now }})
	l.CheckAll(t.Context())
	waiting := func(what string, want int) {
		t.Helper()
		for range 3 {
			for _, extra := range []string{``, `,"tools":[{"function":{"name":"f"}}]`} {
				body := `{"model":"m","messages":[{"role":"user","content":"x"}]` + extra + `}`
				must.Get(l.Tokens(t.Context(), parse(t, openai.Chat, body), someModel))(t)
			}
		}
		if len(l.samples) != want {
			t.Fatalf("%s: %d samples wait, want %d", what, len(l.samples), want)
		}
	}
	waiting("nothing is suspected", 0)
	l.Suspect("another")
	waiting("another model is", 0)
	l.Suspect("m")
	waiting("it is", 2)
	l.compare(t.Context(), <-l.samples)
	l.compare(t.Context(), <-l.samples)
	if len(seen.demoted) > 0 {
		t.Errorf("%v is demoted by an answer alone", seen.demoted)
	}
	now = now.Add(suspectEvery / 2)
	l.Suspect("m")
	waiting("too soon", 0)
	now = now.Add(suspectEvery)
	l.Suspect("m")
	f.answer = func(string, []byte) [][]uint32 { return [][]uint32{{1, 2, 3}} }
	waiting("again", 2)
	l.compare(t.Context(), <-l.samples)
	if fmt.Sprint(seen.demoted) != "[chat]" {
		t.Errorf("demoted %v", seen.demoted)
	}
	m, _ := l.models.Load("m")
	s := &m.(*localModel).suspicion
	s.raise(now.Add(time.Hour))
	chosen := 0
	for i := range 2 * suspectRequests {
		if s.chooses(openai.Features(i)) {
			chosen++
		}
	}
	if chosen != suspectKinds || s.left.Load() > 0 {
		t.Errorf("%d are chosen, %d are left", chosen, s.left.Load())
	}
}

func TestLocalWithoutAReplica(t *testing.T) {
	f := newFakeServer(t)
	f.status.Store(503)
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	l.CheckAll(t.Context())
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("unverified: %v", err)
	}
	f.status.Store(0)
	f.answer = honest(t)
	l.CheckAll(t.Context()) // tried again, because no replica had answered
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); err != nil {
		t.Errorf("verified at last: %v", err)
	}
	f.status.Store(503)
	configured, _ := newLocal(t, f, LocalOptions{SampleEvery: -1, TrustUnverified: openai.FeatureChat})
	configured.CheckAll(t.Context())
	if _, err := configured.Tokens(t.Context(), chatRequest(t, "hi"), someModel); err != nil {
		t.Errorf("configured trust: %v", err)
	}
	if s := state(configured, openai.FeatureChat); s.State != "configured" {
		t.Errorf("%+v", s)
	}
}

func TestLocalVersionChange(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	version := "0.32.0"
	l.o.Endpoints = func(string) []Endpoint { return []Endpoint{{URL: f.URL, Version: version, Render: true}} }
	l.CheckAll(t.Context())
	f.answer = func(string, []byte) [][]uint32 { return [][]uint32{{5}} }
	version = "0.33.0"
	l.CheckAll(t.Context())
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); !errors.Is(err, ErrNone) {
		t.Errorf("a new version starts without trust: %v", err)
	}
	if got := commonVersion([]Endpoint{{Version: "0.32.0"}, {Version: "0.21.0"}}); got != "" {
		t.Errorf("mixed versions: %q", got)
	}
}

// TestEnginesSideBySide: a model that as many replicas of SGLang as of vLLM serve is rendered as
// vLLM does, and only vLLM is asked.
func TestEnginesSideBySide(t *testing.T) {
	f, other := newFakeServer(t), newFakeServer(t)
	f.answer = honest(t)
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	both := []Endpoint{{URL: other.URL, Version: "sglang 0.5.23"}, {URL: f.URL, Version: "0.32.0", Render: true}}
	l.o.Endpoints = func(string) []Endpoint { return both }
	l.CheckAll(t.Context())
	if version := *only(l).version.Load(); version != "0.32.0" {
		t.Errorf("rendered as version %q", version)
	}
	f.answer = nil
	for range both {
		if _, err := l.o.Reference.Ask(t.Context(), parse(t, openai.Completions, `{"model":"m","prompt":"x"}`), "m", both); err != nil {
			t.Error(err)
		}
	}
	if n := other.asked.Load(); n > 0 || f.asked.Load() == 0 {
		t.Errorf("SGLang was asked %d times, vLLM %d times", n, f.asked.Load())
	}
}

// A sample that was computed for the servers' former version says nothing of the new one.
func TestLocalSampleOfTheFormerVersion(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: 1})
	version := "0.32.0"
	l.o.Endpoints = func(string) []Endpoint { return []Endpoint{{URL: f.URL, Version: version, Render: true}} }
	l.CheckAll(t.Context())
	must.Get(l.Tokens(t.Context(), chatRequest(t, "hi"), someModel))(t)
	version = "0.33.0"
	l.CheckAll(t.Context())
	f.answer = func(string, []byte) [][]uint32 { return [][]uint32{{1, 2, 3}} }
	asked := f.asked.Load()
	l.compare(t.Context(), <-l.samples)
	if len(seen.demoted) > 0 || f.asked.Load() != asked {
		t.Errorf("demoted %v after %d questions", seen.demoted, f.asked.Load()-asked)
	}
}

// counting is a Model that counts the requests that it renders.
type counting struct {
	Model
	requests int
}

func (c *counting) Renderer(ctx context.Context, version string, byClass bool) (Renderer, error) {
	r, err := c.Model.Renderer(ctx, version, byClass)
	return countingRenderer{r, c}, err
}

type countingRenderer struct {
	Renderer
	of *counting
}

func (c countingRenderer) Prompts(j render.Job) ([][]uint32, openai.Features, uint64, error) {
	c.of.requests++
	return c.Renderer.Prompts(j)
}

// TestWhatCannotFitIsNotComputed: a prompt of more bytes than the context's tokens can stand for is
// refused before it is rendered, on every route, wherever in the body it is.
func TestWhatCannotFitIsNotComputed(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1})
	m := &counting{Model: fakeModel(t)}
	must.Do(t, l.Load("m", m))
	l.CheckAll(t.Context())
	most := fakeLen * mostBytes
	long, larger := strings.Repeat("x", most-1000), strings.Repeat("x", most+1000)
	for _, tt := range []struct {
		name     string
		route    openai.Route
		body     string
		computed int // requests
		why      string
	}{
		{"chat, long", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`, 1, "too_long"},
		{"chat", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"` + larger + `"}]}`, 0, "too_long"},
		{"chat, in many messages", openai.Chat, `{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+larger[:most/8]+`"},`, 8) + `{"role":"user","content":"x"}]}`, 0, "too_long"},
		{"chat, in a tool", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f","description":"` + larger + `"}}]}`, 0, "too_long"},
		{"chat, in a document", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"documents":[{"text":"` + larger + `"}]}`, 0, "too_long"},
		{"chat, in the template's arguments", openai.Chat, `{"model":"m","messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"a":"` + larger + `"}}`, 0, "too_long"},
		{"chat, much beside the prompt", openai.Chat, `{"model":"m","user":"` + larger + `","messages":[{"role":"user","content":"hi"}]}`, 1, ""},
		{"chat, an image", openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:` + larger + `"}}]}]}`, 1, "multimodal"},
		{"completions, long", openai.Completions, `{"model":"m","prompt":"` + long + `"}`, 1, "too_long"},
		{"completions", openai.Completions, `{"model":"m","prompt":"` + larger + `"}`, 0, "too_long"},
		{"completions, one of two", openai.Completions, `{"model":"m","prompt":["x","` + larger + `"]}`, 0, "too_long"},
		{"completions, many short ones", openai.Completions, `{"model":"m","prompt":[` + strings.Repeat(`"`+long[:3000]+`",`, 99) + `"x"]}`, 1, ""},
		{"responses", openai.Responses, `{"model":"m","input":"` + larger + `"}`, 0, "too_long"},
		{"messages", openai.Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"` + larger + `"}]}`, 0, "too_long"},
	} {
		m.requests, seen.refused = 0, nil
		_, err := l.Tokens(t.Context(), parse(t, tt.route, tt.body), someModel)
		if why := strings.Join(seen.refused, " "); why != tt.why || (err == nil) != (why == "") || m.requests != tt.computed {
			t.Errorf("%s: refused %q, %v, %d requests rendered; want %q, %d", tt.name, why, err, m.requests, tt.why, tt.computed)
		}
	}
}

func TestContextLength(t *testing.T) {
	m := &localModel{}
	if !m.fits(1<<20, false) || m.fits(1, true) {
		t.Error("an unknown context: any length, unless it may be cut")
	}
	m.limit.Store(10)
	m.cut.Store(10)
	if !m.fits(10, false) || m.fits(11, false) || !m.fits(9, true) || m.fits(10, true) {
		t.Error("the servers' context")
	}
	m.info.MaxLen = 20
	if !m.fits(11, false) {
		t.Error("what is configured goes first")
	}
}

func TestChooserOrder(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	var counted []string
	c := &Chooser{Local: l, Remote: l.o.Reference}
	ask := func(req *openai.Request) {
		result, err := c.Tokens(t.Context(), req, someModel)
		if err != nil {
			result.Source = "none"
		}
		counted = append(counted, result.Source)
	}
	ask(parse(t, openai.Completions, `{"model":"m","prompt":[1,2]}`))
	ask(chatRequest(t, "before"))
	l.CheckAll(t.Context())
	ask(chatRequest(t, "after"))
	f.status.Store(400)
	ask(parse(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`))
	if got := fmt.Sprint(counted); got != "[body render in_process none]" {
		t.Error(got)
	}
}

// TestChooserAsksNoReplicaThatRendersOtherwise: vLLM 0.32 answers a message with disabled thinking
// by another text than its /render, if the template takes the effort "none" for another one.
func TestChooserAsksNoReplicaThatRendersOtherwise(t *testing.T) {
	model := bytesModel(t, `{{ {"low":"a","none":"b","max":"b"}[reasoning_effort or "max"] }}{{ messages[0].content }}`, Flags{})
	f, l, seen := differing(t, model, model)
	asked := f.asked.Load()
	c := &Chooser{Local: l, Remote: l.o.Reference}
	_, err := c.Tokens(t.Context(), parse(t, openai.Messages, `{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"}}`), someModel)
	if !errors.Is(err, ErrNone) || f.asked.Load() != asked {
		t.Errorf("%v, %d questions, refused %v", err, f.asked.Load()-asked, seen)
	}
}

func TestProbesAreGood(t *testing.T) {
	r := must.Get(fakeModel(t).Renderer(t.Context(), "0.32.0", false))(t)
	var all openai.Features
	list := probes("odd \"name\" \xff\u2028")
	if len(list) != len(probeBodies) {
		t.Errorf("%d of %d can be read", len(list), len(probeBodies))
	}
	for _, req := range list {
		_, features, _, err := r.Prompts(render.Job{Request: req, Now: time.Now(), Room: new([]uint32)})
		if err != nil || !json.Valid(req.Body()) {
			t.Errorf("%v: %s", err, req.Body())
		}
		all |= features
	}
	for _, f := range openai.AllFeatures() {
		if all&f == 0 {
			t.Errorf("no probe uses %s", f)
		}
	}
}
