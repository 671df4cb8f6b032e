package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Process is a running program in a process group of its own.
type Process struct {
	Name string
	Log  string // file with its standard output and error
	cmd  *exec.Cmd
	done chan struct{}
	once sync.Once
	err  error
}

// Start runs a program with its output in dir/name.log. The program is killed if the test is.
func Start(dir, name string, env []string, program string, args ...string) (*Process, error) {
	cmd := exec.Command(program, args...)
	cmd.Env = env
	return start(dir, name, cmd, syscall.SIGKILL)
}

// start runs a command with its output in dir/name.log, and its Env added to the environment. It gets
// the signal orphaned if the test is killed.
func start(dir, name string, cmd *exec.Cmd, orphaned syscall.Signal) (*Process, error) {
	p := &Process{Name: name, Log: filepath.Join(dir, name+".log"), cmd: cmd, done: make(chan struct{})}
	out, err := os.OpenFile(p.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fmt.Errorf("testenv: start %s: %w", name, err)
	}
	defer out.Close()
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = append(os.Environ(), cmd.Env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("testenv: start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Signal sends sig to the whole process group. After SIGSTOP it waits until the leader has
// stopped: on a busy machine its other threads go on for some milliseconds.
func (p *Process) Signal(sig syscall.Signal) error {
	if err := syscall.Kill(-p.PID(), sig); err != nil || sig != syscall.SIGSTOP {
		return err
	}
	for range 10_000 {
		if stopped, err := p.stopped(); stopped || err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("testenv: %s runs 10 s after SIGSTOP", p.Name)
}

// stopped reports whether every thread of the leader is stopped, or has ended (proc(5), stat).
func (p *Process) stopped() (bool, error) {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
	if err != nil || len(threads) == 0 {
		return false, fmt.Errorf("testenv: %s has ended", p.Name)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("testenv: signal %s: %w", p.Name, err)
		}
		if name := bytes.LastIndexByte(stat, ')'); !bytes.HasPrefix(stat[name+1:], []byte(" T")) {
			return false, nil
		}
	}
	return true, nil
}

// Stop ends the process: SIGTERM, and SIGKILL after 10 s. It waits for the end.
func (p *Process) Stop() {
	p.once.Do(func() {
		_ = p.Signal(syscall.SIGCONT)
		_ = p.Signal(syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(10 * time.Second):
		}
		_ = p.Signal(syscall.SIGKILL) // the group may outlive its leader
		<-p.done
	})
}

// StopAfter stops the process when the test ends, which fails if the log reports a
// data race or a panic.
func (p *Process) StopAfter(t testing.TB) {
	t.Cleanup(func() {
		p.Stop()
		if tail := p.Tail(); strings.Contains(tail, "DATA RACE") || strings.Contains(tail, "panic") {
			t.Errorf("%s's log:\n%s", p.Name, tail)
		}
	})
}

// Kill ends the process with SIGKILL and waits for the end.
func (p *Process) Kill() {
	p.once.Do(func() {
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
	})
}

// Tail returns the end of the process's log, for error messages.
func (p *Process) Tail() string {
	b, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

// WaitHTTP waits until url answers 200, the process ends, or ctx does.
func (p *Process) WaitHTTP(ctx context.Context, url string) error {
	client := http.Client{Timeout: 2 * time.Second}
	for {
		resp, err := client.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-p.done:
			return fmt.Errorf("testenv: %s ended before %s answered: %w\n%s", p.Name, url, errors.Join(p.err), p.Tail())
		case <-ctx.Done():
			return fmt.Errorf("testenv: %s: %s did not answer 200: %w\n%s", p.Name, url, ctx.Err(), p.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}
