package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// routersCommand measures the cost of sharing: in turn it measures one router that shares
// nothing and one of several connected routers, and then the cost to the routers that
// receive.
func routersCommand(ctx context.Context, args []string) error {
	o := costOptions{}
	f := flagSet("routers")
	f.StringVar(&o.extproc, "extproc", "bin/extproc", "the router's binary")
	f.StringVar(&o.modelDir, "model", "", "folder of the model whose token ids of chats are computed in process; empty: no chats")
	f.StringVar(&o.profiles, "profiles", "", "directory to write CPU profiles of both routers to")
	f.StringVar(&o.sizes, "sizes", "16", "sizes of bodies in KB")
	f.Float64Var(&o.seconds, "s", 2, "seconds of one measurement")
	f.IntVar(&o.rounds, "rounds", 6, "measurements of each, in turn")
	several := f.Int("n", 3, "routers that share, of which one serves")
	many := f.Int("many", 8, "routers of the second table, of which all but one serve; 0: none")
	rate := f.Float64("rate", 2000, "requests a second of the second table, over all routers that serve")
	if err := f.Parse(args); err != nil {
		return err
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	fleet, addrs, err := b.startFleet(8)
	if err != nil {
		return err
	}
	defer fleet.stop()
	b.replicas = addrs
	if err := b.beside(ctx, *several); err != nil || *many == 0 {
		return err
	}
	return b.listening(ctx, *many, *rate)
}

// pinned returns the router's command on a processor apart from listening routers:
// routers of a fleet run on machines of their own, and do not evict each other's
// processor caches.
func (b *bench) pinned(listens bool) []string {
	cpu := 0
	if listens {
		cpu = runtime.NumCPU() - 1
	}
	return []string{"env", "GOMAXPROCS=2", "taskset", "-c", strconv.Itoa(cpu), b.o.extproc}
}

// startRouters starts n routers that share, and waits until each is connected to the others.
func (b *bench) startRouters(ctx context.Context, n int) (all []*router, err error) {
	defer func() {
		if err != nil {
			stopAll(all)
		}
	}()
	at, err := freeAddrs(n)
	if err != nil {
		return nil, err
	}
	for i := range n {
		dir, err := os.MkdirTemp(b.dir, "router-")
		if err != nil {
			return all, err
		}
		share := fmt.Sprintf("%speers: {id: r%d, listen: %s, routes: [%s]}\n", b.extra, i, at[i], strings.Join(at, ", "))
		r, err := startRouterBy(ctx, b.pinned(i > 0), dir, b.replicas, share)
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
	for _, r := range all {
		if err := await(ctx, time.Minute, func() bool {
			of, _ := r.metric(ctx, "warmroute_peer_silent_seconds", "peer")
			return len(of) == len(all)-1
		}); err != nil {
			return all, fmt.Errorf("the routers do not hear each other: %w", err)
		}
	}
	return all, nil
}

func stopAll(all []*router) {
	for _, r := range all {
		r.stop()
	}
}

// told returns the counts of messages between the routers.
type told struct{ messages, bytes float64 }

func toldBy(ctx context.Context, all []*router) (n told, err error) {
	for _, r := range all {
		messages, err := r.metric(ctx, "warmroute_peers_messages_total", "what")
		if err != nil {
			return n, err
		}
		bytes, err := r.metric(ctx, "warmroute_peers_bytes_total", "what")
		if err != nil {
			return n, err
		}
		n.messages += messages["sent"]
		n.bytes += bytes["sent"]
	}
	return n, nil
}

// spent is the cost of listeners in some turns.
type spent struct {
	cpu     time.Duration
	seconds float64
}

// during adds the cost of each router while do runs.
func (s *spent) during(all []*router, do func() error) error {
	read := func() (sum time.Duration, err error) {
		for _, r := range all {
			p, err := readProc(r.pid())
			if err != nil {
				return 0, err
			}
			sum += p.cpu
		}
		return sum / time.Duration(len(all)), nil
	}
	before, err := read()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := do(); err != nil {
		return err
	}
	after, err := read()
	s.cpu += after - before
	s.seconds += time.Since(began).Seconds()
	return err
}

// core returns the share of a core.
func (s *spent) core() float64 { return s.cpu.Seconds() / s.seconds }

// beside prints the first table: one router, and the serving router of n.
func (b *bench) beside(ctx context.Context, n int) error {
	dir := filepath.Join(b.dir, "alone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	alone, err := startRouterBy(ctx, b.pinned(false), dir, b.replicas, b.extra)
	if err != nil {
		return err
	}
	defer alone.stop()
	all, err := b.startRouters(ctx, n)
	if err != nil {
		return err
	}
	defer stopAll(all)
	b.router = all[0] // the table has its share of warm decisions
	fmt.Printf("| body | streams | alone CPU-ms | one of %d CPU-ms | × | listening, CPU-ms a request | messages a request | bytes a request | requests/s alone / sharing |\n|---|---|---|---|---|---|---|---|---|\n", n)
	cells, err := b.cells()
	if err != nil {
		return err
	}
	for _, c := range cells {
		if c.mode != "buffered" {
			continue
		}
		if err := b.besideRow(ctx, c, alone, all); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) besideRow(ctx context.Context, c cell, alone *router, all []*router) error {
	cfg, stop, err := b.prepare(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	var one, sharing sum
	var idle, heard spent
	before, err := toldBy(ctx, all[:1])
	if err != nil {
		return err
	}
	turns := []func() error{
		func() error {
			return idle.during(all[1:], func() error { return b.profiled(ctx, c, "alone", alone, &one, cfg) })
		},
		func() error {
			return heard.during(all[1:], func() error {
				done := b.profile(c, "listening", all[1])
				return errors.Join(b.profiled(ctx, c, "sharing", all[0], &sharing, cfg), done())
			})
		},
	}
	for i := range 2 * b.o.rounds { // alone, sharing, sharing, alone, …
		if err := turns[(i+1)/2%2](); err != nil {
			return err
		}
	}
	after, err := toldBy(ctx, all[:1])
	if err != nil {
		return err
	}
	requests := float64(sharing.requests + b.o.rounds*cfg.warm)
	fmt.Printf("| %s %d KB%s | %d | %.4f | %.4f | **%.3f** | %.4f | %.2f | %.0f | %.0f / %.0f |\n", c.kind, c.kb, strings.TrimPrefix(c.title, "BUFFERED"), c.streams,
		one.perRequest(), sharing.perRequest(), sharing.perRequest()/one.perRequest(),
		1000*(heard.core()-idle.core())*heard.seconds/requests, (after.messages-before.messages)/requests, (after.bytes-before.bytes)/requests,
		float64(one.requests)/one.seconds, float64(sharing.requests)/sharing.seconds)
	return nil
}

// listening prints the second table: n routers, of which all but one serve.
func (b *bench) listening(ctx context.Context, n int, rate float64) error {
	all, err := b.startRouters(ctx, n)
	if err != nil {
		return err
	}
	defer stopAll(all)
	b.router, b.seeded = all[0], ""
	fmt.Printf("\n| body | routers | requests/s | listening alone, %% of a core | serving, %% of a core | messages a request | bytes a request | idle, %% of a core |\n|---|---|---|---|---|---|---|---|\n")
	c := cell{"ids", 16, 16, "buffered", "headers", 1, ""}
	cfg, stop, err := b.prepare(ctx, c)
	if err != nil {
		return err
	}
	defer stop()
	cfg.rate, cfg.hold, cfg.workers, cfg.conns = rate/float64(n-1), 20*time.Millisecond, 32, 1
	cfg.duration = time.Duration(float64(b.o.rounds) * b.o.seconds * float64(time.Second))
	var idle, listen, serve spent
	last := all[n-1:]
	if err := idle.during(last, func() error { return sleep(ctx, cfg.duration) }); err != nil {
		return err
	}
	before, err := toldBy(ctx, all[:n-1])
	if err != nil {
		return err
	}
	sums := make([]sum, n-1)
	err = listen.during(last, func() error {
		return serve.during(all[:n-1], func() error {
			var wg sync.WaitGroup
			errs := make([]error, n-1)
			for i, r := range all[:n-1] {
				wg.Go(func() { errs[i] = measure(ctx, &sums[i], cfg, r.listen, r.pid()) })
			}
			wg.Wait()
			return errors.Join(errs...)
		})
	})
	if err != nil {
		return err
	}
	after, err := toldBy(ctx, all[:n-1])
	if err != nil {
		return err
	}
	requests := 0.0
	for _, s := range sums {
		requests += float64(s.requests + cfg.warm)
	}
	fmt.Printf("| %s %d KB | %d | %.0f | %.1f | %.1f | %.2f | %.0f | %.1f |\n", c.kind, c.kb, n, requests/listen.seconds, 100*listen.core(), 100*serve.core(), (after.messages-before.messages)/requests, (after.bytes-before.bytes)/requests, 100*idle.core())
	return nil
}
