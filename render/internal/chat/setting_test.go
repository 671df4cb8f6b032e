package chat

import (
	"errors"
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
)

// A setting tells values apart that flags may change, and nothing else.
func TestSetting(t *testing.T) {
	gptOSS := Options{Model: Model{Type: "gpt_oss"}, Version: "0.33.0"}
	styled := Options{Template: "{{ style }}", Version: "0.33.0"}
	tools := `"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"f"}}]`
	for _, c := range []struct {
		name  string
		o     Options
		route openai.Route
		same  []string // bodies of one setting
		other []string // bodies of other settings, each of its own
	}{
		{"effort", styled, openai.Chat, []string{`"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low"`, `"messages":[{"role":"user","content":"y"}],"reasoning_effort":"low","chat_template_kwargs":{"unread":1}`},
			[]string{`"messages":[{"role":"user","content":"x"}]`, `"messages":[{"role":"user","content":"x"}],"reasoning_effort":"max"`,
				tools + `,"reasoning_effort":"low"`, `"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low","add_generation_prompt":false`,
				tools + `,"reasoning_effort":"low","add_generation_prompt":false`, `"messages":[{"role":"user","content":"x"}],"reasoning_effort":"low","chat_template_kwargs":{"style":1}`}},
		{"kwargs", styled, openai.Chat, []string{`"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"style":[1.0,{"a":null}]}`, `"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"style": [1.0, {"a": null}]}`},
			[]string{`"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"style":[1,{"a":null}]}`, `"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{"style":"1"}`}},
		{"tool choice", styled, openai.Chat, []string{tools, tools + `,"tool_choice":"auto"`}, []string{tools + `,"tool_choice":"none"`}},
		{"tools of the server", gptOSS, openai.Responses, []string{`"input":"x"`, `"input":"x","tools":[{"type":"function","name":"f"}]`},
			[]string{`"input":"x","tools":[{"type":"web_search_preview"}]`, `"input":"x","tools":[{"type":"code_interpreter","container":{"type":"auto"}}]`}},
		{"effort of gpt-oss", gptOSS, openai.Chat, []string{`"messages":[{"role":"user","content":"x"}]`}, []string{`"messages":[{"role":"user","content":"x"}],"reasoning_effort":"high"`}},
		{"thinking", Options{Template: "x", Version: "0.33.0", DisabledThinkingEffort: "none"}, openai.Messages, []string{`"max_tokens":2000,"messages":[{"role":"user","content":"x"}]`,
			`"max_tokens":2000,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"enabled","budget_tokens":1024}`},
			[]string{`"max_tokens":2000,"messages":[{"role":"user","content":"x"}],"thinking":{"type":"disabled"}`}},
	} {
		r, err := New(c.o)
		if err != nil {
			t.Fatal(err)
		}
		setting := func(body string) uint64 {
			req, err := openai.Parse(c.route, []byte(`{"model":"m",`+body+`}`))
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.Render(nil, nil, req, time.Unix(0, 0))
			if err != nil {
				t.Fatalf("%s: %s: %v", c.name, body, err)
			}
			return out.Setting
		}
		seen := map[uint64]string{}
		for _, body := range c.same {
			seen[setting(body)] = body
		}
		if len(seen) != 1 {
			t.Errorf("%s: one setting is %v", c.name, seen)
		}
		for _, body := range c.other {
			if s := setting(body); seen[s] != "" {
				t.Errorf("%s: the settings of %s and %s are the same", c.name, body, seen[s])
			} else {
				seen[s] = body
			}
		}
	}
}

// --reasoning-effort-map changes the effort of a request, and none in its kwargs.
func TestEffortMap(t *testing.T) {
	o := Options{Template: `{{ reasoning_effort }} {{ enable_thinking }}`, Version: "0.33.0", DisabledThinkingEffort: "none",
		EffortMap: map[string]string{"medium": "low", "max": "mighty", "none": "high", "high": "none", "xhigh": "auto"}}
	user := `"max_tokens":9,"messages":[{"role":"user","content":"x"}]`
	for _, c := range []struct {
		route      openai.Route
		body, want string
	}{
		{openai.Chat, user + `,"reasoning_effort":"low"`, "low True"},
		{openai.Chat, user + `,"reasoning_effort":"medium"`, "low True"},
		{openai.Chat, user + `,"reasoning_effort":"max"`, "mighty True"},
		{openai.Chat, user + `,"reasoning_effort":"none"`, "high True"},
		{openai.Chat, user + `,"reasoning_effort":"high"`, "none False"},
		{openai.Chat, user + `,"reasoning_effort":"xhigh"`, " True"},
		{openai.Chat, user + `,"reasoning_effort":"medium","chat_template_kwargs":{"enable_thinking":false}`, "low False"},
		{openai.Chat, user + `,"chat_template_kwargs":{"reasoning_effort":"medium"}`, "medium "},
		{openai.Responses, `"input":"x","reasoning":{"effort":"medium"}`, "low True"},
		{openai.Messages, user + `,"output_config":{"effort":"medium"}`, "low True"},
		{openai.Messages, user + `,"thinking":{"type":"disabled"}`, "high True"},
	} {
		if got := render(t, o, c.route, c.body); got != c.want {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
	gptOSS := Options{Model: Model{Type: "gpt_oss"}, Version: "0.33.0", EffortMap: map[string]string{"max": "high"}}
	for route, body := range map[openai.Route]string{openai.Chat: user + `,"reasoning_effort":"max"`, openai.Responses: `"input":"x","reasoning":{"effort":"max"}`} {
		if got := render(t, gptOSS, route, body); !strings.Contains(got, "Reasoning: high") {
			t.Errorf("%s: %q", body, got)
		}
	}
}

// From 0.33 on vLLM sees messages that a namespace keeps; for an unknown version both
// rules must give the same text.
func TestContentFormatByVersion(t *testing.T) {
	template := `{% set ns = namespace(all=messages) %}{% for m in ns.all %}{% if m.content is string %}text{% else %}{% for c in m.content %}part{% endfor %}{% endif %}{% endfor %}`
	for version, want := range map[string]string{"0.21.0": "text", "0.32.1": "text", "0.33.0": "part", "0.40.0": "part"} {
		o := Options{Template: template, Version: version}
		if got := render(t, o, openai.Chat, `"messages":[{"role":"user","content":"x"}]`); got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
	req := parse(t, openai.Chat, `"messages":[{"role":"user","content":"x"}]`)
	var not *NotInProcess
	if _, err := newRenderer(t, Options{Template: template}).Render(nil, nil, req, time.Unix(0, 0)); !errors.As(err, &not) || not.Why != VersionDiffers {
		t.Errorf("unknown: %v", err)
	}
}
