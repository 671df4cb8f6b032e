package fleet

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// servePages makes the test binary a stand-in for that many replicas; see
// BenchmarkIdle.
const servePages = "WARMROUTE_TEST_SERVE_PAGES"

func TestMain(m *testing.M) {
	if n, err := strconv.Atoi(os.Getenv(servePages)); err == nil {
		serveMany(n)
		return
	}
	goleak.VerifyTestMain(m)
}

// serveMany serves n replicas with a page of the real size until its standard
// input ends.
func serveMany(n int) {
	r := fake(1, 0)
	data, err := os.ReadFile("testdata/metrics-0.32.0.txt")
	if err != nil {
		panic(err)
	}
	r.answer["/metrics"] = string(data[:41<<10])
	handler := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if body, ok := r.answer[req.URL.Path]; ok {
			_, _ = io.WriteString(w, body)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	})
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Println(l.Addr())
		go func() { _ = http.Serve(l, handler) }()
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle measures the cost of watching 100 replicas: each sends a 41 KB page a
// second over real sockets from another process. One iteration is one second. The goal is
// at most 5 % of a core.
func BenchmarkIdle(b *testing.B) {
	const replicas = 100
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", servePages, replicas))
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(out)
	var addrs []string
	for len(addrs) < replicas && lines.Scan() {
		addrs = append(addrs, strings.TrimSpace(lines.Text()))
	}
	f, err := New(Options{Replicas: list(addrs...)}, Hooks{})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	for f.Snapshot().Ready < replicas {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(time.Second)
	b.ResetTimer()
	before, began := cpuTime(), time.Now()
	for range b.N {
		time.Sleep(time.Second)
	}
	used, took := cpuTime()-before, time.Since(began)
	b.ReportMetric(100*used.Seconds()/took.Seconds(), "%core")
	b.ReportMetric(float64(f.Snapshot().Ready), "ready")
}
