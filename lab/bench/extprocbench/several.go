package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// severalCommand measures the cost to Envoy of reading bodies' models, which it does if a
// fleet has several: two Envoys that differ by that filter alone, in turn, before the
// no-op ext_proc server and an upstream that only reads.
func severalCommand(ctx context.Context, args []string) error {
	f := flagSet("several")
	seconds := f.Float64("s", 1.5, "seconds of one measurement")
	rounds := f.Int("rounds", 3, "measurements of each, in turn")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "extprocbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer upstream.Close()
	ports, err := testenv.FreePorts(5)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	at := func(i int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[i])) }
	addr := upstream.Listener.Addr().String()
	noop, err := start(self, "noop", "-listen", at(4), "-dests", addr)
	if err != nil {
		return err
	}
	defer noop.stop()
	var envoys [2]*testenv.Envoy // without and with the filter
	for i := range envoys {
		fleet := envoy.Serving(addr)
		fleet.ReadsModel = i == 1
		var boot bytes.Buffer
		if err := envoy.WriteBootstrap(&boot, envoy.Options{Listen: at(2 * i), Admin: at(2*i + 1), ExtProc: []string{at(4)}, AccessLog: "none", Fleet: fleet}); err != nil {
			return err
		}
		if envoys[i], err = testenv.StartEnvoy(dir, fmt.Sprint("envoy", i), boot.Bytes(), at(2*i), at(2*i+1)); err != nil {
			return err
		}
		defer envoys[i].Stop()
		if err := envoys[i].WaitHealthy(ctx, "warmroute"); err != nil {
			return err
		}
	}
	fmt.Printf("\n| body | Envoy CPU-ms, one model | several models | added | × |\n|---|---|---|---|---|\n")
	for _, kb := range []int{16, 220} {
		for _, ids := range []bool{false, true} {
			if err := severalRow(ctx, envoys, kb, ids, *rounds, time.Duration(*seconds*float64(time.Second))); err != nil {
				return err
			}
		}
	}
	return differ(envoys)
}

// differ checks that both Envoys called ext_proc, and that only the second read
// the model.
func differ(envoys [2]*testenv.Envoy) error {
	for i, e := range envoys {
		var page bytes.Buffer
		if err := get(e.Admin+"/stats?usedonly&filter=ext_proc.streams_started|json_to_metadata.rq.success", &page); err != nil {
			return err
		}
		if asked, read := strings.Contains(page.String(), "streams_started: "), strings.Contains(page.String(), "rq.success: "); !asked || read != (i == 1) {
			return fmt.Errorf("envoy %d: ext_proc asked %v, models read %v: %s", i, asked, read, page.String())
		}
	}
	return nil
}

func severalRow(ctx context.Context, envoys [2]*testenv.Envoy, kb int, ids bool, rounds int, span time.Duration) error {
	g := genConfig{size: kb << 10, count: 64, prefixes: 8, sessions: 32, share: .75, seed: int64(kb), model: "sim", ids: ids}
	bodies, err := g.bodies()
	if err != nil {
		return err
	}
	var cpu [2]time.Duration
	var requests [2]int
	for range rounds {
		for i, e := range envoys {
			before, err := readProc(e.PID())
			if err != nil {
				return err
			}
			for end := time.Now().Add(span); time.Now().Before(end); requests[i]++ {
				if err := post(ctx, e.URL+g.path(), bodies[requests[i]%len(bodies)]); err != nil {
					return err
				}
			}
			after, err := readProc(e.PID())
			if err != nil {
				return err
			}
			cpu[i] += after.cpu - before.cpu
		}
	}
	one, several := ms(cpu[0])/float64(requests[0]), ms(cpu[1])/float64(requests[1])
	kind := map[bool]string{false: "chat", true: "ids"}[ids]
	fmt.Printf("| %s %d KB | %.3f | %.3f | %.3f | **%.2f** |\n", kind, kb, one, several, several-one, several/one)
	return nil
}
