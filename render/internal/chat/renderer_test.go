package chat

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
)

func parse(t testing.TB, route openai.Route, body string) *openai.Request {
	t.Helper()
	req, err := openai.Parse(route, []byte(`{"model":"m",`+body+`}`))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return req
}

func newRenderer(t testing.TB, o Options) *Renderer {
	t.Helper()
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func whyOf(err error) Why {
	var not *NotInProcess
	if errors.As(err, &not) && errors.Is(err, ErrNotInProcess) {
		return not.Why
	}
	return ""
}

const plainTemplate = `{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}>{% endif %}`

func TestRefusals(t *testing.T) {
	r := newRenderer(t, Options{Template: plainTemplate, Version: "0.32.0"})
	user := `"messages":[{"role":"user","content":"x"}]`
	message := func(s string) string { return `"messages":[` + s + `]` }
	for _, c := range []struct {
		route openai.Route
		body  string
		want  Why
	}{
		{openai.Chat, user, ""},
		{openai.Chat, user + `,"chat_template":"{{ 1 }}"`, RequestTemplate},
		{openai.Chat, user + `,"truncate_prompt_tokens":5`, Truncation},
		{openai.Chat, user + `,"kv_transfer_params":{"prompt_token_ids":[1]}`, ReusedTokens},
		{openai.Chat, user + `,"kv_transfer_params":{"do_remote_decode":true}`, ""},
		{openai.Chat, user + `,"mm_processor_kwargs":{"a":1}`, Multimodal},
		{openai.Chat, user + `,"mm_processor_kwargs":[]`, Multimodal},
		{openai.Chat, user + `,"mm_processor_kwargs":{ },"media_io_kwargs":{}`, ""},
		{openai.Chat, user + `,"media_io_kwargs":null,"prompt_embeds":"x"`, ""},
		{openai.Completions, `"prompt":"x","mm_processor_kwargs":{}`, ""},
		{openai.Completions, `"prompt":"x","media_io_kwargs":{"image":{}}`, Multimodal},
		{openai.Responses, `"input":"x","media_io_kwargs":{}`, ""},
		{openai.Messages, user + `,"max_tokens":1,"mm_processor_kwargs":{"a":1},"media_io_kwargs":7`, ""}, // unknown there
		{openai.Chat, user + `,"chat_template_kwargs":{"tools":[]}`, ReservedKwargs},
		{openai.Chat, user + `,"chat_template_kwargs":[]`, Rejected},
		{openai.Chat, user + `,"tools":[]`, Rejected},
		{openai.Chat, user + `,"tool_choice":"auto"`, Rejected},
		{openai.Chat, user + `,"tool_choice":"none"`, ""},
		{openai.Chat, user + `,"tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"g"}}`, Rejected},
		{openai.Chat, user + `,"tools":[{"type":"web","function":{"name":"f"}}]`, Rejected},
		{openai.Chat, user + `,"tools":[{"function":{"name":"f","parameters":[]}}]`, Rejected},
		{openai.Chat, user + `,"tools":[{"function":{"name":"f","strict":"true"}}]`, UnknownShape},
		{openai.Chat, user + `,"reasoning_effort":"huge"`, Rejected},
		{openai.Chat, user + `,"add_generation_prompt":"yes"`, UnknownShape},
		{openai.Chat, user + `,"continue_final_message":true`, Rejected},
		{openai.Chat, user + `,"documents":[{"a":1}]`, Rejected},
		{openai.Chat, message(``), Rejected},
		{openai.Chat, message(`"x"`), Rejected},
		{openai.Chat, message(`{"content":"x"}`), Rejected},
		{openai.Chat, message(`{"role":"user","content":null}`), Rejected},
		{openai.Chat, message(`{"role":"assistant","content":null}`), ""},
		{openai.Chat, message(`{"role":"user","content":["a"]}`), Rejected},
		{openai.Chat, message(`{"role":"tool","content":["a"]}`), ""},
		{openai.Chat, message(`{"role":"user","content":[{"type":"text","text":null}]}`), Rejected},
		{openai.Chat, message(`{"role":"user","content":[{"type":"input_text","text":"x"}]}`), UnknownShape},
		{openai.Chat, message(`{"role":"user","content":[{"type":"text","text":"x","uuid":"u"}]}`), Rejected},
		{openai.Chat, message(`{"role":"user","content":[{"type":"image_url"}]}`), Multimodal},
		{openai.Chat, message(`{"role":"user","content":[{"type":"strange"}]}`), Multimodal},
		{openai.Chat, message(`{"role":"user","content":"x","name":null}`), Rejected},
		{openai.Chat, message(`{"role":"user","content":"x","tool_calls":[{}]}`), ""},
		{openai.Chat, message(`{"role":"observation","content":"x","tool_calls":[{}]}`), UnknownShape},
		{openai.Chat, message(`{"role":"developer","content":"x","tools":[{}]}`), UnknownShape},
		{openai.Chat, message(`{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]}`), Rejected},
		{openai.Chat, message(`{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":{}}}]}`), Rejected},
		{openai.Responses, `"input":"x"`, ""},
		{openai.Responses, `"input":"x","previous_response_id":"r"`, StoredState},
		{openai.Responses, `"input":"x","tools":[{"type":"web_search"}]`, ""},
		{openai.Responses, `"input":"x","tools":[{"type":"web_search_2025_08_26"},{"type":"web_search_preview"},{"type":"web_search_preview_2025_03_11"},{"type":"local_shell"},{"type":"shell"},
			{"type":"image_generation"},{"type":"tool_search"},{"type":"apply_patch"},{"type":"programmatic_tool_calling"},{"type":"computer"},{"type":"mcp","server_label":"x"},
			{"type":"file_search","vector_store_ids":["v"]},{"type":"code_interpreter","container":"c"},{"type":"computer_use_preview","display_height":6,"display_width":8,"environment":"e"}]`, ""},
		{openai.Responses, `"input":"x","tools":[{"type":"file_search"}]`, Rejected},
		{openai.Responses, `"input":"x","tools":[{"type":"unheard_of"}]`, UnknownShape},
		{openai.Responses, `"input":"x","tools":[{"type":"custom","name":"f","format":{"type":"grammar"}}]`, Rejected},
		{openai.Responses, `"input":"x","tools":[{"type":"web_search"}],"tool_choice":{"type":"function","name":"f"}`, Rejected},
		{openai.Responses, `"input":[{"type":"item_reference","id":"x"}]`, UnknownShape},
		{openai.Responses, `"input":[{"role":"user","content":[{"type":"input_image"}]}]`, Multimodal},
		{openai.Responses, `"input":[{"role":"user","content":"x","odd":1},{"type":"reasoning","summary":[],"odd":1}]`, ""},
		{openai.Responses, `"input":[{"role":"user","content":"x","name":"n"}]`, UnknownShape},
		{openai.Responses, `"input":[{"type":"message","role":"assistant","content":[{"type":"output_text","text":"x","annotations":{}},{"type":"output_text","text":"y"}]}]`, UnknownShape},
		{openai.Messages, user, Rejected}, // no max_tokens
		{openai.Messages, user + `,"max_tokens":1`, ""},
		{openai.Messages, `"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]`, Multimodal},
		{openai.Messages, user + `,"max_tokens":1,"tools":[{"type":"bash_20250124","name":"bash"}]`, Rejected},
		{openai.Messages, user + `,"max_tokens":5,"thinking":{"type":"enabled","budget_tokens":100}`, Rejected},
		{openai.Completions, `"prompt":"x"`, ""},
		{openai.Completions, `"prompt":"x","suffix":"y"`, RenderedInCode},
		{openai.Completions, `"prompt_embeds":"x"`, Multimodal},
	} {
		_, err := r.Render(nil, nil, parse(t, c.route, c.body), time.Now())
		if got := whyOf(err); got != c.want || (err == nil) != (c.want == "") {
			t.Errorf("%s %s: %q, want %q", c.route, c.body, got, c.want)
		}
	}
}

func TestNoTemplateAndCode(t *testing.T) {
	req := parse(t, openai.Chat, `"messages":[{"role":"user","content":"x"}]`)
	text := parse(t, openai.Completions, `"prompt":"x"`)
	for _, c := range []struct {
		o    Options
		want Why
	}{
		{Options{}, NoTemplate},
		{Options{Template: plainTemplate, Model: Model{Type: "kimi_k3"}}, RenderedInCode},
		{Options{Model: Model{Type: "gpt_oss"}, Version: "0.32.0"}, ""},
		{Options{Model: Model{Type: "gpt_oss"}}, VersionDiffers},
		{Options{Model: Model{Type: "gpt_oss"}, Version: "0.27.0"}, VersionDiffers},
		{Options{Model: Model{Architecture: "DeepseekV4ForCausalLM"}, Version: "0.21.0"}, VersionDiffers},
		{Options{Template: plainTemplate, Model: Model{TokenizerMode: "mistral"}}, RenderedInCode},
		{Options{Template: plainTemplate, Model: Model{Type: "mistral", MistralFormat: true}}, RenderedInCode},
		{Options{Template: plainTemplate, Model: Model{Type: "mistral", MistralFormat: true, TokenizerMode: "hf"}}, ""},
		{Options{Template: plainTemplate, Model: Model{Type: "qwen3"}}, ""},
		{Options{Template: `{{ raise_exception("no") }}`}, TemplateFailed},
	} {
		r := newRenderer(t, c.o)
		if _, err := r.Render(nil, nil, req, time.Now()); whyOf(err) != c.want {
			t.Errorf("%+v: %v, want %q", c.o.Model, err, c.want)
		}
		if _, err := r.Render(nil, nil, text, time.Now()); err != nil {
			t.Errorf("%+v: text needs no template: %v", c.o.Model, err)
		}
	}
	if _, err := New(Options{Template: "{% if %}"}); err == nil {
		t.Error("a broken template must be refused")
	}
	if _, err := New(Options{Template: plainTemplate, ContentFormat: "xml"}); err == nil || !strings.Contains(err.Error(), `"xml"`) {
		t.Errorf("content format: %v", err)
	}
}

func render(t *testing.T, o Options, route openai.Route, body string) string {
	t.Helper()
	out, err := newRenderer(t, o).Render(nil, []byte("kept"), parse(t, route, body), time.Date(2026, 3, 5, 23, 30, 0, 0, time.UTC))
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	text, ok := strings.CutPrefix(string(out.Text), "kept")
	if !ok {
		t.Fatal("dst was not kept")
	}
	return text
}

func TestServerFlags(t *testing.T) {
	user := `"messages":[{"role":"user","content":"x"}]`
	tools := user + `,"tools":[{"function":{"name":"f"}}],"tool_choice":"none"`
	kwargs := pyvalue.NewDict()
	kwargs.Set("style", "dry")
	zone := time.FixedZone("east", 3600)
	for _, c := range []struct {
		name string
		o    Options
		body string
		want string
	}{
		{"default kwargs", Options{Template: `{{ style }}`, DefaultKwargs: kwargs}, user, "dry"},
		{"request over default", Options{Template: `{{ style }}`, DefaultKwargs: kwargs}, user + `,"chat_template_kwargs":{"style":"wet"}`, "wet"},
		{"null keeps default", Options{Template: `{{ style }}`, DefaultKwargs: kwargs}, user + `,"chat_template_kwargs":{"style":null}`, "dry"},
		{"auto keeps default", Options{Template: `{{ style }}`, DefaultKwargs: kwargs}, user + `,"chat_template_kwargs":{"style":"auto"}`, "dry"},
		{"tools stay", Options{Template: `{{ tools is none }}`}, tools, "False"},
		{"tools excluded", Options{Template: `{{ tools is none }}`, ExcludeToolsWhenToolChoiceNone: true}, tools, "True"},
		{"tool template", Options{Template: `plain`, ToolTemplate: new(`tools`)}, tools, "tools"},
		{"tool template, no tools", Options{Template: `plain`, ToolTemplate: new(`tools`)}, user, "plain"},
		{"string format", Options{Template: `{{ messages[0].content is string }}`}, user, "True"},
		{"openai format forced", Options{Template: `{{ messages[0].content is string }}`, ContentFormat: FormatOpenAI}, user, "False"},
		{"format detected", Options{Template: `{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}`}, user, "x"},
		{"zone", Options{Template: `{{ strftime_now("%Y-%m-%d %H:%M") }}`, Location: zone}, user, "2026-03-06 00:30"},
		{"special tokens", Options{Template: `{{ bos_token }}`, SpecialTokens: map[string]string{"bos_token": "<s>"}}, user, "<s>"},
		{"kwargs over special tokens", Options{Template: `{{ bos_token }}`, SpecialTokens: map[string]string{"bos_token": "<s>"}}, user + `,"chat_template_kwargs":{"bos_token":"b"}`, "b"},
	} {
		c.o.Version = "0.32.0"
		if got := render(t, c.o, openai.Chat, c.body); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version, body string
		want          string // "" : the versions differ
	}{
		{"0.21.0", `{"role":"system","content":"x-anthropic-billing-header\ny"}`, "<system>x-anthropic-billing-header\ny>"},
		{"0.32.0", `{"role":"system","content":"x-anthropic-billing-header\ny"}`, "<system>y>"},
		{"0.40.1+cu130", `{"role":"system","content":"x-anthropic-billing-header\ny"}`, "<system>y>"},
		{"0.25.0", `{"role":"system","content":"x-anthropic-billing-header\ny"}`, ""},
		{"", `{"role":"system","content":"x-anthropic-billing-header\ny"}`, ""},
		{"", `{"role":"system","content":"same"}`, "<system>same>"},
		{"0.25.0", `{"role":"user","content":"same"}`, "<user>same>"},
		{"0.32.0", `{"role":"user","content":"u"},{"role":"developer","content":"d"}`, "<system>d<user>u>"},
		{"0.21.0", `{"role":"user","content":"u"},{"role":"developer","content":"d"}`, "<user>u<developer>d>"},
	} {
		r := newRenderer(t, Options{Template: plainTemplate, Version: c.version, Transformers: "5.19.0"})
		out, err := r.Render(nil, nil, parse(t, openai.Chat, `"messages":[`+c.body+`]`), time.Now())
		if c.want == "" {
			if whyOf(err) != VersionDiffers {
				t.Errorf("%s %s: %q %v", c.version, c.body, out.Text, err)
			}
		} else if err != nil || string(out.Text) != c.want {
			t.Errorf("%s %s: %q %v", c.version, c.body, out.Text, err)
		}
	}
}

func TestTransformersVersions(t *testing.T) {
	body := `"messages":[{"role":"assistant","content":"x","reasoning":"r"}]`
	reads := `{{ messages[0].thinking }}`
	for version, want := range map[string]string{"5.19.0": "", "5.23.1": "r", "4.57.0": ""} {
		if got := render(t, Options{Template: reads, Version: "0.32.0", Transformers: version}, openai.Chat, body); got != want {
			t.Errorf("%s: %q", version, got)
		}
	}
	for _, template := range []string{reads, `{{ messages[0] | tojson }}`, `{% for m in messages %}{{ m }}{% endfor %}`} {
		_, err := newRenderer(t, Options{Template: template, Version: "0.32.0"}).Render(nil, nil, parse(t, openai.Chat, body), time.Now())
		if whyOf(err) != TransformersDiffers {
			t.Errorf("%s: %v", template, err)
		}
	}
	if got := render(t, Options{Template: `{{ messages[0].reasoning }}`, Version: "0.32.0"}, openai.Chat, body); got != "r" {
		t.Errorf("where it does not matter: %q", got)
	}
}

func TestContinue(t *testing.T) {
	body := func(content string) string {
		return `"continue_final_message":true,"add_generation_prompt":false,"messages":[{"role":"assistant","content":` + content + `}]`
	}
	const trims = `{% for m in messages %}{{ m.content | trim }}|{% endfor %}`
	for _, c := range []struct{ template, content, want string }{
		{`a{{ messages[0].content }}b`, `"x "`, "ax "},
		{trims, `"x  "`, "x"},
		{trims, `"x"`, "x"},
		{`{% for p in messages[0].content %}{{ p.text }}{% endfor %}{% for m in messages %}{% for c in m.content %}{% endfor %}{% endfor %}`, `[{"type":"text","text":"a"},{"type":"text","text":"b"}]`, "ab"},
	} {
		if got := render(t, Options{Template: c.template, Version: "0.32.0"}, openai.Chat, body(c.content)); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.template, c.content, got, c.want)
		}
	}
	for _, template := range []string{`gone {# content #}`, `{{ messages | length }}`} {
		_, err := newRenderer(t, Options{Template: template, Version: "0.32.0"}).Render(nil, nil, parse(t, openai.Chat, body(`"x"`)), time.Now())
		if whyOf(err) != Rejected {
			t.Errorf("%s: %v", template, err)
		}
	}
}

