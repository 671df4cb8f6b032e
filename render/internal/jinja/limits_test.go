package jinja

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/render/internal/pyvalue"
)

func parseVars(t testing.TB, text string) *pyvalue.Dict {
	t.Helper()
	v, err := pyvalue.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v.(*pyvalue.Dict)
}

// hang is more than ten times the time of the slowest bounded render under the race
// detector on a busy machine. Steps and bytes bound a render; this only distinguishes a
// hang from work.
const hang = 2 * time.Minute

// Hostile templates and requests end with a limit's error in bounded time.
func TestLimits(t *testing.T) {
	deep := strings.Repeat("[", 400) + strings.Repeat("]", 400)
	cases := []struct {
		name, template, vars string
		want                 error
	}{
		{"range", "{% for i in range(10**9) %}{% endfor %}", "{}", ErrRuntime},
		{"loops", "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "{}", ErrLimit},
		{"output", "{% for i in range(100000) %}{{ s }}{% endfor %}", `{"s":"` + strings.Repeat("x", 10000) + `"}`, ErrLimit},
		{"repeat", "{{ 'x' * 10**12 }}", "{}", ErrLimit},
		{"repeat list", "{{ ([1] * 10**9)|length }}", "{}", ErrLimit},
		{"doubling", "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}", "{}", ErrLimit},
		{"doubling by +", "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}", "{}", ErrLimit},
		{"list doubling", "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "{}", ErrLimit},
		{"replace", "{% set ns = namespace(s='aaaaaaaaaa') %}{% for i in range(30) %}{% set ns.s = ns.s.replace('a', 'aaaaaaaaaa') %}{% endfor %}", "{}", ErrLimit},
		{"recursion", "{% macro m(x) %}{{ m(x) }}{% endmacro %}{{ m(1) }}", "{}", ErrLimit},
		{"mutual recursion", "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}", "{}", ErrLimit},
		{"loop recursion", "{% set l = [[]] %}{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "{}", ErrLimit},
		{"power", "{{ 10 ** (10 ** 10) }}", "{}", ErrLimit},
		{"power tower", "{% set ns = namespace(n=9) %}{% for i in range(30) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", "{}", ErrLimit},
		{"nested value", "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l }}", "{}", ErrLimit},
		{"nested json", "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l|tojson }}", "{}", ErrLimit},
		{"nested equality", "{% set a = namespace(l=[]) %}{% set b = namespace(l=[]) %}{% for i in range(100000) %}{% set a.l = [a.l] %}{% set b.l = [b.l] %}{% endfor %}{{ a.l == b.l }}", "{}", ErrLimit},
		{"width", "{{ '%99999999999d' % 1 }}", "{}", ErrLimit},
		{"center", "{{ 'x'|center(10**11) }}", "{}", ErrLimit},
		{"indent", "{{ 'x\n'|indent(10**11) }}", "{}", ErrLimit},
		{"format", "{{ '{:99999999999}'.format(1) }}", "{}", ErrLimit},
		{"generators", "{% set ns = namespace(g=range(3)) %}{% for i in range(100000) %}{% set ns.g = ns.g|map('string') %}{% endfor %}{{ ns.g|list }}", "{}", ErrLimit},
		{"deep data is fine", "{{ l|string|length }}", `{"l":` + deep + `}`, nil},
		{"self-containing", "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "{}", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			start := time.Now()
			tmpl, err := Compile(c.template, Options{})
			if err == nil {
				_, err = tmpl.Render(nil, parseVars(t, c.vars), Env{})
			}
			if !errors.Is(err, c.want) {
				t.Errorf("error %v (%s), want %v", err, detailOf(err), c.want)
			}
			if d := time.Since(start); d > hang {
				t.Errorf("took %v", d)
			}
		})
	}
}

func detailOf(err error) string {
	if err == nil {
		return ""
	}
	return Detail(err)
}

// Templates that nest without end do not compile, and do not overflow either.
func TestCompileLimits(t *testing.T) {
	for name, src := range map[string]string{
		"parentheses": "{{ " + strings.Repeat("(", 100000) + "1" + strings.Repeat(")", 100000) + " }}",
		"lists":       "{{ " + strings.Repeat("[", 100000),
		"not":         "{{ " + strings.Repeat("not ", 100000) + "1 }}",
		"minus":       "{{ " + strings.Repeat("-", 100000) + "1 }}",
		"sum":         "{{ 1" + strings.Repeat("+1", 100000) + " }}",
		"attributes":  "{{ a" + strings.Repeat(".b", 100000) + " }}",
		"filters":     "{{ a" + strings.Repeat("|upper", 100000) + " }}",
		"ifs":         strings.Repeat("{% if 1 %}", 100000),
		"loops":       strings.Repeat("{% for i in x %}", 25) + strings.Repeat("{% endfor %}", 25),
		"conditions":  "{{ a" + strings.Repeat(" if b else c", 100000) + " }}",
		"large":       strings.Repeat("x", MaxTemplate+1),
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Compile(src, Options{}); !errors.Is(err, ErrSyntax) {
				t.Errorf("error %v, want %v", err, ErrSyntax)
			}
		})
	}
}

