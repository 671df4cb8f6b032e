package supply

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

const root = "../.."

// scripts are the shell scripts and their lines, joined where a backslash continues them.
func scripts(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "scripts", "*.sh"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	out := map[string][]string{}
	for _, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		out[filepath.Base(file)] = strings.Split(strings.ReplaceAll(string(raw), "\\\n", " "), "\n")
	}
	return out
}

// installs is in a line that installs or downloads Python packages, npms in one that has
// npm fetch packages, packed in the one that compares them with their hashes.
var (
	installs = regexp.MustCompile(`pip"?( -q)? (install|download)\b`)
	npms     = regexp.MustCompile(`npm (pack|install|ci|i)\b`)
	packed   = regexp.MustCompile(`^\s*npm pack --silent --pack-destination "\$3"`)
)

// Every Python package that a script installs is one whose hash is known, and every npm
// package is compared with its own. pin-python.sh alone, which writes the hashes, does not
// know them.
func TestPackagesAreInstalledByTheirHashes(t *testing.T) {
	found := 0
	for file, lines := range scripts(t) {
		for _, line := range lines {
			if file == "pin-python.sh" || strings.HasPrefix(line, "#") {
				continue
			}
			if installs.MatchString(line) {
				found++
				if !strings.Contains(line, "--require-hashes -r") {
					t.Errorf("%s: %s", file, strings.TrimSpace(line))
				}
			}
			if npms.MatchString(line) && !packed.MatchString(line) {
				t.Errorf("%s: %s", file, strings.TrimSpace(line))
			}
		}
	}
	if found < 7 {
		t.Errorf("%d lines install packages: they are not found any more", found)
	}
}

// Every requirement is one version, with hashes.
func TestRequirementsHaveHashes(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "scripts", "requirements", "*.txt"))
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	pin := regexp.MustCompile(`^[A-Za-z0-9._-]+==[^ ]+( ; .*)? \\\n    --hash=sha256:[0-9a-f]{64}`)
	beginning := regexp.MustCompile(`(?m)^[^#\s]`)
	for _, file := range files {
		raw := must.Get(os.ReadFile(file))(t)
		text := string(raw)
		for _, at := range beginning.FindAllStringIndex(text, -1) {
			if !pin.MatchString(text[at[0]:]) {
				line, _, _ := strings.Cut(text[at[0]:], "\n")
				t.Errorf("%s: %s", filepath.Base(file), line)
			}
		}
	}
}

// vuln.sh reads databases: it finds the function that a database of its own names, in a
// program that calls it, and not in one that only imports its package. Without a database
// it says that nothing was checked.
func TestKnownVulnerabilitiesAreFound(t *testing.T) {
	db := must.Get(filepath.Abs(filepath.Join(root, "scripts", "testdata", "vuln", "db")))(t)
	for _, c := range []struct {
		name, db, folder string
		code             int
		says             string
	}{
		{"called", db, "sample", 3, "sample.main calls strings.ToTitle"},
		{"imported", db, "clean", 0, "Your code is affected by 0 vulnerabilities"},
		{"no database", filepath.Join(db, "none"), "sample", 75, "NOT CHECKED"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(filepath.Join(root, "scripts", "vuln.sh"), "scripts/testdata/vuln/"+c.folder)
			cmd.Env = append(os.Environ(), "VULNDB=file://"+c.db)
			out, err := cmd.CombinedOutput()
			code := 0
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				code = exit.ExitCode()
			} else if err != nil {
				t.Fatal(err)
			}
			if code != c.code || !strings.Contains(string(out), c.says) {
				t.Errorf("ends with %d, want %d and %q:\n%s", code, c.code, c.says, out)
			}
		})
	}
}
