package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// clone copies the last commit to dir.
func clone(t *testing.T, dir string) string {
	t.Helper()
	sh(t, nil, "git", "clone", "-q", "--no-local", "..", dir)
	return dir
}

// sh runs a command and returns its output.
func sh(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), env...)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// published is one release of the last commit, for the tests of this package.
func published(t *testing.T, checkout string, platforms string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "dist")
	if err := run(t.Context(), []string{"-root", checkout, "-out", out, "-platforms", platforms, "-snapshot"}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRelease: the sums are right, the archive has its files, the binary names its
// version and commit, the bill names the linked modules, and the image runs as nobody on
// a file system that it cannot write to.
func TestRelease(t *testing.T) {
	checkout := clone(t, filepath.Join(t.TempDir(), "checkout"))
	another := clone(t, filepath.Join(t.TempDir(), "at", "another", "path")) // now: the work goes on
	out := published(t, checkout, "linux/amd64")
	s, err := readSource(t.Context(), checkout, true, false)
	if err != nil {
		t.Fatal(err)
	}
	sh(t, nil, "sh", "-c", "cd "+out+" && sha256sum -c --strict SHA256SUMS")
	t.Run("archive", func(t *testing.T) { testArchive(t, s, out) })
	t.Run("bill", func(t *testing.T) { testBill(t, s, out) })
	t.Run("image", func(t *testing.T) { testImage(t, s, out) })
	t.Run("reproducible", func(t *testing.T) {
		t.Setenv("GOCACHE", t.TempDir()) // nothing of the first build is used again
		t.Setenv("TZ", "Asia/Tokyo")
		second := published(t, another, "linux/amd64")
		for _, name := range names(t, out) {
			a, b := read(t, filepath.Join(out, name)), read(t, filepath.Join(second, name))
			if !bytes.Equal(a, b) {
				t.Errorf("%s: the second build has other bytes (%d and %d)", name, len(a), len(b))
			}
		}
	})
	t.Run("once", func(t *testing.T) {
		if err := run(t.Context(), []string{"-root", checkout, "-out", out, "-snapshot"}); err == nil || !strings.Contains(err.Error(), "has files") {
			t.Errorf("a folder with files: %v", err)
		}
	})
	t.Run("changed", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(checkout, "LICENSE"), []byte("other"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readSource(t.Context(), checkout, true, false); err == nil || !strings.Contains(err.Error(), "has changes") {
			t.Errorf("a checkout with changes: %v", err)
		}
		if s, err := readSource(t.Context(), checkout, true, true); err != nil || !strings.HasSuffix(s.version, "-changed") {
			t.Errorf("version %q, %v", s.version, err)
		}
	})
}

// TestUnreleased: changes that no version has are refused unless a snapshot is wanted, which
// says so in its version.
func TestUnreleased(t *testing.T) {
	const released = "## 0.2.0 (2026-12-01)\n\n- it\n\n## 0.1.0 (2026-11-22)\n\n- that\n"
	for text, has := range map[string]bool{
		"# Changelog\n\nThe format.\n\n" + released:                                         false,
		"# Changelog\n\n## Unreleased\n\n" + released:                                       false,
		"# Changelog\n\n## [Unreleased]\n\n### Added\n\n### Fixed\n\n" + released:           false,
		"# Changelog\n\nThe format.\n\n## Unreleased\n\n### Added\n\n- more\n\n" + released: true,
		"# Changelog\n\n## Unreleased\n\nText alone.\n\n" + released:                        true,
		"# Changelog\n\n## unreleased\n* more\n" + released:                                 true,
	} {
		root := t.TempDir()
		if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		sh(t, nil, "git", "-C", root, "init", "-q")
		sh(t, nil, "git", "-C", root, "add", ".")
		sh(t, nil, "git", "-C", root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all")
		_, err := readSource(t.Context(), root, false, false)
		if refused := err != nil && strings.Contains(err.Error(), "not 0.2.0: give them a version, or use -snapshot"); refused != has || !has && err != nil {
			t.Errorf("%q: %v", text, err)
		}
		want := "0.2.0"
		if has {
			want += "-snapshot"
		}
		if s, err := readSource(t.Context(), root, true, false); err != nil || s.version != want {
			t.Errorf("%q: version %q, %v; want %s", text, s.version, err, want)
		}
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		all = append(all, f.Name())
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// untar writes the regular files of a tar to dir and returns their names.
func untar(t *testing.T, r io.Reader, dir string) (files []string) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		owner := 0
		if strings.TrimSuffix(h.Name, "/") == cache {
			owner = userID
		}
		if h.Uid != owner || h.Gid != owner || h.Uname != "" {
			t.Errorf("%s belongs to %d:%d %s", h.Name, h.Uid, h.Gid, h.Uname)
		}
		to := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, os.FileMode(h.Mode)); err != nil {
			t.Fatal(err)
		}
		files = append(files, h.Name)
	}
}

func testArchive(t *testing.T, s source, out string) {
	name := "warmroute-" + s.version + "-linux-amd64"
	z, err := gzip.NewReader(bytes.NewReader(read(t, filepath.Join(out, name+".tar.gz"))))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := untar(t, z, dir)
	for _, want := range []string{"extproc", "kvsub", "vllmsim", "lab", "LICENSE", "README.md", "CHANGELOG.md", "warmroute.yaml", "warmroute.service"} {
		if !slices.Contains(files, name+"/"+want) {
			t.Errorf("%s is missing in %v", want, files)
		}
	}
	extproc := filepath.Join(dir, name, "extproc")
	if v := sh(t, nil, extproc, "version"); !strings.Contains(v, s.version) || !strings.Contains(v, s.commit[:12]) || !strings.Contains(v, "kube") {
		t.Errorf("extproc version printed %q", v)
	}
	if _, err := exec.Command("ldd", extproc).CombinedOutput(); err == nil {
		t.Error("extproc is linked dynamically")
	}
	if b := read(t, extproc); bytes.Contains(b, []byte(s.root)) || bytes.Contains(b, []byte(os.TempDir()+"/warmroute-release")) {
		t.Error("the machine's paths are in the binary")
	}
}

func testBill(t *testing.T, s source, out string) {
	var b cdx.BOM
	if err := json.Unmarshal(read(t, filepath.Join(out, "warmroute-"+s.version+".cdx.json")), &b); err != nil {
		t.Fatal(err)
	}
	listed := map[string]bool{}
	for _, c := range *b.Components {
		listed[c.PackageURL] = true
	}
	// The bill has three of the dependencies in the main module's go.mod.
	for _, path := range []string{"google.golang.org/grpc", "github.com/go-zeromq/zmq4", "k8s.io/client-go"} {
		c := exec.Command("go", "list", "-m", "-f", "{{.Version}}", path)
		c.Dir = s.root
		version, err := c.Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := "pkg:golang/" + path + "@" + strings.TrimSpace(string(version)); !listed[want] {
			t.Errorf("%s is not in the bill", want)
		}
	}
}