// A tool schema with a union of types sends these published templates into
// endless recursion: Python raises RecursionError, other engines die.
func TestUnionTypesRecursion(t *testing.T) {
	vars := `{"messages":[{"role":"user","content":"x"}],"add_generation_prompt":true,"bos_token":"","eos_token":"",
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{"a":{"type":["integer","null"],"description":"x"}},"required":[]}}}]}`
	for _, name := range []string{
		"vllm__tool_chat_template_hermes", "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use",
		"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "CohereForAI-c4ai-command-r-plus-tool_use",
	} {
		tmpl, err := Compile(loadTemplate(t, name), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tmpl.Render(nil, parseVars(t, vars), Env{}); !errors.Is(err, ErrLimit) {
			t.Errorf("%s: error %v, want %v", name, err, ErrLimit)
		}
	}
}

// Errors never carry the request's text in Error().
func TestErrorsKeepContentPrivate(t *testing.T) {
	tmpl, err := Compile("a\n{{ raise_exception('bad ' + s) }}", Options{})
	if err != nil {
		t.Fatal(err)
	}
	dst := []byte("kept")
	out, err := tmpl.Render(dst, parseVars(t, `{"s":"secret"}`), Env{})
	if !errors.Is(err, ErrRaised) || strings.Contains(err.Error(), "secret") || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("error %v", err)
	}
	if Detail(err) != "bad secret" {
		t.Errorf("detail %q", Detail(err))
	}
	if string(out) != "kept" {
		t.Errorf("dst became %q", out)
	}
}

// One template renders in many goroutines at once.
func TestConcurrent(t *testing.T) {
	tmpl, err := Compile(loadTemplate(t, "hf__qwen3"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	conversations := loadConversations(t)
	want := loadRendered(t)["hf__qwen3"]
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				for _, c := range conversations {
					got, err := tmpl.Render(nil, c.vars, Env{Now: goldenClock})
					if (err != nil) != (want[c.name].Error != "") || string(got) != want[c.name].Text {
						t.Errorf("%s differs", c.name)
					}
				}
			}
		})
	}
	wg.Wait()
}

// A warm render allocates almost nothing, whatever the length of the conversation:
// neither for a loop over the messages nor for one over their parts.
func TestRenderAllocations(t *testing.T) {
	texts := parseVars(t, longConversation())
	parts := parseVars(t, longConversation())
	messages, _ := parts.GetString("messages")
	for _, m := range messages.(*pyvalue.List).Items {
		m := m.(*pyvalue.Dict)
		text, _ := m.GetString("content")
		part := pyvalue.NewDict()
		part.Set("type", "text")
		part.Set("text", strings.TrimSpace(text.(string)))
		m.Set("content", pyvalue.NewList(part))
	}
	for _, c := range []struct {
		template string
		vars     *pyvalue.Dict
	}{{"vllm__template_chatml", texts}, {"hf__gemma3", parts}} {
		tmpl, err := Compile(loadTemplate(t, c.template), Options{})
		if err != nil {
			t.Fatal(err)
		}
		buf, err := tmpl.Render(nil, c.vars, Env{})
		if err != nil {
			t.Fatal(err)
		}
		allocs := testing.AllocsPerRun(20, func() {
			if buf, err = tmpl.Render(buf[:0], c.vars, Env{}); err != nil {
				t.Fatal(err)
			}
		})
		if allocs > 10 {
			t.Errorf("%s: %.0f allocations for 200 messages, want at most 10", c.template, allocs)
		}
	}
}
