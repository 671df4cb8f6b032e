package testenv

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Root is the checkout's top folder: the nearest one above with the scripts, so
// that it is the same in the modules below.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("testenv: find the checkout: %w", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "scripts", "install-envoy.sh")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("testenv: no checkout above the working folder")
		}
		dir = up
	}
}

// EnvoyBinary is the pinned Envoy, installed by scripts/install-envoy.sh when it
// is not there yet.
func EnvoyBinary() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
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
	root, err := Root()
	if err != nil {
		return "", err
	}
	out, err := filepath.Abs(filepath.Join(dir, filepath.Base(pkg)))
	if err != nil {
		return "", fmt.Errorf("testenv: build %s: %w", pkg, err)
	}
	args := append(append([]string{"build"}, flags...), "-o", out, pkg)
	cmd := exec.Command("go", args...)
	cmd.Dir = root
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testenv: build %s: %w\n%s", pkg, err, b)
	}
	return out, nil
}
