package jinja

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/testkit/golden"
)

const (
	goldenTemplates     = 100
	goldenConversations = 30
)

// templateDir has the templates of other projects, which scripts/fetch-templates.sh puts
// there.
const templateDir = "../../../.cache/templates"

// goldenClock is the clock of the golden renders.
func goldenClock() time.Time { return time.Date(2026, 3, 5, 7, 8, 9, 0, time.UTC) }

// conversation is one of testdata/conversations.json.
type conversation struct {
	name string
	vars *pyvalue.Dict
}

// goldenRender is a text or Python's error.
type goldenRender struct {
	Text  string
	Error string
}

func (g *goldenRender) UnmarshalJSON(b []byte) error {
	if b[0] == '"' {
		return json.Unmarshal(b, &g.Text)
	}
	return json.Unmarshal(b, &struct{ Error *string }{&g.Error})
}

func loadTemplate(t testing.TB, name string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(templateDir, name+".jinja"))
	if err != nil {
		t.Fatalf("template %s is missing: run scripts/fetch-templates.sh (%v)", name, err)
	}
	return string(src)
}

func loadConversations(t testing.TB) []conversation {
	t.Helper()
	data, err := os.ReadFile("testdata/conversations.json")
	if err != nil {
		t.Fatal(err)
	}
	v, err := pyvalue.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	var out []conversation
	for _, item := range v.(*pyvalue.List).Items {
		c := item.(*pyvalue.Dict)
		name, _ := c.Get("name")
		out = append(out, conversation{name.(string), conversationVars(c)})
	}
	if len(out) != goldenConversations {
		t.Fatalf("%d conversations, want %d", len(out), goldenConversations)
	}
	return out
}

// conversationVars are the keyword arguments transformers gives the template.
func conversationVars(c *pyvalue.Dict) *pyvalue.Dict {
	vars := pyvalue.NewDict()
	for _, k := range []string{"messages", "tools", "documents", "add_generation_prompt"} {
		v, _ := c.Get(k)
		if k == "messages" {
			v = AliasReasoning(v)
		}
		vars.Set(k, v)
	}
	vars.Set("bos_token", "<BOS>")
	vars.Set("eos_token", "<EOS>")
	if kw, ok := c.Get("kwargs"); ok && kw != nil {
		for k, v := range kw.(*pyvalue.Dict).All() {
			vars.Set(k, v)
		}
	}
	return vars
}

func loadRendered(t testing.TB) map[string]map[string]goldenRender {
	t.Helper()
	var out map[string]map[string]goldenRender
	golden.Read(t, "testdata/rendered.json.gz", &out)
	if len(out) != goldenTemplates {
		t.Fatalf("%d templates, want %d", len(out), goldenTemplates)
	}
	return out
}

// Every template of every conversation: Python's text, or an error where
// Python raises.
func TestGolden(t *testing.T) {
	rendered := loadRendered(t)
	conversations := loadConversations(t)
	names := make([]string, 0, len(rendered))
	for name := range rendered {
		names = append(names, name)
	}
	sort.Strings(names)
	equal := 0
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			tmpl, compileErr := Compile(loadTemplate(t, name), Options{GuardNamespace: true})
			for _, c := range conversations {
				want, ok := rendered[name][c.name]
				if !ok {
					t.Fatalf("no golden render of %s", c.name)
				}
				var got []byte
				err := compileErr
				if err == nil {
					got, err = tmpl.Render(nil, c.vars, Env{Now: goldenClock})
				}
				switch {
				case err != nil && want.Error == "":
					t.Errorf("%s: error %v (%s), want a text", c.name, err, Detail(err))
				case err == nil && want.Error != "":
					t.Errorf("%s: rendered, want the error %q", c.name, want.Error)
				case string(got) != want.Text:
					i := 0
					for i < len(got) && i < len(want.Text) && got[i] == want.Text[i] {
						i++
					}
					t.Errorf("%s: differs at byte %d:\n got %q\nwant %q", c.name, i, clip(string(got), i), clip(want.Text, i))
				default:
					equal++
				}
			}
		})
	}
	if want := goldenTemplates * goldenConversations; equal != want {
		t.Errorf("%d of %d renders equal Python's", equal, want)
	}
}

func clip(s string, at int) string {
	return s[max(0, at-40):min(len(s), at+80)]
}
