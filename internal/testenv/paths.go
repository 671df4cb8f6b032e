package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

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

// Build compiles one of the project's commands into dir and returns its path.
func Build(dir, pkg string, flags ...string) (string, error) {
	folder := checkout.Root()
	if strings.HasPrefix(pkg, "warmroute/lab/") { // a module of its own
		folder = filepath.Join(folder, "lab")
	}
	out, err := filepath.Abs(filepath.Join(dir, filepath.Base(pkg)))
	if err != nil {
		return "", fmt.Errorf("testenv: build %s: %w", pkg, err)
	}
	args := append(append([]string{"build"}, flags...), "-o", out, pkg)
	cmd := exec.Command("go", args...)
	cmd.Dir = folder
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testenv: build %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}
