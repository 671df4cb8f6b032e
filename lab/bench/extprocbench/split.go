package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
)

// splitCommand measures the cost of a prefill on another replica. To the router: the same
// router with prefill_decode off, with mode pull, and a program that only sends the legs, in
// turn. To Envoy: without the filter that puts kv_transfer_params into bodies, with it for
// requests that bring none, and for requests that do.
func splitCommand(ctx context.Context, args []string) error {
	var o costOptions
	f := flagSet("split")
	f.StringVar(&o.extproc, "extproc", "bin/extproc", "the router's binary")
	f.StringVar(&o.modelDir, "model", "", "folder of the model whose token ids of chats are computed in process; empty: no chats")
	f.StringVar(&o.profiles, "profiles", "", "directory to write CPU profiles of the router to")
	f.StringVar(&o.rows, "rows", "", "measure only rows whose name has this, as chat-16k-16-buffered-none")
	f.StringVar(&o.sizes, "sizes", "16,220", "sizes of bodies in KB")
	f.Float64Var(&o.seconds, "s", 1.5, "seconds of one measurement")
	f.IntVar(&o.rounds, "rounds", 4, "measurements of each, in turn")
	if err := f.Parse(args); err != nil {
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.splits(ctx); err != nil {
		return err
	}
	t := turns{time.Duration(o.seconds * float64(time.Second)), o.rounds}
	return compareEnvoys(ctx, new(readers), splitVariants, func(envoys [3]*testenv.Envoy) error {
		fmt.Printf("\n| body | Envoy CPU-ms, no filter | not split | split | × not split | × split |\n|---|---|---|---|---|---|\n")
		for _, kb := range []int{16, 220} {
			g := splitBodies(kb, true)
			bodies, err := g.bodies()
			if err != nil {
				return err
			}
			send := func(e *testenv.Envoy, n int) error {
				return sent(ctx, e.URL+g.path(), bodies[n%len(bodies)], e == envoys[2])
			}
			if err := t.costRow(fmt.Sprintf("%d KB", kb), envoys, send); err != nil {
				return err
			}
		}
		return nil
	})
}

// splitVariants are the Envoys to compare.
func splitVariants(upstream string) (all [3]variant) {
	for i := range all {
		// On a busy machine the no-op may be late, and Envoy would send a body as it came.
		all[i].options = envoy.Options{Replicas: []string{upstream}, MessageTimeout: 30 * time.Second}
		if i > 0 {
			all[i].options.Split = envoy.Split{On: true, Wait: 30 * time.Second}
		}
	}
	all[2].noop = []string{"-split"}
	return all
}

// readers is an upstream that tells how many bytes it has read.
type readers struct{}

// ServeHTTP implements http.Handler.
func (*readers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := io.Copy(io.Discard, r.Body)
	_, _ = fmt.Fprint(w, n)
}

// sent sends a body through Envoy, which must arrive with kv_transfer_params or as it is.
func sent(ctx context.Context, url string, body []byte, with bool) error {
	answer, err := exchanged(ctx, http.DefaultClient, url, body)
	want := len(body)
	if with {
		want += len(`,"kv_transfer_params":`) + len(params(len(body)))
	}
	if err == nil && string(answer) != fmt.Sprint(want) {
		err = fmt.Errorf("%s bytes arrived of %d", answer, want)
	}
	return err
}

// splitBodies describes the bodies of the measurement of kb KB each: few, so that the replicas
// that compute prompts hold them all.
func splitBodies(kb int, ids bool) genConfig {
	return genConfig{size: kb << 10, count: 64, prefixes: 8, sessions: 32, share: .75, seed: int64(kb), model: "sim", ids: ids}
}

// params are kv_transfer_params as long as vLLM's for a prompt of so many bytes, 3 for each
// token.
func params(bytes int) []byte {
	blocks := make([]int, bytes/3/16+1)
	for i := range blocks {
		blocks[i] = 10_000 + i
	}
	list, _ := json.Marshal([][]int{blocks})
	return fmt.Appendf(nil, `{"do_remote_prefill":true,"do_remote_decode":false,"remote_block_ids":%s,"remote_engine_id":"6f1f1c9e-4c0f-4b2c-9d38-1a52a7f0c2f4",`+
		`"remote_request_id":"chatcmpl-0d6b8b8e-0000-4000-8000-000000000001-1a2b3c4d","remote_host":"127.0.0.1","remote_port":5600,"tp_size":1,"dcp_size":1,"pp_size":1,`+
		`"remote_num_tokens":%d,"remote_blocks_expiry_time":81234.5,"transfer_mode":"pull","remote_prefill_cached_tokens":0}`, list, bytes/3)
}

// withLegs answers prefill legs at once, and leaves other requests to next.
func withLegs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		if !bytes.Contains(body, []byte(`"do_remote_decode":true`)) {
			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"id":"cmpl-1","object":"text_completion","created":1,"model":"sim","choices":[{"index":0,"text":" a","finish_reason":"length"}],`+
			`"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d},"kv_transfer_params":%s}`, len(body)/3, len(body)/3+1, params(len(body)))
	})
}

