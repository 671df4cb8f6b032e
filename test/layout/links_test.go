package layout

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

var (
	link    = regexp.MustCompile(`\]\(([^)#]*)#?([^)]*)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.*)$`)
	unslug  = regexp.MustCompile(`[^a-z0-9 _-]`)
	cutOff  = regexp.MustCompile(`(?m)^\|.*\|\n\n\|.*\n(?:\|[^-]|[^|]|\n)`) // rows behind a blank line, without a head
)

// hasAnchor reports whether a document has a heading that the anchor names.
func hasAnchor(document []byte, anchor string) bool {
	for _, m := range heading.FindAllStringSubmatch(string(document), -1) {
		slug := strings.ReplaceAll(unslug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if slug == anchor {
			return true
		}
	}
	return false
}

// TestDocumentsPointSomewhere: every relative link of every document exists, and
// the heading it names. No table has a blank line in it.
func TestDocumentsPointSomewhere(t *testing.T) {
	root := filepath.Join("..", "..")
	var files []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/decisions/*.md", "lab/bench/*.md", "render/*.md", "examples/*/*.md", "charts/*/*.md"} {
		found := must.Get(filepath.Glob(filepath.Join(root, pattern)))(t)
		files = append(files, found...)
	}
	if len(files) < 15 {
		t.Fatalf("only %d documents found", len(files))
	}
	for _, file := range files {
		b := must.Get(os.ReadFile(file))(t)
		if rows := cutOff.Find(b); rows != nil {
			t.Errorf("%s: a blank line cuts a table: %s", file, rows)
		}
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := file
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(file), m[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s points to %s, which is not there", file, m[1])
				continue
			}
			if m[2] == "" || filepath.Ext(target) != ".md" {
				continue
			}
			document := must.Get(os.ReadFile(target))(t)
			if !hasAnchor(document, m[2]) {
				t.Errorf("%s points to %s#%s: there is no such heading", file, m[1], m[2])
			}
		}
	}
}

// TestAlertsHaveRunbooks: the page that an alert names has a part about it.
func TestAlertsHaveRunbooks(t *testing.T) {
	root := filepath.Join("..", "..")
	rules := must.Get(os.ReadFile(filepath.Join(root, "examples", "monitoring", "alerts.yaml")))(t)
	alerts := regexp.MustCompile(`(?s)- alert: (\w+)\n.*?runbook_url: "([^"#]+)#([^"]+)"`).FindAllSubmatch(rules, -1)
	if n := strings.Count(string(rules), "- alert: "); n != len(alerts) || n < 10 {
		t.Errorf("%d of %d alerts have a runbook", len(alerts), n)
	}
	for _, a := range alerts {
		page, err := os.ReadFile(filepath.Join(root, string(a[2])))
		if err != nil {
			t.Errorf("%s: %v", a[1], err)
			continue
		}
		if string(a[3]) != strings.ToLower(string(a[1])) || !hasAnchor(page, string(a[3])) {
			t.Errorf("%s points to %s#%s", a[1], a[2], a[3])
		}
	}
}

// TestMentionedPagesExist: every page of docs that code, settings or a message names.
func TestMentionedPagesExist(t *testing.T) {
	root := filepath.Join("..", "..")
	page, found := regexp.MustCompile(`\bdocs/[a-z/-]+\.md\b`), 0
	must.Do(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); name != ".." && strings.HasPrefix(name, ".") || name == "node_modules" || name == "dist" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		switch filepath.Ext(path) {
		case ".go", ".proto", ".yaml", ".json", ".html", ".js", ".sh", ".py", ".tmpl", ".md", "":
		default:
			return nil
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 || strings.Contains(path, "testdata") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range page.FindAllString(string(text), -1) {
			found++
			if _, err := os.Stat(filepath.Join(root, name)); err != nil {
				t.Errorf("%s names %s, which is not there", path, name)
			}
		}
		return nil
	}))
	if found < 50 {
		t.Errorf("only %d found", found)
	}
}
