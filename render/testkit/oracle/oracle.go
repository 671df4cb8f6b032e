// Package oracle runs Python reference implementations and exchanges JSON lines with them
// over a pipe. Only tests use it. Its scripts are in this folder, and
// scripts/fetch-oracle.sh installs the interpreter. A Process serves one goroutine at a
// time.
package oracle

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"warmroute/render/testkit/checkout"
)

// Process is a running reference implementation.
type Process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// Start runs a script of this folder and drops its standard error, to which the
// references' own panics go; its answers report their failures. If the interpreter is
// missing, the error names the command that installs it.
func Start(script string) (*Process, error) {
	python := filepath.Join(checkout.Root(), ".cache", "oracle", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, errors.New("the Python reference is not installed: run scripts/fetch-oracle.sh (make setup does)")
	}
	return start(python, nil, script)
}

// StartVLLM runs a script in an installed vLLM of the version, with additional
// environment variables.
func StartVLLM(version string, env []string, script string, args ...string) (*Process, error) {
	python := filepath.Join(checkout.Root(), ".cache", "vllm", version, "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, fmt.Errorf("vLLM %s is not installed: run scripts/install-vllm.sh %s", version, version)
	}
	return start(python, env, script, args...)
}

func start(python string, env []string, script string, args ...string) (*Process, error) {
	cmd := exec.Command(python, append([]string{filepath.Join(checkout.Root(), "render", "testkit", "oracle", script)}, args...)...)
	cmd.Env = append(append(os.Environ(), "PYTHONDONTWRITEBYTECODE=", "TOKENIZERS_PARALLELISM=false", "RUST_BACKTRACE=0", "RAYON_NUM_THREADS=1"), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", script, err)
	}
	return &Process{cmd, in, bufio.NewReaderSize(out, 1<<20)}, nil
}

// Ask sends one request and decodes its answer. It returns an answer {"error": …} as the
// error.
func (p *Process) Ask(request, answer any) error {
	line, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("the reference has stopped: %w", err)
	}
	if line, err = p.out.ReadBytes('\n'); err != nil {
		return fmt.Errorf("the reference has stopped: %w", err)
	}
	var failed struct{ Error string }
	if json.Unmarshal(line, &failed) == nil && failed.Error != "" {
		return errors.New(failed.Error)
	}
	return json.Unmarshal(line, answer)
}

// Read decodes the next line that the process writes without a request.
func (p *Process) Read(answer any) error {
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the reference has stopped: %w", err)
	}
	return json.Unmarshal(line, answer)
}

// Close ends the process and waits for it.
func (p *Process) Close() error {
	if err := p.in.Close(); err != nil {
		return err
	}
	return p.cmd.Wait()
}
