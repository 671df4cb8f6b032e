package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"warmroute/internal/testenv"
)

// process is a program under measurement, or one that the measurement needs.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   io.Reader
}

func start(name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // an interrupted measurement leaves no process behind
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, out}, cmd.Start()
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait() // its exit status does not matter here
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// startFleet starts n simulated replicas and returns their addresses.
func (b *bench) startFleet(n int, flags ...string) (*process, []string, error) {
	p, err := start(b.self, append([]string{"fleet", "-n", fmt.Sprint(n), "-model", b.o.modelDir}, flags...)...)
	if err != nil {
		return nil, nil, err
	}
	addrs, err := readAddrs(p.out)
	if err != nil {
		p.stop()
	}
	return p, addrs, err
}

// router is a running extproc.
type router struct {
	*process
	listen, admin string
	ready         time.Duration // from its start to ready
}

// startRouter starts extproc for the replicas and waits until it is ready. It appends
// extra to the configuration.
func startRouter(ctx context.Context, binary, dir string, replicas []string, extra string) (*router, error) {
	return startRouterBy(ctx, []string{binary}, dir, replicas, extra)
}

// startRouterBy is startRouter with a command to which it appends the router's flags.
func startRouterBy(ctx context.Context, command []string, dir string, replicas []string, extra string) (*router, error) {
	at, err := freeAddrs(2)
	if err != nil {
		return nil, err
	}
	r := &router{listen: at[0], admin: at[1]}
	var b strings.Builder
	fmt.Fprintf(&b, "listen: %s\nadmin: {listen: %s, pprof: true}\nlog: {level: warn}\nindex_service: {listen: \"\"}\nxds: {listen: \"\"}\n%s\nfleet:\n  replicas:\n", r.listen, r.admin, extra)
	for _, r := range replicas {
		fmt.Fprintf(&b, "  - address: %s\n", r)
	}
	file := filepath.Join(dir, "warmroute.yaml")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	began := time.Now()
	if r.process, err = start(command[0], append(command[1:], "serve", "-config", file)...); err != nil {
		return nil, err
	}
	if err := await(ctx, 60*time.Second, func() bool { return get("http://"+r.admin+"/readyz", io.Discard) == nil }); err != nil {
		r.stop()
		return nil, fmt.Errorf("extproc is not ready: %w", err)
	}
	r.ready = time.Since(began)
	return r, nil
}

// freeAddrs returns n addresses of the loopback interface without a listener.
func freeAddrs(n int) ([]string, error) {
	ports, err := testenv.FreePorts(n)
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprint("127.0.0.1:", p))
	}
	return out, err
}

// await polls every millisecond until ok.
func await(ctx context.Context, most time.Duration, ok func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for !ok() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
	return nil
}

func get(url string, to io.Writer) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	_, err = io.Copy(to, resp.Body)
	return err
}
