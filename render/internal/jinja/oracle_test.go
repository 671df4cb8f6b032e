package jinja

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/oracle"
)

var (
	oracleConversations = flag.Int("oracle.conversations", 300, "random conversations rendered beside Python's Jinja2")
	oracleSnippets      = flag.Int("oracle.snippets", 300, "random template snippets rendered beside Python's Jinja2")
	oracleTemplates     = flag.String("oracle.templates", "", "folder of templates to use instead of the golden ones")
	oracleSeed          = flag.Int("oracle.seed", 1, "seed of the random cases")
)

// oracleBatch is how many cases one request to Python makes.
const oracleBatch = 100

func startOracle(t *testing.T) *oracle.Process {
	t.Helper()
	p, err := oracle.Start("jinja_fuzz.py")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

type oracleCase struct {
	Template int
	Source   string
	Vars     string
	Text     *string
	Error    string
}

// tally counts how the two agree.
type tally struct{ equal, errors, unsupported, different int }

// compare renders a case and reports a difference.
func (n *tally) compare(t *testing.T, c *oracleCase, label string, tmpl *Template, err error) {
	t.Helper()
	v, parseErr := pyvalue.Parse([]byte(c.Vars))
	if parseErr != nil {
		t.Fatalf("the case's variables: %v", parseErr)
	}
	var got []byte
	if err == nil {
		got, err = tmpl.Render(nil, v.(*pyvalue.Dict), Env{Now: goldenClock})
	}
	switch {
	case errors.Is(err, ErrInternal):
	case errors.Is(err, ErrUnsupported):
		n.unsupported++
		return
	case err != nil && c.Text == nil:
		n.errors++
		return
	case err == nil && c.Text != nil && string(got) == *c.Text:
		n.equal++
		return
	}
	n.different++
	if n.different > 20 {
		return
	}
	want := "error " + c.Error
	if c.Text != nil {
		want = *c.Text
	}
	have := string(got)
	if err != nil {
		have = "error " + err.Error() + ": " + Detail(err)
	}
	t.Errorf("%s\nvars %s\n got %q\nwant %q", label, c.Vars, have, want)
}

func oraclePaths(t *testing.T) []string {
	t.Helper()
	dir, want := *oracleTemplates, 1
	if dir == "" {
		dir, want = filepath.Join(checkout.Root(), ".cache", "templates"), goldenTemplates
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.jinja"))
	if err != nil || len(paths) < want {
		t.Fatalf("%d templates in %s, want %d: run scripts/fetch-templates.sh", len(paths), dir, want)
	}
	sort.Strings(paths)
	return paths
}

// Random conversations through every golden template, compared with Python.
func TestOracleConversations(t *testing.T) {
	paths := oraclePaths(t)
	p := startOracle(t)
	templates := make([]*Template, len(paths))
	compileErrs := make([]error, len(paths))
	for i, path := range paths {
		src, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		templates[i], compileErrs[i] = Compile(string(src), Options{})
	}
	var n tally
	for done := 0; done < *oracleConversations; done += oracleBatch {
		var answer struct{ Cases []oracleCase }
		request := map[string]any{"op": "conversations", "seed": *oracleSeed*1_000_000 + done, "count": oracleBatch, "templates": paths}
		if err := p.Ask(request, &answer); err != nil {
			t.Fatal(err)
		}
		for i := range answer.Cases {
			c := &answer.Cases[i]
			n.compare(t, c, filepath.Base(paths[c.Template]), templates[c.Template], compileErrs[c.Template])
		}
	}
	t.Logf("%d conversations: %d texts equal, %d errors on both sides, %d unsupported, %d different",
		n.equal+n.errors+n.unsupported+n.different, n.equal, n.errors, n.unsupported, n.different)
	if n.different > 0 || n.equal*3 < *oracleConversations || n.unsupported*100 > *oracleConversations {
		t.Errorf("%d differences, %d equal, %d unsupported", n.different, n.equal, n.unsupported)
	}
}

// Random snippets made from a grammar of the whole language, compared with Python.
func TestOracleSnippets(t *testing.T) {
	p := startOracle(t)
	var n tally
	for done := 0; done < *oracleSnippets; done += oracleBatch {
		var answer struct{ Cases []oracleCase }
		request := map[string]any{"op": "snippets", "seed": *oracleSeed*1_000_000 + done, "count": oracleBatch}
		if err := p.Ask(request, &answer); err != nil {
			t.Fatal(err)
		}
		for i := range answer.Cases {
			c := &answer.Cases[i]
			tmpl, err := Compile(c.Source, Options{})
			n.compare(t, c, c.Source, tmpl, err)
		}
	}
	t.Logf("%d snippets: %d texts equal, %d errors on both sides, %d unsupported, %d different",
		n.equal+n.errors+n.unsupported+n.different, n.equal, n.errors, n.unsupported, n.different)
	if n.different > 0 || n.equal*8 < *oracleSnippets {
		t.Errorf("%d differences, %d equal", n.different, n.equal)
	}
}

// The names vLLM lets chat_template_kwargs set, of every golden template.
func TestOracleUndeclared(t *testing.T) {
	p := startOracle(t)
	var request struct {
		Op        string   `json:"op"`
		Templates []string `json:"templates"`
	}
	request.Op = "queries"
	var names []string
	for name := range loadRendered(t) {
		names = append(names, name)
		request.Templates = append(request.Templates, loadTemplate(t, name))
	}
	var answer struct {
		Queries []struct{ Undeclared []string }
	}
	if err := p.Ask(request, &answer); err != nil {
		t.Fatal(err)
	}
	checked := 0
	for i, q := range answer.Queries {
		tmpl, err := Compile(request.Templates[i], Options{})
		if err != nil || q.Undeclared == nil {
			if err == nil || q.Undeclared != nil {
				t.Errorf("%s: compiles here: %v, there: %v", names[i], err == nil, q.Undeclared != nil)
			}
			continue
		}
		if got, want := strings.Join(tmpl.Undeclared(), " "), strings.Join(q.Undeclared, " "); got != want {
			t.Errorf("%s:\n got %s\nwant %s", names[i], got, want)
		}
		checked++
	}
	if checked < 95 {
		t.Errorf("checked %d templates", checked)
	}
}
