package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"

	"golang.org/x/sync/errgroup"

	"warmroute/lab/vllmsim"
)

// realPage is the size in bytes of the /metrics page of a vLLM that has served for a
// while.
const realPage = 41 << 10

// fleetCommand serves simulated replicas until its standard input ends, and
// prints their addresses as one line of JSON.
func fleetCommand(ctx context.Context, args []string) error {
	f := flagSet("fleet")
	n := f.Int("n", 8, "replicas")
	dir := f.String("model", "", "folder of a model whose token ids /render and /tokenize give; empty: the simulator's own")
	blocks := f.Int("blocks", 65536, "KV blocks of a replica")
	connector := f.Bool("connector", false, "hand KV caches to each other over NIXL, and answer prefill legs at once")
	page := f.Int("page", realPage, "bytes of a /metrics page, at least")
	if err := f.Parse(args); err != nil {
		return err
	}
	front := func(api http.Handler) http.Handler { return padded(api, *page) }
	if *dir != "" {
		m, err := loadModel(*dir)
		if err != nil {
			return err
		}
		front = func(api http.Handler) http.Handler { return m.answer(padded(api, *page)) }
	}
	o := vllmsim.Options{Model: "sim", Blocks: *blocks, MaxModelLen: min(131072, (*blocks-1)*16), Events: "127.0.0.1:0", Replay: "127.0.0.1:0", PrefillRate: -1, DecodeRate: -1}
	if *connector {
		o.Connector, o.Front = vllmsim.Nixl, func(api http.Handler) http.Handler { return withLegs(front(api)) }
	} else {
		o.Front = front
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	group, ctx := errgroup.WithContext(ctx)
	var addrs []string
	for i := range *n {
		o.Seed = int64(i)
		sim, err := vllmsim.New(o)
		if err != nil {
			return err
		}
		group.Go(func() error { return sim.Run(ctx) })
		addrs = append(addrs, sim.Addr())
	}
	if err := json.NewEncoder(os.Stdout).Encode(addrs); err != nil {
		return err
	}
	<-ctx.Done()
	return group.Wait()
}

// padded returns a replica's API with a /metrics page of at least size bytes. Series that a
// real page has and the simulator's page lacks fill it. The counters of prefix caches are left
// out: the measured requests do not reach the replicas, so their counters would tell the router
// that its predictions are wrong, and a router that doubts its replicas does other work.
func padded(api http.Handler, size int) http.Handler {
	var more []byte
	for i := 0; len(more) < size; i++ {
		more = fmt.Appendf(more, "vllm:request_params_max_tokens_bucket{engine=\"0\",le=\"%d.0\",model_name=\"sim\"} %d.0\n", i, i)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			api.ServeHTTP(w, r)
			return
		}
		page := httptest.NewRecorder()
		api.ServeHTTP(page, r)
		n := 0
		for line := range bytes.Lines(page.Body.Bytes()) {
			if !bytes.Contains(line, []byte("prefix_cache")) {
				n += len(line)
				_, _ = w.Write(line) // the client has gone
			}
		}
		_, _ = w.Write(more[:max(0, size-n)]) // the client has gone
	})
}

// readAddrs reads the line that fleetCommand prints.
func readAddrs(r io.Reader) (addrs []string, err error) {
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the simulated fleet did not start: %w", err)
	}
	return addrs, json.Unmarshal(line, &addrs)
}