// splits prints what requests cost the router that it splits, and that it does not.
func (b *bench) splits(ctx context.Context) error {
	fleet, addrs, err := b.startFleet(8, "-connector", "-blocks", "262144")
	if err != nil {
		return err
	}
	defer fleet.stop()
	b.replicas = addrs[:4] // those that compute prompts
	var lines []string
	for i, a := range addrs {
		lines = append(lines, fmt.Sprintf("%s\n    role: %s", a, []string{"prefill", "decode"}[i/4]))
	}
	var routers [2]*router
	for i, mode := range []string{"off", "pull"} {
		dir, err := os.MkdirTemp(b.dir, mode)
		if err != nil {
			return err
		}
		how := fmt.Sprintf("%sfilter: {token_budget: 10s}\nprefill_decode: {mode: %s}\npolicy: {ttft: {prefill_token: 0.01}, prefill_decode: {theta: 1000}}\n", b.extra, mode)
		if routers[i], err = startRouter(ctx, b.o.extproc, dir, lines, how); err != nil {
			return err
		}
		defer routers[i].stop()
	}
	cells, err := b.cells()
	if err != nil {
		return err
	}
	fmt.Printf("| body | streams | not split, CPU-ms | split, CPU-ms | the leg alone, CPU-ms | split less leg, × not split |\n|---|---|---|---|---|---|\n")
	for _, c := range cells {
		if c.mode != "buffered" || c.resp != "none" || !strings.Contains(c.name(), b.o.rows) {
			continue
		}
		if err := b.splitRow(ctx, c, routers); err != nil {
			return fmt.Errorf("%s %d KB, %d streams: %w", c.kind, c.kb, c.streams, err)
		}
	}
	return nil
}

func (b *bench) splitRow(ctx context.Context, c cell, routers [2]*router) error {
	g := splitBodies(c.kb, c.kind == "ids")
	bodies, err := g.bodies()
	if err != nil {
		return err
	}
	prompts, err := b.prompts(&g, bodies)
	if err != nil {
		return err
	}
	for i, p := range prompts {
		if err := b.post(ctx, i, p); err != nil {
			return err
		}
	}
	cfg := clientConfig{
		mode: "buffered", respMode: "none", path: g.path(), bodies: bodies, workers: c.streams, conns: 2, timeout: 30 * time.Second,
		duration: time.Duration(b.o.seconds * float64(time.Second)), warm: 300,
	}
	for i, r := range routers { // one at a time: chats that are new take long
		one := cfg
		one.addr, one.split, one.workers, one.warm, one.duration, one.total = r.listen, i == 1, 1, len(bodies), 0, 1
		if _, err := runClient(ctx, &one); err != nil {
			return err
		}
	}
	var plain, split, legs sum
	for range b.o.rounds {
		cfg.split = false
		if err := b.profiled(ctx, c, "-plain", routers[0], &plain, cfg); err != nil {
			return fmt.Errorf("off: %w", err)
		}
		cfg.split = true
		if err := b.profiled(ctx, c, "-split", routers[1], &split, cfg); err != nil {
			reasons, _ := routers[1].metric(ctx, "warmroute_split_decisions_total", "reason")
			return fmt.Errorf("pull, with decisions %v: %w", reasons, err)
		}
		if err := b.legs(ctx, c, &legs); err != nil {
			return fmt.Errorf("legs: %w", err)
		}
	}
	fmt.Printf("| %s %d KB | %d | %.3f | %.3f | %.3f | **%.2f** |\n", c.kind, c.kb, c.streams, plain.perRequest(), split.perRequest(), legs.perRequest(),
		(split.perRequest()-legs.perRequest())/plain.perRequest())
	return nil
}

// sentLegs is what legsCommand prints.
type sentLegs struct {
	Requests int
	CPU      float64 // ms
}

// legs adds to what the legs of a cell cost a program that does nothing else.
func (b *bench) legs(ctx context.Context, c cell, to *sum) error {
	p, err := start(b.self, "legs", "-to", strings.Join(b.replicas, ","), "-kb", fmt.Sprint(c.kb), fmt.Sprintf("-ids=%v", c.kind == "ids"), "-c", fmt.Sprint(c.streams), "-s", fmt.Sprint(b.o.seconds))
	if err != nil {
		return err
	}
	defer p.stop()
	var got sentLegs
	if err := json.NewDecoder(p.out).Decode(&got); err != nil {
		return err
	}
	to.cpu, to.requests = to.cpu+got.CPU, to.requests+got.Requests
	return ctx.Err()
}

// legsCommand sends prefill legs with net/http alone, and prints what they cost it.
func legsCommand(ctx context.Context, args []string) error {
	f := flagSet("legs")
	to := f.String("to", "127.0.0.1:8000", "comma list of replicas, in turn")
	kb := f.Int("kb", 16, "size of a body in KB")
	ids := f.Bool("ids", false, "bodies with token ids in place of chats")
	workers := f.Int("c", 1, "concurrent requests")
	seconds := f.Float64("s", 1.5, "seconds that are measured")
	if err := f.Parse(args); err != nil {
		return err
	}
	g := splitBodies(*kb, *ids)
	bodies, err := g.bodies()
	if err != nil {
		return err
	}
	for i := range bodies {
		bodies[i] = append([]byte(`{"kv_transfer_params":{"do_remote_decode":true},`), bodies[i][1:]...)
	}
	addrs := strings.Split(*to, ",")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	var n atomic.Int64
	send := func() error {
		i := int(n.Add(1))
		_, err := exchanged(ctx, client, "http://"+addrs[i%len(addrs)]+g.path(), bodies[i%len(bodies)])
		return err
	}
	for range 64 {
		if err := send(); err != nil {
			return err
		}
	}
	n.Store(0)
	before, end := ownCPU(), time.Now().Add(time.Duration(*seconds*float64(time.Second)))
	errs := make([]error, *workers)
	var all sync.WaitGroup
	for w := range errs {
		all.Go(func() {
			for errs[w] == nil && time.Now().Before(end) {
				errs[w] = send()
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(sentLegs{int(n.Load()), ms(ownCPU() - before)})
}

// ownCPU is the CPU time of this process so far.
func ownCPU() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
