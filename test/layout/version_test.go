package layout

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestBinariesSayWhatTheyAre: those of a plain `go build` in a clone, with one
// tag, print the version, Go, the commit and the tag.
func TestBinariesSayWhatTheyAre(t *testing.T) {
	root, files := sources(t, "extproc", "kvsub", "vllmsim")
	out := t.TempDir()
	// In the same folder each time, for the same packages are not compiled twice then.
	clone := filepath.Join(os.TempDir(), fmt.Sprintf("warmroute-clone-%x", crc32.ChecksumIEEE([]byte(root))))
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
	run(t, clone, "go", "build", "-tags", "shown", "-o", out+"/", "./cmd/extproc", "./cmd/kvsub", "./cmd/vllmsim")
	for _, name := range []string{"extproc", "kvsub", "vllmsim"} {
		want := regexp.MustCompile("^" + name + ` v\S+ go1\.\S+ ` + commit[:12] + " tags shown$")
		if said := run(t, root, filepath.Join(out, name), "version"); !want.MatchString(said) {
			t.Errorf("%q does not match %s", said, want)
		}
	}
}

// sources are the files that these commands are built of, in the module's folder.
func sources(t *testing.T, commands ...string) (root string, files []string) {
	t.Helper()
	args := []string{"-deps", "-json=Dir,Standard,Module,GoFiles,SFiles,EmbedFiles"}
	for _, name := range commands {
		args = append(args, "warmroute/cmd/"+name)
	}
	files = []string{"go.mod", "go.sum"}
	for d := json.NewDecoder(strings.NewReader(strings.Join(list(t, args...), "\n"))); d.More(); {
		var p struct {
			Dir      string
			Standard bool
			Module   struct {
				Main bool
				Dir  string
			}
			GoFiles, SFiles, EmbedFiles []string
		}
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		if p.Standard || !p.Module.Main {
			continue
		}
		root = p.Module.Dir
		for _, names := range [][]string{p.GoFiles, p.SFiles, p.EmbedFiles} {
			for _, name := range names {
				files = append(files, strings.TrimPrefix(filepath.Join(p.Dir, name), root))
			}
		}
	}
	return root, files
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
