//go:build gateways

package gateways

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/must"
)

// hang is how long something may take before a test calls it stuck.
const hang = 90 * time.Second

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testenv.Until(t, hang, what, ok)
}

// installed returns the path of a program that scripts/install-gateways.sh built.
func installed(t *testing.T, name string) string {
	t.Helper()
	root := checkout.Root()
	path := filepath.Join(root, ".cache", "gateways", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v: run scripts/install-gateways.sh", err)
	}
	return path
}

// binaries builds the project's programs that the tests run, once.
var binaries = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "warmroute-gateways-")
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, pkg := range map[string]string{"extproc": "warmroute/cmd/extproc", "vllmsim": "warmroute/lab/cmd/vllmsim"} {
		if out[name], err = testenv.Build(dir, pkg, "-tags", "kube"); err != nil {
			return nil, err
		}
	}
	return out, nil
})

// start runs a program until the test ends.
func start(t *testing.T, dir, name, program string, args ...string) *testenv.Process {
	t.Helper()
	if program == "extproc" || program == "vllmsim" {
		built := must.Get(binaries())(t)
		program = built[program]
	}
	p := must.Get(testenv.Start(dir, name, nil, program, args...))(t)
	t.Cleanup(p.Stop)
	return p
}

// answers waits until a URL answers 200.
func answers(t *testing.T, p *testenv.Process, url string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), hang)
	defer cancel()
	must.Do(t, p.WaitHTTP(ctx, url))
}

// router is extproc on a configuration file, started and ended at will.
type router struct {
	*testenv.Process
	t    *testing.T
	dir  string
	file string
}

// routerAdmin is the admin port of the examples.
const routerAdmin = "http://127.0.0.1:9090"

func (r *router) start() {
	r.t.Helper()
	r.launch()
	answers(r.t, r.Process, routerAdmin+"/readyz")
}

// launch starts it and does not wait. Its log is printed if the test fails.
func (r *router) launch() {
	r.t.Helper()
	r.Process = start(r.t, r.dir, "extproc", "extproc", "serve", "-config", r.file)
	p := r.Process
	r.t.Cleanup(func() {
		if r.t.Failed() {
			r.t.Logf("the router's log ends with\n%s", p.Tail())
		}
	})
}

// metric is the sum of a metric of the router whose label has a value.
func (r *router) metric(t *testing.T, name, label, value string) float64 {
	t.Helper()
	page := must.Get(testenv.Get(t.Context(), routerAdmin+"/metrics"))(t)
	return testenv.Samples(page, name, label)[value]
}

func (r *router) freeze() { _ = r.Signal(syscall.SIGSTOP) }
func (r *router) thaw()   { _ = r.Signal(syscall.SIGCONT) }

// replica is a simulated vLLM behind a tap on the port that pods have.
type replica struct {
	t     *testing.T
	dir   string
	ip    string
	model string
	sim   *testenv.Process
	tap   *http.Server
	wg    sync.WaitGroup

	intact, damaged atomic.Int64 // bodies that matched their sums, and others
	orders          sync.Map     // headers of requests, by number
}

// bodySum is the header in which clients send the body's checksum.
const bodySum = "x-body-sha256"

func newReplica(t *testing.T, dir, ip string) *replica {
	t.Helper()
	r := &replica{t: t, dir: dir, ip: ip, model: "sim"}
	r.start()
	t.Cleanup(r.kill)
	return r
}

// start runs the simulator and the tap before it.
func (r *replica) start() {
	r.t.Helper()
	behind := r.ip + ":28000"
	r.sim = start(r.t, r.dir, "vllm-"+r.ip, "vllmsim", "-model", r.model, "-listen", behind, "-events", r.ip+":5557", "-replay", r.ip+":5558",
		"-blocks", "8192", "-max-model-len", "65536", "-prefill-rate", "100000", "-max-batched-tokens", "8192", "-decode-rate", "200")
	answers(r.t, r.sim, "http://"+behind+"/health")
	l := must.Get(net.Listen("tcp", r.ip+":8000"))(r.t)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: behind})
	proxy.FlushInterval = -1
	proxy.ErrorLog = log.New(io.Discard, "", 0)                                                          // of answers that a replica's death cuts
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) } // no answer of its own
	r.tap = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.orders.Store(req.Header.Get(number), req.Header.Clone())
		r.look(req)
		proxy.ServeHTTP(w, req)
	})}
	serve := r.tap.Serve
	r.wg.Go(func() { _ = serve(l) })
}

// look compares a request's body with its client's checksum.
func (r *replica) look(req *http.Request) {
	want := req.Header.Get(bodySum)
	if want == "" {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // its client has left
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	if sum := sha256.Sum256(body); hex.EncodeToString(sum[:]) == want {
		r.intact.Add(1)
	} else {
		r.damaged.Add(1)
	}
}

// kill ends both at once; connections break.
func (r *replica) kill() {
	r.sim.Kill()
	_ = r.tap.Close()
	r.wg.Wait()
}

func (r *replica) addr() string { return r.ip + ":8000" }
