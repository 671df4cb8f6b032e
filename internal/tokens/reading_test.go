package tokens

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// twoReadings is fakeModel with another reading, whose ids begin with a 7.
type twoReadings struct{ Model }

func (m twoReadings) Info() render.Info {
	info := m.Model.Info()
	info.ByClass = true
	return info
}

func (m twoReadings) Renderer(ctx context.Context, version string, byClass bool) (Renderer, error) {
	r, err := m.Model.Renderer(ctx, version, false)
	if byClass {
		r = markedRenderer{r}
	}
	return r, err
}

type markedRenderer struct{ Renderer }

func (m markedRenderer) Prompts(j render.Job) ([][]uint32, openai.Features, uint64, error) {
	ids, f, setting, err := m.Renderer.Prompts(j)
	return marked(ids, 7), f, setting, err
}

func marked(prompts [][]uint32, mark uint32) [][]uint32 {
	for i := range prompts {
		prompts[i] = append([]uint32{mark}, prompts[i]...)
	}
	return prompts
}

// A replica's answer decides how a model's files are read.
func TestAReplicaDecidesHowFilesAreRead(t *testing.T) {
	for name, tt := range map[string]struct {
		mark    uint32 // of the server's ids, 0 = none
		want    uint32 // first id of ours, 0 = none are computed here
		demoted bool
	}{
		"as the file says": {0, '<', false},
		"by the class":     {7, 7, false},
		"neither":          {8, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeServer(t)
			right := honest(t)
			f.answer = func(path string, body []byte) [][]uint32 {
				if tt.mark == 0 {
					return right(path, body)
				}
				return marked(right(path, body), tt.mark)
			}
			l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1})
			must.Do(t, l.Load("m", twoReadings{fakeModel(t)}))
			f.status.Store(503) // no replica answers yet: nothing is decided
			l.CheckAll(t.Context())
			if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); !errors.Is(err, ErrNone) {
				t.Errorf("before a replica answered: %v", err)
			}
			f.status.Store(0)
			l.CheckAll(t.Context())
			got, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel)
			switch {
			case tt.want == 0:
				if !errors.Is(err, ErrNone) {
					t.Errorf("%v %v", got, err)
				}
			case err != nil || got.Prompts[0].Tokens[0] != tt.want:
				t.Errorf("%v %v", got, err)
			}
			if (len(seen.demoted) > 0) != tt.demoted {
				t.Errorf("demoted %v", seen.demoted)
			}
			if v, _ := l.models.Load("m"); !v.(*localModel).chosen {
				t.Error("it is not decided")
			}
		})
	}
}

// A new version of the servers leads to a new decision.
func TestReadingIsDecidedPerVersion(t *testing.T) {
	f := newFakeServer(t)
	right, mark := honest(t), uint32(7)
	f.answer = func(path string, body []byte) [][]uint32 {
		if mark == 0 {
			return right(path, body)
		}
		return marked(right(path, body), mark)
	}
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	version := "0.32.0"
	l.o.Endpoints = func(string) []Endpoint { return []Endpoint{{URL: f.URL, Version: version, Render: true}} }
	must.Do(t, l.Load("m", twoReadings{fakeModel(t)}))
	for _, want := range []uint32{7, '<', 7} {
		if mark = 0; want == 7 {
			mark = 7
		}
		l.CheckAll(t.Context())
		got, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel)
		if err != nil || got.Prompts[0].Tokens[0] != want {
			t.Fatalf("version %s: %v %v, want %d first", version, got, err, want)
		}
		version += "1"
	}
}

func writeTemplate(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "t.jinja")
	must.Do(t, os.WriteFile(path, []byte(fakeTemplate), 0o600))
	return path
}

// Of a folder that transformers may read by the tokenizer's class, a replica's ids by that
// class are computed.
func TestFolderWithTwoReadings(t *testing.T) {
	m := must.Get(LoadFolder(t.Context(), filepath.Join("..", "..", ".cache", "models", "llama2"), Flags{ChatTemplate: writeTemplate(t), Transformers: "5.19.0"}))(t)
	const body = `{"model":"m","prompt":"a</s> b  c","add_special_tokens":false}`
	byFile, byClass := answers(t, m, false), answers(t, m, true)
	want := byClass("/v1/completions", []byte(body))
	if slices.EqualFunc(want, byFile("/v1/completions", []byte(body)), slices.Equal) {
		t.Fatal("the text does not tell the two apart")
	}
	f := newFakeServer(t)
	f.answer = byClass
	l, seen := newLocal(t, f, LocalOptions{SampleEvery: -1})
	must.Do(t, l.Load("m", m))
	l.CheckAll(t.Context())
	got, err := l.Tokens(t.Context(), parse(t, openai.Completions, body), someModel)
	if _, equal := firstDifference(want, got.Prompts); err != nil || !equal {
		t.Errorf("%v %v", got, err)
	}
	if len(seen.demoted) > 0 {
		t.Errorf("demoted %v", seen.demoted)
	}
}
