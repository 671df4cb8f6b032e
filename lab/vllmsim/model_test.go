package vllmsim

import (
	"slices"
	"testing"

	"warmroute/internal/tokens"
	"warmroute/render"
	"warmroute/render/openai"
)

func model(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := WriteModel(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// FuzzModel: who reads the model's files computes the simulator's tokens.
func FuzzModel(f *testing.F) {
	for _, s := range []string{"The long person, 1024 times.", "<|im_start|>system\n<|im_end", "  \t x  \n\n a \r\n", "日本語\u00a0 text naïve", " <|im_end|> a  <|im_end|>",
		"\x00\x01 \x7f A1b2 __x  ", "three   spaces    four"} {
		f.Add(s)
	}
	m, err := render.Open(f.Context(), model(f), render.Flags{StoreBytes: -1})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = string([]rune(text)) // as JSON gives it
		if ours, theirs := encode(nil, text), m.Encode(nil, []byte(text), true); !slices.Equal(ours, theirs) {
			t.Errorf("%q: %d, the files give %d", text, ours, theirs)
		}
	})
}

// TestStartUpCheck: a replica confirms all that is computed from the files.
func TestStartUpCheck(t *testing.T) {
	s := startSim(t, fast(Options{Model: "m"}))
	endpoints := []tokens.Endpoint{{URL: "http://" + s.Addr(), Version: string(V032), Render: true}}
	checked := map[string]int{}
	local := tokens.NewLocal(tokens.LocalOptions{
		Reference: tokens.NewRemote(tokens.RemoteOptions{Endpoints: func(tokens.Served) []tokens.Endpoint { return endpoints }}),
		Endpoints: func(string) []tokens.Endpoint { return endpoints },
		Hooks:     tokens.Hooks{Checked: func(_, outcome string) { checked[outcome]++ }, Demoted: func(_, feature string) { t.Errorf("%s differs", feature) }},
	})
	m, err := tokens.LoadFolder(t.Context(), model(t), tokens.Flags{})
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Load("m", m); err != nil {
		t.Fatal(err)
	}
	local.CheckAll(t.Context())
	if checked[tokens.Equal] < 30 || len(checked) != 1 {
		t.Errorf("%v", checked)
	}
	result, err := local.Tokens(t.Context(), mustParse(t, `{"model":"m","messages":[{"role":"user","content":"hi"}]}`), tokens.Served{Model: "m"})
	if err != nil || result.Source != tokens.FromInProcess {
		t.Errorf("%+v, %v", result, err)
	}
}

func mustParse(t *testing.T, body string) *openai.Request {
	t.Helper()
	req, err := openai.Parse(openai.Chat, []byte(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}
