package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// variant is one of the Envoys that a measurement compares, and its no-op ext_proc server.
type variant struct {
	options envoy.Options // addresses are filled in
	noop    []string      // flags of the server
}

// turns are the length and the number of the measurements of each Envoy.
type turns struct {
	span   time.Duration
	rounds int
}

// compareEnvoys starts an upstream and the Envoys to compare before it, and calls measure.
func compareEnvoys(ctx context.Context, upstream http.Handler, variants func(upstream string) [3]variant, measure func([3]*testenv.Envoy) error) error {
	dir, err := os.MkdirTemp("", "extprocbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server := httptest.NewServer(upstream)
	defer server.Close()
	addr := server.Listener.Addr().String()
	envoys, stop, err := startVariants(ctx, dir, addr, variants(addr))
	defer stop()
	if err != nil {
		return err
	}
	return measure(envoys)
}

// startVariants starts the Envoys to compare, each with its server. Its caller calls stop,
// also after an error.
func startVariants(ctx context.Context, dir, upstream string, variants [3]variant) (envoys [3]*testenv.Envoy, stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, s := range stops {
			s()
		}
	}
	ports, err := testenv.FreePorts(3 * len(variants))
	if err != nil {
		return envoys, stop, err
	}
	self, err := os.Executable()
	if err != nil {
		return envoys, stop, err
	}
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	for i, v := range variants {
		o := v.options
		o.Listen, o.Admin, o.ExtProc, o.AccessLog = at(3*i), at(3*i+1), []string{at(3*i + 2)}, "none"
		noop, err := start(self, append([]string{"noop", "-listen", o.ExtProc[0], "-dests", upstream}, v.noop...)...)
		if err != nil {
			return envoys, stop, err
		}
		stops = append(stops, noop.stop)
		var boot bytes.Buffer
		if err := envoy.WriteBootstrap(&boot, o); err != nil {
			return envoys, stop, err
		}
		if envoys[i], err = testenv.StartEnvoy(dir, fmt.Sprint("envoy", i), boot.Bytes(), o.Listen, o.Admin); err != nil {
			return envoys, stop, err
		}
		stops = append(stops, envoys[i].Stop)
		if err := envoys[i].WaitHealthy(ctx, "warmroute"); err != nil {
			return envoys, stop, err
		}
	}
	return envoys, stop, nil
}

// costRow prints a row: the costs of a request to each Envoy, and those of the second and
// the third over that of the first. send sends an Envoy its nth request.
func (t turns) costRow(name string, envoys [3]*testenv.Envoy, send func(e *testenv.Envoy, n int) error) error {
	cost, err := t.costs(envoys, send)
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %.3f | %.3f | %.3f | **%.2f** | **%.2f** |\n", name, cost[0], cost[1], cost[2], cost[1]/cost[0], cost[2]/cost[0])
	return nil
}

// costs returns the CPU time of each Envoy for one request, in milliseconds.
func (t turns) costs(envoys [3]*testenv.Envoy, send func(e *testenv.Envoy, n int) error) (cost [3]float64, err error) {
	var cpu [3]time.Duration
	var requests [3]int
	for range t.rounds {
		for i, e := range envoys {
			before, err := readProc(e.PID())
			if err != nil {
				return cost, err
			}
			for end := time.Now().Add(t.span); time.Now().Before(end); requests[i]++ {
				if err := send(e, requests[i]); err != nil {
					return cost, err
				}
			}
			after, err := readProc(e.PID())
			if err != nil {
				return cost, err
			}
			cpu[i] += after.cpu - before.cpu
		}
	}
	for i := range cost {
		cost[i] = ms(cpu[i]) / float64(requests[i])
	}
	return cost, nil
}