func TestInlineSystem(t *testing.T) {
	body := `"max_tokens":1,"system":"a","messages":[{"role":"user","content":"u"},{"role":"system","content":"b"},{"role":"user","content":"v"}]`
	strict := `{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("first") }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}`
	for template, want := range map[string]string{
		plainTemplate: "<system>a<user>u<system>b<user>v>",
		strict:        "<system>ab<user>u<user>v",
	} {
		if got := render(t, Options{Template: template, Version: "0.32.0"}, openai.Messages, body); got != want {
			t.Errorf("%s: %q", template, got)
		}
	}
	dated := plainTemplate + `{{ strftime_now("%Y") }}`
	_, err := newRenderer(t, Options{Template: dated, Version: "0.32.0"}).Render(nil, nil, parse(t, openai.Messages, body), time.Now())
	if whyOf(err) != UnknownShape {
		t.Errorf("a template vLLM cannot probe: %v", err)
	}
	_, err = newRenderer(t, Options{Template: plainTemplate, Version: "0.21.0"}).Render(nil, nil, parse(t, openai.Messages, body), time.Now())
	if whyOf(err) != Rejected {
		t.Errorf("0.21 has no inline system messages: %v", err)
	}
}

func TestDisabledThinking(t *testing.T) {
	body := `"max_tokens":1,"messages":[{"role":"user","content":"u"}],"thinking":{"type":"disabled"},"output_config":{"effort":"high"}`
	if got := render(t, Options{Template: `{{ enable_thinking }} {{ reasoning_effort }} {{ messages[0].content }}`, Version: "0.32.0"}, openai.Messages, body); got != "False none u" {
		t.Errorf("%q", got)
	}
	// vLLM then disables thinking by the effort "low", but up to 0.32 not in its /render.
	const some = `{{ {"low":"a","none":"b","max":"b"}[reasoning_effort] }}{{ messages[0].content }}`
	_, err := newRenderer(t, Options{Template: some, Version: "0.32.0"}).Render(nil, nil, parse(t, openai.Messages, body), time.Now())
	if whyOf(err) != RenderDiffers {
		t.Errorf("a template that takes none for another effort: %v", err)
	}
	for o, want := range map[[2]string]string{{some, "0.33.0"}: "au", {"{{ messages[0].content }}", "0.32.0"}: "u"} {
		if got := render(t, Options{Template: o[0], Version: o[1]}, openai.Messages, body); got != want {
			t.Errorf("%s of %s: %q, want %q", o[0], o[1], got, want)
		}
	}
	if got := render(t, Options{Template: `{{ reasoning_effort }}`, Version: "0.32.0", DisabledThinkingEffort: "low"}, openai.Messages, body); got != "low" {
		t.Errorf("%q", got)
	}
}

