package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"warmroute/internal/testenv"
)

// costOptions set the measurements and their length.
type costOptions struct {
	extproc, profiles, config string
	against                   string
	rows                      string
	modelDir                  string
	seconds                   float64
	rounds, idleReplicas      int
	sizes                     string
}

// costCommand measures the router and the floor, in the same minutes and with the same
// client, and prints tables in Markdown.
func costCommand(ctx context.Context, args []string) error {
	var o costOptions
	f := flagSet("cost")
	f.StringVar(&o.extproc, "extproc", "bin/extproc", "the router's binary")
	f.StringVar(&o.against, "against", "", "another build of the router, measured in turn with the first")
	f.StringVar(&o.rows, "rows", "", "measure only rows whose name has this, as chat-16k-16-duplex-none")
	f.StringVar(&o.config, "config", "", "file appended to the router's configuration")
	f.StringVar(&o.modelDir, "model", "", "folder of the model whose token ids of chats are computed in process; empty: no chats")
	f.StringVar(&o.profiles, "profiles", "", "directory to write CPU profiles of the router to")
	f.StringVar(&o.sizes, "sizes", "1,16,220", "sizes of bodies in KB")
	f.Float64Var(&o.seconds, "s", 1.5, "seconds of one measurement")
	f.IntVar(&o.rounds, "rounds", 3, "measurements of each, floor and router in turn")
	f.IntVar(&o.idleReplicas, "idle", 100, "replicas of the idle measurement; 0: none")
	if err := f.Parse(args); err != nil {
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if o.config != "" {
		extra, err := os.ReadFile(o.config)
		if err != nil {
			return err
		}
		b.extra += string(extra)
	}
	if err := b.load(ctx); err != nil {
		return err
	}
	if o.idleReplicas == 0 {
		return nil
	}
	return b.idle(ctx)
}

// newBench makes a folder for the bench, which the caller removes.
func newBench(o costOptions) (*bench, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bench{o: o, self: self}
	if err := b.withModel(); err != nil {
		return nil, err
	}
	b.dir, err = os.MkdirTemp("", "extprocbench")
	return b, err
}

// withModel loads the model if the options name one.
func (b *bench) withModel() (err error) {
	if b.o.modelDir == "" {
		return nil
	}
	if b.o.modelDir, err = filepath.Abs(b.o.modelDir); err != nil {
		return err
	}
	if b.model, err = loadModel(b.o.modelDir); err != nil {
		return err
	}
	b.extra = b.model.config()
	return nil
}

type bench struct {
	o                costOptions
	self, dir, extra string
	model            *model // nil: no chats

	replicas []string
	seeded   string // the bodies for which the replicas' caches are filled
	floor    *process
	floorAt  string
	router   *router
	against  *router // nil: none
}

// cell is one row: the requests, and the way of sending them.
type cell struct {
	kind    string
	kb      int
	streams int
	mode    string // of the request body
	resp    string // response phase
	chunks  int    // response chunks
	title   string // Envoy's mode in the words of the table
}

// name returns the row's name, for files.
func (c *cell) name() string {
	return fmt.Sprintf("%s-%dk-%d-%s-%s", c.kind, c.kb, c.streams, c.mode, c.resp)
}

func (b *bench) cells() ([]cell, error) {
	var out []cell
	kinds := []string{"ids"}
	if b.model != nil {
		kinds = []string{"chat", "ids"}
	}
	for _, kind := range kinds {
		for size := range strings.SplitSeq(b.o.sizes, ",") {
			var kb int
			if _, err := fmt.Sscan(size, &kb); err != nil {
				return nil, fmt.Errorf("-sizes: %q is not a number", size)
			}
			for _, streams := range []int{1, 16} {
				out = append(out, cell{kind, kb, streams, "buffered", "none", 1, "BUFFERED"})
			}
			if kb == 16 {
				out = append(out,
					cell{kind, kb, 16, "buffered", "headers", 200, "BUFFERED, response headers"},
					cell{kind, kb, 16, "duplex", "none", 1, "FULL_DUPLEX_STREAMED"})
			}
		}
	}
	return out, nil
}

// load measures CPU per request in the default mode and in others.
func (b *bench) load(ctx context.Context) error {
	fleet, addrs, err := b.startFleet(8)
	if err != nil {
		return err
	}
	defer fleet.stop()
	b.replicas = addrs
	at, err := freeAddrs(1)
	if err != nil {
		return err
	}
	b.floorAt = at[0]
	if b.floor, err = start(b.self, "noop", "-listen", b.floorAt, "-dests", strings.Join(addrs, ",")); err != nil {
		return err
	}
	defer b.floor.stop()
	if b.router, err = startRouter(ctx, b.o.extproc, b.dir, addrs, b.extra); err != nil {
		return err
	}
	defer b.router.stop()
	if b.o.against != "" {
		dir, err := os.MkdirTemp(b.dir, "against-")
		if err != nil {
			return err
		}
		if b.against, err = startRouter(ctx, b.o.against, dir, addrs, b.extra); err != nil {
			return err
		}
		defer b.against.stop()
	}
	cells, err := b.cells()
	if err != nil {
		return err
	}
	fmt.Printf("| body | Envoy's mode | streams | floor CPU-ms | warmroute CPU-ms | × floor | floor p50 / p99 ms | warmroute p50 / p99 ms | requests/s floor / warmroute | RSS MB | warm |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, c := range cells {
		if !strings.Contains(c.name(), b.o.rows) {
			continue
		}
		if err := b.row(ctx, c); err != nil {
			return fmt.Errorf("%s %d KB, %d streams, %s: %w", c.kind, c.kb, c.streams, c.title, err)
		}
	}
	return nil
}

// prepare makes a cell's bodies, and sends their beginnings to the replicas, from which
// the routers learn them by KV events. KV events continue until stop.
func (b *bench) prepare(ctx context.Context, c cell) (cfg clientConfig, stop func(), err error) {
	g := genConfig{size: c.kb << 10, count: 2048, prefixes: 32, sessions: 256, share: .75, seed: int64(c.kb), model: "sim", ids: c.kind == "ids"}
	if c.kb > 100 {
		g.count = 256
	}
	bodies, err := g.bodies()
	if err != nil {
		return cfg, nil, err
	}
	cfg = clientConfig{
		mode: c.mode, respMode: c.resp, respChunks: c.chunks, path: g.path(), subsetOn: "all", bodies: bodies,
		workers: c.streams, conns: 2, chunk: 16384, timeout: 30 * time.Second,
		duration: time.Duration(b.o.seconds * float64(time.Second)), warm: 300,
	}
	prompts, err := b.prompts(&g, bodies)
	if err != nil {
		return cfg, nil, err
	}
	if set := fmt.Sprint(c.kind, c.kb); b.seeded != set {
		// The replica that has a session's prefix has served one turn of it before: the
		// router learned of it by KV events.
		for _, i := range g.firsts() {
			if err := b.post(ctx, g.drawn[i], prompts[i]); err != nil {
				return cfg, nil, err
			}
		}
		b.seeded = set
	}
	ctx, cancel := context.WithCancel(ctx)
	var around sync.WaitGroup
	around.Go(func() { b.flow(ctx, prompts) })
	return cfg, func() { cancel(); around.Wait() }, nil
}

func (b *bench) row(ctx context.Context, c cell) error {
	cfg, stop, err := b.prepare(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	before, err := b.warm(ctx)
	if err != nil {
		return err
	}
	var floor, ours, against sum
	for i := range b.o.rounds {
		if err := measure(ctx, &floor, cfg, b.floorAt, b.floor.pid()); err != nil {
			return fmt.Errorf("floor: %w", err)
		}
		sides := []func() error{
			func() error { return b.profiled(ctx, c, "", b.router, &ours, cfg) },
			func() error { return b.measureAgainst(ctx, &against, cfg) },
		}
		if i%2 == 1 { // what the first of two does to the second falls on both alike
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return err
			}
		}
	}
	after, err := b.warm(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("| %s %d KB | %s | %d | %.3f | %.3f | **%.2f** | %.2f / %.1f | %.2f / %.1f | %.0f / %.0f | %.0f | %.0f %% |\n",
		c.kind, c.kb, c.title, c.streams, floor.perRequest(), ours.perRequest(), ours.perRequest()/floor.perRequest(),
		median(floor.p50), median(floor.p99), median(ours.p50), median(ours.p99),
		float64(floor.requests)/floor.seconds, float64(ours.requests)/ours.seconds, ours.rss,
		100*(after-before)/float64(ours.requests+b.o.rounds*cfg.warm))
	if b.against != nil {
		fmt.Printf("| | by %s | | | %.3f | **%.2f** | | %.2f / %.1f | | | %s of it |\n", b.o.against,
			against.perRequest(), against.perRequest()/floor.perRequest(), median(against.p50), median(against.p99), paired(ours.each, against.each))
	}
	return nil
}

// measureAgainst measures the other build, if there is one.
func (b *bench) measureAgainst(ctx context.Context, to *sum, cfg clientConfig) error {
	if b.against == nil {
		return nil
	}
	if err := measure(ctx, to, cfg, b.against.listen, b.against.pid()); err != nil {
		return fmt.Errorf("%s: %w", b.o.against, err)
	}
	return nil
}

func measure(ctx context.Context, to *sum, cfg clientConfig, addr string, pid int) error {
	cfg.addr, cfg.pid = addr, pid
	rep, err := runClient(ctx, &cfg)
	if err != nil {
		return err
	}
	s := rep.summary()
	if len(s.Errors) > 0 || s.BodyChanged > 0 {
		return fmt.Errorf("%d of %d requests failed: %v; %d bodies changed", s.Failed, s.Failed+s.Requests, s.Errors, s.BodyChanged)
	}
	to.add(s)
	return nil
}

// prompts returns the bodies as a replica's requests: token ids, with one token of
// answer.
func (b *bench) prompts(g *genConfig, bodies [][]byte) ([][]byte, error) {
	list := make([]idsBody, len(bodies))
	if g.ids {
		list = g.completions()
	}
	for i := range list {
		if !g.ids {
			var err error
			if list[i].Prompt, err = b.model.ids(bodies[i]); err != nil {
				return nil, err
			}
		}
		list[i].Model, list[i].MaxTokens, list[i].Stream = g.model, 1, false
	}
	return encode(list)
}

// post sends replica i a prompt to compute.
func (b *bench) post(ctx context.Context, i int, prompt []byte) error {
	return post(ctx, "http://"+b.replicas[i%len(b.replicas)]+"/v1/completions", prompt)
}

// post sends a body and reads the answer, which must be 200.
func post(ctx context.Context, url string, body []byte) error {
	_, err := exchanged(ctx, http.DefaultClient, url, body)
	return err
}

// exchanged sends a body and returns the answer, whose status must be 200.
func exchanged(ctx context.Context, client *http.Client, url string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.200s", url, resp.Status, answer)
	}
	return answer, err
}

// flow sends requests that cause KV events, and scrapes the router's metrics, until ctx
// ends.
func (b *bench) flow(ctx context.Context, prompts [][]byte) {
	tick := time.NewTicker(50 * time.Millisecond) // 20 requests a second, each with its events
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		_ = b.post(ctx, i, prompts[i%len(prompts)]) // a failure shows in the share of warm decisions
		if i%20 == 0 {
			_ = get("http://"+b.router.admin+"/metrics", io.Discard)
		}
	}
}

