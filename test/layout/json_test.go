package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var jsonTag = regexp.MustCompile("`[^`]*json:\"([^\",]*)")

// foreign are packages whose JSON is given from outside: other programs' files and
// answers.
var foreign = []string{"lab/bench/", "lab/vllmsim/", "render/internal/tokenizer/", "render/internal/chat/", "render/testkit/", "internal/modelfiles/", "internal/testenv/", "test/"}

// TestJSONKeysAreSnakeCase: written keys have one spelling.
func TestJSONKeysAreSnakeCase(t *testing.T) {
	snake := regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`)
	keys := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		for _, f := range foreign {
			if strings.HasPrefix(name, f) {
				return nil
			}
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range jsonTag.FindAllStringSubmatch(string(text), -1) {
			if keys++; m[1] != "" && m[1] != "-" && !snake.MatchString(m[1]) {
				t.Errorf("%s: the key %q is not snake_case", name, m[1])
			}
		}
		return nil
	})
	if err != nil || keys < 100 {
		t.Errorf("%d keys, %v", keys, err)
	}
}
