package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/internal/telemetry"
)

// line is a frame in the form of lab predict's input.
type line struct {
	Frame frame `json:"frame"`
}

type frame struct {
	Topic   string `json:"topic"`
	Seq     uint64 `json:"seq"`
	Payload []byte `json:"payload"`
}

// printer writes frames. It is the subscriber's Sink and its observer; both are
// called from one goroutine.
type printer struct {
	out    io.Writer
	topic  string
	begun  uint64
	failed context.CancelCauseFunc
}

// printEvents follows the publisher and prints until ctx ends or out fails.
func printEvents(ctx context.Context, o options, out, stderr io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &printer{out: out, topic: o.topic, failed: cancel}
	s, err := kvevents.New(kvevents.Options{
		// Only an index reads the names; the printer has none.
		Replica: o.endpoint, Model: "print", Scheme: kvevents.SchemeEngine,
		Endpoint: o.endpoint, ReplayEndpoint: o.replay, Topic: o.topic, RetryAfter: o.again,
		Log:     new(telemetry.LogLimiter).Logger(slog.NewTextHandler(stderr, nil)),
		Observe: p.observe,
	}, p)
	if err != nil {
		return err
	}
	if err := s.Run(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// Begin implements kvevents.Sink. A new life of the publisher shows by a sequence number.
func (p *printer) Begin(index.Holder) uint64 {
	p.begun++
	return p.begun
}

// Apply implements kvevents.Sink; observe has printed the batch.
func (p *printer) Apply(*index.Batch) (index.Result, error) { return index.Result{}, nil }

func (p *printer) observe(seq uint64, b *kvevents.Batch) {
	if err := json.NewEncoder(p.out).Encode(line{frame{p.topic, seq, b.Payload}}); err != nil {
		p.failed(fmt.Errorf("printing: %w", err))
	}
}
