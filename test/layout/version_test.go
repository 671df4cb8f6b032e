package layout

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestBinariesSayWhatTheyAre: kvsub of a plain `go build` in a clone, with one tag, prints the
// version, Go, the commit and the tag. All commands print one function's line.
func TestBinariesSayWhatTheyAre(t *testing.T) {
	root := must.Get(filepath.Abs("../.."))(t)
	files := sources(t, root)
	out := t.TempDir()
	// In the same folder each time, for the same packages are not compiled twice then.
	clone := filepath.Join(os.TempDir(), fmt.Sprintf("warmroute-clone-%x", crc32.ChecksumIEEE([]byte(root))))
	must.Do(t, os.RemoveAll(clone)) // a run that was killed leaves files that are no longer there
	t.Cleanup(func() { os.RemoveAll(clone) })
	copyTo(t, clone, root, files)
	git := func(args ...string) string {
		t.Helper()
		return run(t, clone, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.test"}, args...)...)
	}
	git("init", "--quiet")
	git("add", "--all", "--force")
	git("commit", "--quiet", "--message", "all")
	commit := git("rev-parse", "HEAD")
	run(t, clone, "go", "build", "-tags", "shown", "-o", out+"/", "./cmd/kvsub")
	want := regexp.MustCompile(`^kvsub v\S+ go1\.\S+ ` + commit[:12] + " tags shown$")
	if said := run(t, root, filepath.Join(out, "kvsub"), "version"); !want.MatchString(said) {
		t.Errorf("%q does not match %s", said, want)
	}
}

// sources are the files that kvsub is built of, from root.
func sources(t *testing.T, root string) (files []string) {
	t.Helper()
	for _, module := range []string{".", "render"} {
		files = append(files, filepath.Join(module, "go.mod"), filepath.Join(module, "go.sum"))
	}
	lines := list(t, "-deps", "-json=Dir,Standard,Module,GoFiles,SFiles,EmbedFiles", "warmroute/cmd/kvsub")
	for d := json.NewDecoder(strings.NewReader(strings.Join(lines, "\n"))); d.More(); {
		var p struct {
			Dir                         string
			Standard                    bool
			Module                      struct{ Path string }
			GoFiles, SFiles, EmbedFiles []string
		}
		must.Do(t, d.Decode(&p))
		if p.Standard || p.Module.Path != "warmroute" && !strings.HasPrefix(p.Module.Path, "warmroute/") {
			continue
		}
		for _, file := range slices.Concat(p.GoFiles, p.SFiles, p.EmbedFiles) {
			files = append(files, strings.TrimPrefix(filepath.Join(p.Dir, file), root))
		}
	}
	return files
}

// copyTo copies files as they are now.
func copyTo(t *testing.T, to, root string, files []string) {
	t.Helper()
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.MkdirAll(filepath.Join(to, filepath.Dir(file)), 0o755)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// run runs a program in dir, Go with the state of the repository in its binaries
// regardless of the machine's own flags, and returns its output.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=true", "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", program, args, err, out)
	}
	return strings.TrimSpace(string(out))
}