// The documentation's table is the code's.
func TestCodedTableIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/tokens.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range coded {
		found := false
		for _, line := range strings.Split(string(doc), "\n") {
			if strings.HasPrefix(line, "| "+c.name+" |") {
				found = strings.Contains(line, c.renderer) && (c.mode == "" || strings.Contains(line, "`"+c.mode+"`"))
				for _, typ := range c.types {
					found = found && strings.Contains(line, "`"+typ+"`")
				}
			}
		}
		if !found {
			t.Errorf("docs/tokens.md has no complete row for %s", c.name)
		}
	}
	for _, why := range []Why{RenderedInCode, NoTemplate, Multimodal, Rejected, UnknownShape, RequestTemplate, ReservedKwargs, Truncation,
		StoredState, ReusedTokens, TemplateFailed, VersionDiffers, RenderDiffers, TransformersDiffers} {
		if !strings.Contains(string(doc), "`"+string(why)+"`") {
			t.Errorf("docs/tokens.md does not say what %s is", why)
		}
	}
}

func TestConcurrentRenders(t *testing.T) {
	r := newRenderer(t, Options{Template: templateFile(t, "parts.jinja"), Version: "0.32.0", Transformers: "5.19.0"})
	cases := chattest.Generate(7, 40, "m")
	var wg sync.WaitGroup
	for range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for _, c := range cases {
				req, err := openai.Parse(c.Route, []byte(c.Body))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = r.Render(nil, nil, req, time.Now())
			}
		}()
	}
	wg.Wait()
}

