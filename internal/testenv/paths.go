package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"warmroute/render/testkit/checkout"
)

// EnvoyBinary returns the pinned Envoy, installed by scripts/install-envoy.sh when it
// is not there yet.
func EnvoyBinary() (string, error) {
	root := checkout.Root()
	cmd := exec.Command(filepath.Join(root, "scripts", "install-envoy.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("testenv: install Envoy: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Build compiles one of the project's commands into dir and returns its path. All tests and
// benchmarks link it in one place, where the go command links it again only after a change.
func Build(dir, pkg string, flags ...string) (string, error) {
	out, err := filepath.Abs(filepath.Join(dir, filepath.Base(pkg)))
	if err == nil {
		err = build(out, pkg, flags)
	}
	if err != nil {
		return "", fmt.Errorf("testenv: build %s: %w", pkg, err)
	}
	return out, nil
}

func build(out, pkg string, flags []string) error {
	folder := checkout.Root()
	linked := filepath.Join(folder, ".cache", "programs", strings.Join(slices.Concat(flags, []string{filepath.Base(pkg)}), " "))
	if strings.HasPrefix(pkg, "warmroute/lab/") { // a module of its own
		folder = filepath.Join(folder, "lab")
	}
	if err := os.MkdirAll(filepath.Dir(linked), 0o755); err != nil {
		return err
	}
	lock, err := os.Create(linked + ".lock") // other tests link the command, too
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	// Another process writes the file: one that this process had open could not be run.
	for _, args := range [][]string{slices.Concat([]string{"go", "build"}, flags, []string{"-o", linked, pkg}), {"install", "-D", "-m", "755", linked, out}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = folder
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, said)
		}
	}
	return nil
}