// warm returns the number of decisions that found a prefix, by the router's own count.
func (b *bench) warm(ctx context.Context) (n float64, err error) {
	of, err := b.router.metric(ctx, "warmroute_decisions_total", "reason")
	return of["warm"] + of["moved"] + of["guarded"], err
}

// metric returns the router's values of one metric, by one of its labels.
func (r *router) metric(ctx context.Context, name, label string) (map[string]float64, error) {
	page, err := testenv.Get(ctx, "http://"+r.admin+"/metrics")
	return testenv.Samples(page, name, label), err
}

// profiled measures one side, and takes a profile if the options ask for profiles.
func (b *bench) profiled(ctx context.Context, c cell, name string, r *router, to *sum, cfg clientConfig) error {
	done := b.profile(c, name, r)
	return errors.Join(measure(ctx, to, cfg, r.listen, r.pid()), done())
}

// profile takes a CPU profile of r, whose name is name, during the measurement of a cell;
// done waits for it.
func (b *bench) profile(c cell, name string, r *router) (done func() error) {
	if b.o.profiles == "" {
		return func() error { return nil }
	}
	result := make(chan error, 1)
	go func() {
		file := fmt.Sprintf("cpu%s-%s.pprof", name, c.name())
		f, err := os.Create(filepath.Join(b.o.profiles, file))
		if err == nil {
			err = errors.Join(get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", r.admin, max(1, int(b.o.seconds))), f), f.Close())
		}
		result <- err
	}()
	return func() error { return <-result }
}

// idle measures the router's cost without requests.
func (b *bench) idle(ctx context.Context) error {
	fmt.Printf("\n| replicas, idle | tokenizer | start to ready ms (median of 5) | CPU %% of a core | RSS MB |\n|---|---|---|---|---|\n")
	for _, n := range []int{8, b.o.idleReplicas} {
		if err := b.idleRow(ctx, n, "none", ""); err != nil {
			return err
		}
	}
	if b.model == nil {
		return nil
	}
	return b.idleRow(ctx, 8, filepath.Base(b.model.dir), b.extra)
}

func (b *bench) idleRow(ctx context.Context, n int, tokenizer, extra string) error {
	fleet, addrs, err := b.startFleet(n)
	if err != nil {
		return err
	}
	defer fleet.stop()
	var ready []float64
	for range 4 {
		r, err := startRouter(ctx, b.o.extproc, b.dir, addrs, extra)
		if err != nil {
			return err
		}
		ready = append(ready, ms(r.ready))
		r.stop()
	}
	r, err := startRouter(ctx, b.o.extproc, b.dir, addrs, extra)
	if err != nil {
		return err
	}
	defer r.stop()
	ready = append(ready, ms(r.ready))
	const settle, span = 3 * time.Second, 10 * time.Second
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	before, err := readProc(r.pid())
	if err != nil {
		return err
	}
	if err := sleep(ctx, span); err != nil {
		return err
	}
	after, err := readProc(r.pid())
	if err != nil {
		return err
	}
	fmt.Printf("| %d | %s | %.0f | %.1f | %.1f |\n", n, tokenizer, median(ready), 100*float64(after.cpu-before.cpu)/float64(span), float64(after.rssKB)/1024)
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