func FuzzRender(f *testing.F) {
	for i, c := range chattest.Generate(3, 30, "m") {
		f.Add(uint8(i), []byte(c.Body))
	}
	source, err := os.ReadFile("testdata/parts.jinja")
	if err != nil {
		f.Fatal(err)
	}
	var renderers []*Renderer
	for _, version := range []string{"0.21.0", "0.32.0", ""} {
		renderers = append(renderers, newRenderer(f, Options{Template: string(source), Version: version, ResponsesToolFields: functionToolFields}))
	}
	f.Fuzz(func(t *testing.T, n uint8, body []byte) {
		req, err := openai.Parse(openai.Routes[int(n)%len(openai.Routes)], body)
		if err != nil {
			return
		}
		before := string(body)
		for _, r := range renderers {
			if _, err := r.Render(nil, nil, req, time.Unix(0, 0)); err != nil && whyOf(err) == "" {
				t.Fatalf("an error without a reason: %v", err)
			}
		}
		if string(body) != before {
			t.Fatal("the body was changed")
		}
	})
}

// BenchmarkRender renders a conversation of about 4,000 tokens.
func BenchmarkRender(b *testing.B) {
	turn := strings.Repeat("The quick brown fox jumps over the lazy dog, said the expert. ", 12)
	var m strings.Builder
	for i := range 20 {
		if i > 0 {
			m.WriteByte(',')
		}
		m.WriteString(`{"role":"` + [2]string{"user", "assistant"}[i%2] + `","content":"` + turn + `"}`)
	}
	body := []byte(`{"model":"m","messages":[` + m.String() + `]}`)
	r := newRenderer(b, Options{Template: plainTemplate, Version: "0.32.0"})
	var dst []byte
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		req, err := openai.Parse(openai.Chat, body)
		if err != nil {
			b.Fatal(err)
		}
		out, err := r.Render(nil, dst[:0], req, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		dst = out.Text
	}
}
