package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/simulator"
	"warmroute/lab/stage"
)

// answerScale shortens answers as much as blocks (512 tokens to 16).
const answerScale = 32

// lead is the number of requests that makeTrace omits from the seeded trace: its
// conversations all begin at the start, and prompts grow for as long as a few of them
// last.
const lead = 600

// makeTrace returns a part of the simulation's seeded trace: n requests in conversations
// behind shared system prompts, with Poisson arrivals and prompts of whole blocks.
func makeTrace(n int, seed uint64) *simulator.Trace {
	t := simulator.Synthetic(lead+n, seed)
	t.Requests = t.Requests[lead:]
	t.Duration = t.Requests[n-1].At - t.Requests[0].At
	for i := range t.Requests {
		r := &t.Requests[i]
		r.ID = i
		r.Input = len(r.Blocks) * simulator.Block
		r.Output = 1 + r.Output/answerScale
	}
	return t
}

// body returns a request for a streamed completion of token ids: each block of the trace
// is blockSize ids that no other block has.
func body(model string, blockSize int, r *simulator.Request) ([]byte, error) {
	ids := make([]int32, 0, len(r.Blocks)*blockSize)
	for _, b := range r.Blocks {
		for i := range blockSize {
			ids = append(ids, b*int32(blockSize)+int32(i))
		}
	}
	return json.Marshal(map[string]any{"model": model, "prompt": ids, "max_tokens": r.Output, "stream": true})
}

// client plays a trace against one Envoy.
type client struct {
	url    string
	bodies [][]byte
	http   *http.Client
}

func newClient(url string, f stage.Fleet, t *simulator.Trace) (*client, error) {
	c := &client{url: url + "/v1/completions", http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(t.Requests)}}}
	for i := range t.Requests {
		b, err := body(f.Model, f.BlockSize, &t.Requests[i])
		if err != nil {
			return nil, err
		}
		c.bodies = append(c.bodies, b)
	}
	return c, nil
}

// outcome is the client's view of a pass.
type outcome struct {
	ttft   []time.Duration
	failed int
	err    error // of a failed request
}

func (o *outcome) add(a testenv.Answer, err error) {
	if err != nil {
		o.failed++
		o.err = err
		return
	}
	o.ttft = append(o.ttft, a.TTFT)
}

// open sends each request when it is due, at rate requests per second in all, whatever
// happens to the others, and waits for the last answer.
func (c *client) open(ctx context.Context, t *simulator.Trace, rate float64) *outcome {
	defer c.http.CloseIdleConnections()
	var mu sync.Mutex
	var wg sync.WaitGroup
	o := &outcome{}
	scale := float64(len(t.Requests)) / rate / t.Duration
	start := time.Now()
	for i := range t.Requests {
		due := (t.Requests[i].At - t.Requests[0].At) * scale
		select {
		case <-time.After(time.Until(start.Add(time.Duration(due * float64(time.Second))))):
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			a, err := testenv.Ask(ctx, c.http, c.url, c.bodies[i])
			mu.Lock()
			defer mu.Unlock()
			o.add(a, err)
		})
	}
	wg.Wait()
	return o
}

// closed keeps the given number of requests in flight for a time, in the trace's order,
// and returns how many per second ended after the first quarter of it. It fails if the
// trace ends before the time does.
func (c *client) closed(ctx context.Context, inFlight int, d time.Duration) (float64, *outcome) {
	defer c.http.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var next atomic.Int64
	o, counted, start := &outcome{}, 0, time.Now()
	for range inFlight {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(c.bodies)); i = next.Add(1) - 1 {
				a, err := testenv.Ask(ctx, c.http, c.url, c.bodies[i])
				if ctx.Err() != nil {
					return
				}
				mu.Lock()
				o.add(a, err)
				if time.Since(start) > d/4 {
					counted++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if ctx.Err() == nil {
		o.add(testenv.Answer{}, errors.New("the trace ended before the time"))
	}
	return float64(counted) / (d * 3 / 4).Seconds(), o
}
