package render_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
	"warmroute/render/work"
)

// TestSharedServer has several goroutines compute with servers of one model.
func TestSharedServer(t *testing.T) {
	m, err := render.Open(t.Context(), qwen, qwenFlags("5.19.0", 0))
	if err != nil {
		t.Fatal(err)
	}
	v, err := chattest.Read("internal/chat/testdata/qwen-0.32.0.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() {
			s, err := m.Server(t.Context(), "0.32.0", nil)
			if err != nil {
				t.Error(err)
				return
			}
			for _, c := range v.Vectors[:60] {
				if ids, err := s.Tokenize(c.Path, []byte(c.Body)); c.Status == 0 && err == nil && !slices.EqualFunc(ids, c.IDs, slices.Equal) {
					t.Errorf("other ids: %s", c.Body)
				}
			}
		})
	}
	running.Wait()
}

// TestByClass holds for a folder that transformers may read in two ways, and for another.
func TestByClass(t *testing.T) {
	if _, err := server(t, qwen, render.Flags{}, "0.32.0", nil).ByClass(); err == nil {
		t.Error("Qwen3's file is read in one way only")
	}
	byFile := server(t, filepath.Join("..", ".cache", "models", "llama2"), render.Flags{}, "0.32.0", nil)
	byClass, err := byFile.ByClass()
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"model":"m","prompt":"a</s> b  c"}`)
	file, err := byFile.Tokenize("/v1/completions", body)
	class, classErr := byClass.Tokenize("/v1/completions", body)
	if err != nil || classErr != nil || slices.Equal(file[0], class[0]) {
		t.Errorf("%v %v, %v %v", file, err, class, classErr)
	}
}

// TestInfo describes a model that a template renders, and two that code does.
func TestInfo(t *testing.T) {
	for dir, want := range map[string]render.Info{
		chattest.BytesFolder(t, "{{ 1 }}"): {Template: "{{ 1 }}", MaxLen: 7},
		chattest.MistralFolder(t, 3, true): {Code: "mistral-common", MaxLen: 7},
		codedFamilies[0].folder(t):         {Code: "harmony (openai_harmony)", MaxLen: 7},
	} {
		m, err := render.Open(t.Context(), dir, render.Flags{MaxLen: 7})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.Info(); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// TestErrors distinguishes objections of vLLM, requests that are not computed here,
// prompts that do not fit and ends of the budget.
func TestErrors(t *testing.T) {
	s := server(t, chattest.BytesFolder(t, "{{ messages[0].content }}"), render.Flags{MaxLen: 4}, "0.32.0", nil)
	chat := func(fields string) string { return `{"model":"m","messages":[` + fields + `}` }
	var refusal *render.Refusal
	for body, is := range map[string]func(error) bool{
		chat(`{"role":"user","content":"hi"}]`): func(err error) bool { return err == nil },
		chat(`]`):                               func(err error) bool { return errors.Is(err, render.ErrRejected) },
		chat(`{"role":"user","content":[{"type":"image_url"}]}]`):               func(err error) bool { return errors.As(err, &refusal) && refusal.Why == "multimodal" },
		chat(`{"role":"user","content":"hi"}],"chat_template":"x"`):             func(err error) bool { return errors.As(err, &refusal) && refusal.Why == "request_template" },
		chat(`{"role":"user","content":"hello"}]`):                              func(err error) bool { return errors.Is(err, render.ErrUnfit) },
		chat(`{"role":"user","content":"` + fmt.Sprintf("%100000d", 1) + `"}]`): work.Is,
	} {
		b := work.New(t.Context(), work.Limits{Steps: 1000, StepsPerByte: 1 << 20}, 0)
		if _, err := s.TokenizeInto(b, new([]uint32), "/v1/chat/completions", []byte(body)); !is(err) {
			t.Errorf("%.100s: %v", body, err)
		}
	}
	if _, err := s.Tokenize("/v1/embeddings", []byte("{}")); err == nil {
		t.Error("a path without prompts must be refused")
	}
}

// TestBudgetOfReading ends the work on bodies that cost nothing but their reading.
func TestBudgetOfReading(t *testing.T) {
	s := server(t, chattest.BytesFolder(t, "{{ 1 }}"), render.Flags{}, "0.32.0", nil)
	ids := `{"model":"m","prompt":[1` + strings.Repeat(",1", 1<<20) + `]}`
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for name, c := range map[string]struct {
		b    *work.Budget
		want error
	}{
		"steps":   {work.New(t.Context(), work.Limits{Steps: 1000}, 0), work.ErrSteps},
		"memory":  {work.New(t.Context(), work.Limits{Memory: 1 << 20}, 0), work.ErrMemory},
		"context": {work.New(ended, work.Limits{}, len(ids)), work.ErrEnded},
	} {
		if _, err := s.TokenizeInto(c.b, new([]uint32), "/v1/completions", []byte(ids)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := s.TokenizeInto(work.New(t.Context(), work.Limits{}, len(ids)), new([]uint32), "/v1/completions", []byte(ids)); err != nil || len(got[0]) != 1<<20+1 {
		t.Errorf("within the budget: %v", err)
	}
}

// TestJobWithoutRoom takes memory of its own.
func TestJobWithoutRoom(t *testing.T) {
	s := server(t, chattest.BytesFolder(t, "{{ messages[0].content }}"), render.Flags{}, "0.32.0", nil)
	req, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ids, _, _, err := s.Prompts(render.Job{Request: req, Now: time.Unix(0, 0)})
	if err != nil || len(ids) != 1 || len(ids[0]) != 2 {
		t.Errorf("%v %v", ids, err)
	}
}

// TestAppendText gives the text before it is encoded.
func TestAppendText(t *testing.T) {
	s := server(t, chattest.BytesFolder(t, "{{ messages[0].content }}!"), render.Flags{}, "0.32.0", nil)
	text, special, err := s.AppendText([]byte("x"), "/v1/chat/completions", []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if string(text) != "xhi!" || special || err != nil {
		t.Errorf("%q %v %v", text, special, err)
	}
	if _, _, err := s.AppendText(nil, "/v1/completions", []byte(`{"model":"m","prompt":"hi"}`)); err == nil {
		t.Error("a completion has no text of its own")
	}
}

// TestMoments has two days near the servers' midnight where the template prints the day.
func TestMoments(t *testing.T) {
	dated := server(t, chattest.BytesFolder(t, "{{ strftime_now('%d') }}"), render.Flags{}, "0.32.0", nil)
	plain := server(t, chattest.BytesFolder(t, "{{ 1 }}"), render.Flags{}, "0.32.0", nil)
	noon := time.Date(2026, 3, 5, 12, 0, 0, 0, time.UTC)
	late := noon.Add(12*time.Hour - 3*time.Minute)
	if len(dated.Moments(noon)) != 1 || len(plain.Moments(late)) != 1 {
		t.Error("two days where there is one")
	}
	moments := dated.Moments(late)
	if len(moments) != 2 || moments[0].Day() != 5 || moments[1].Day() != 6 {
		t.Fatalf("%v", moments)
	}
	req, err := openai.Parse(openai.Chat, []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	ids, features, _, err := dated.Prompts(render.Job{Request: req, Now: moments[1], Room: new([]uint32)})
	if err != nil || features != openai.FeatureChat || !slices.Equal(ids[0], []uint32{'0', '6'}) {
		t.Errorf("%v %v %v", ids, features, err)
	}
}
