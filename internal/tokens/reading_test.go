package tokens

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"warmroute/render"
	"warmroute/render/chat"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// markedEncoder's ids are byteEncoder's behind a mark.
type markedEncoder struct{ mark uint32 }

func (e markedEncoder) Append(b *work.Budget, dst []uint32, text []byte, special bool) []uint32 {
	return byteEncoder{}.Append(b, append(dst, e.mark), text, special)
}

// twoReadings is fakeModel with an alternative; loads counts how often it was loaded.
func twoReadings(loads *int) Model {
	m := fakeModel()
	m.Alternative = func() (render.Encoder, error) { *loads++; return markedEncoder{7}, nil }
	return m
}

func marked(prompts [][]uint32, mark uint32) [][]uint32 {
	for i := range prompts {
		prompts[i] = append([]uint32{mark}, prompts[i]...)
	}
	return prompts
}

// What a replica answers decides how a model's files are read.
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
			l, seen := newLocal(t, f, LocalOptions{LocalSettings: LocalSettings{SampleEvery: -1}})
			loads := 0
			if err := l.Load("m", twoReadings(&loads)); err != nil {
				t.Fatal(err)
			}
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
			if loads != 1 {
				t.Errorf("the alternative was loaded %d times", loads)
			}
			v, _ := l.models.Load("m")
			if m := v.(*localModel); m.other != nil || !m.chosen {
				t.Error("the other reading is kept although it is decided")
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
	l, _ := newLocal(t, f, LocalOptions{LocalSettings: LocalSettings{SampleEvery: -1}})
	version, loads := "0.32.0", 0
	l.o.Endpoints = func(string) []Endpoint { return []Endpoint{{URL: f.URL, Version: version, Render: true}} }
	if err := l.Load("m", twoReadings(&loads)); err != nil {
		t.Fatal(err)
	}
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
	if err := os.WriteFile(path, []byte(fakeTemplate), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A folder whose class transformers may encode by has the alternative, which
// gives that class's ids; another has none.
func TestFolderWithTwoReadings(t *testing.T) {
	dir := func(name string) string { return filepath.Join("..", "..", ".cache", "models", name) }
	if m := qwen(t); m.Alternative != nil {
		t.Error("Qwen3's file is read in one way only")
	}
	m, err := LoadFolder(dir("llama2"), Flags{ChatTemplate: writeTemplate(t), Transformers: "5.19.0"})
	if err != nil {
		t.Fatal(err)
	}
	byClass, err := m.Alternative()
	if err != nil {
		t.Fatal(err)
	}
	text := []byte("a</s> b  c")
	if slices.Equal(m.Encoder.Append(nil, nil, text, false), byClass.Append(nil, nil, text, false)) {
		t.Fatal("the text does not tell the two apart")
	}
	f := newFakeServer(t)
	o := m.Chat
	o.Version = "0.32.0"
	r, err := chat.New(o)
	if err != nil {
		t.Fatal(err)
	}
	f.answer = answers(r, byClass)
	l, seen := newLocal(t, f, LocalOptions{LocalSettings: LocalSettings{SampleEvery: -1}})
	if err := l.Load("m", m); err != nil {
		t.Fatal(err)
	}
	l.CheckAll(t.Context())
	req := parse(t, openai.Completions, `{"model":"m","prompt":"a</s> b  c","add_special_tokens":false}`)
	got, err := l.Tokens(t.Context(), req, someModel)
	if err != nil || !slices.Equal(got.Prompts[0].Tokens, byClass.Append(nil, nil, text, false)) {
		t.Errorf("%v %v", got, err)
	}
	if len(seen.demoted) > 0 {
		t.Errorf("demoted %v", seen.demoted)
	}
}
