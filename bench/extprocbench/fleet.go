package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"

	"golang.org/x/sync/errgroup"

	"warmroute/internal/vllmsim"
)

// realPage is how large the /metrics page of a vLLM that has served for a while
// is, in bytes.
const realPage = 41 << 10

// fleetCommand serves simulated replicas until its standard input ends, and
// prints their addresses as one line of JSON.
func fleetCommand(ctx context.Context, args []string) error {
	f := flagSet("fleet")
	n := f.Int("n", 8, "replicas")
	dir := f.String("model", "", "folder of a model whose token ids /render and /tokenize give; empty: the simulator's own")
	blocks := f.Int("blocks", 65536, "KV blocks of a replica")
	page := f.Int("page", realPage, "bytes of a /metrics page, at least")
	if err := f.Parse(args); err != nil {
		return err
	}
	handler := padded
	if *dir != "" {
		m, err := loadModel(*dir)
		if err != nil {
			return err
		}
		handler = func(addr string, size int) http.Handler { return m.answer(padded(addr, size)) }
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
		sim, err := vllmsim.New(vllmsim.Options{
			Model: "sim", Blocks: *blocks, MaxModelLen: min(131072, (*blocks-1)*16), Seed: int64(i),
			Events: "127.0.0.1:0", Replay: "127.0.0.1:0", PrefillRate: -1, DecodeRate: -1,
		})
		if err != nil {
			return err
		}
		group.Go(func() error { return sim.Run(ctx) })
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		front := &http.Server{Handler: handler(sim.Addr(), *page)}
		group.Go(func() error { return front.Serve(l) })
		group.Go(func() error {
			<-ctx.Done()
			return front.Close()
		})
		addrs = append(addrs, l.Addr().String())
	}
	if err := json.NewEncoder(os.Stdout).Encode(addrs); err != nil {
		return err
	}
	<-ctx.Done()
	_ = group.Wait() // closed servers say so
	return nil
}

// padded is the replica at addr with its /metrics page brought up to size bytes
// by series that a real page has and the simulator does not.
func padded(addr string, size int) http.Handler {
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError) // clients that leave are part of the traffic
	proxy.ModifyResponse = func(resp *http.Response) error {
		if resp.Request.URL.Path != "/metrics" {
			return nil
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		for i := 0; len(body) < size; i++ {
			body = fmt.Appendf(body, "vllm:request_params_max_tokens_bucket{engine=\"0\",le=\"%d.0\",model_name=\"sim\"} %d.0\n", i, i)
		}
		resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	return proxy
}

// readAddrs reads the line that fleetCommand prints.
func readAddrs(r io.Reader) (addrs []string, err error) {
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("the simulated fleet did not start: %w", err)
	}
	return addrs, json.Unmarshal(line, &addrs)
}
