package main

import (
	"context"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestFailedRequestsAreNoRequests: rates and costs are of the requests that got a destination.
func TestFailedRequestsAreNoRequests(t *testing.T) {
	r := report{cfg: &clientConfig{pid: 1}, elapsed: 2 * time.Second, results: []exchange{
		{dest: "a:1"}, {dest: "a:1"}, {dest: "b:1"}, {dest: "b:1"}, {err: io.EOF}, {status: 503}, {},
	}}
	r.after.cpu = 20 * time.Millisecond
	if s := r.summary(); s.Requests != 4 || s.Failed != 3 || s.RPS != 2 || s.CPUPerReq != 5 {
		t.Errorf("%+v", s)
	}
	if s := (&report{cfg: &clientConfig{pid: 1}, elapsed: time.Second, results: []exchange{{}}}).summary(); s.Requests != 0 || s.Failed != 1 || s.CPUPerReq != 0 {
		t.Errorf("none got one: %+v", s)
	}
}

// TestAgainstNoop plays every mode against the do-nothing server.
func TestAgainstNoop(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = serveNoop(ctx, l, []string{"10.0.0.1:8000", "10.0.0.2:8000"}, noopAnswers{}) }()

	gen := genConfig{size: 40000, count: 10, prefixes: 3, sessions: 5, share: .75, seed: 1, model: "m"}
	bodies, err := gen.bodies()
	if err != nil {
		t.Fatal(err)
	}

	for _, mode := range []string{"duplex", "buffered"} {
		for _, resp := range []string{"same", "headers", "none"} {
			rep, err := runClient(ctx, &clientConfig{
				addr: l.Addr().String(), mode: mode, respMode: resp, bodies: bodies, path: "/v1/chat/completions", subsetOn: "all",
				workers: 4, conns: 2, total: 100, chunk: 16384, respChunks: 5, timeout: 5 * time.Second, pid: os.Getpid(),
			})
			if err != nil {
				t.Fatal(err)
			}
			s := rep.summary()
			if len(s.Errors) != 0 || s.BodyChanged != 0 || s.Picks["10.0.0.1:8000"] != 50 || s.Picks["10.0.0.2:8000"] != 50 {
				t.Errorf("mode %s, response %s: %+v", mode, resp, s)
			}
		}
	}
}
