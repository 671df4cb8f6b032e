package testenv

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

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

// built are the commands that this process has compiled, by their flags and package.
var built struct {
	sync.Mutex
	programs map[string]*os.File
}

// Build compiles one of the project's commands into dir and returns its path. A command
// that was compiled before is copied.
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
	built.Lock()
	defer built.Unlock()
	name := strings.Join(append(flags, pkg), " ")
	cmd := exec.Command("go", args...)
	program := built.programs[name]
	if program != nil {
		// Another process writes the file: one that this process had open could not be run.
		cmd = exec.Command("install", "-D", "-m", "755", fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), program.Fd()), out)
	}
	cmd.Dir = folder
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("testenv: build %s: %w\n%s", pkg, err, b)
	}
	if program == nil {
		if program, err = os.Open(out); err != nil {
			return "", fmt.Errorf("testenv: build %s: %w", pkg, err)
		}
		if built.programs == nil {
			built.programs = map[string]*os.File{}
		}
		built.programs[name] = program // kept, whatever becomes of dir
	}
	return out, nil
}
