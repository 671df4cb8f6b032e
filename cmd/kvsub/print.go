package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/internal/telemetry"
)

// line is one printed event. Hashes are numbers if the publisher sends
// numbers, hexadecimal text if it sends bytes.
type line struct {
	Seq   uint64  `json:"seq"`
	Time  float64 `json:"time,omitempty"` // seconds since 1970, the publisher's clock
	Rank  *int    `json:"rank,omitempty"`
	Event string  `json:"event"` // stored, removed, cleared, unknown
	blocks
	Medium      string  `json:"medium,omitempty"`
	LoRA        *string `json:"lora,omitempty"`
	Group       int     `json:"group,omitempty"`
	Kind        string  `json:"kv_cache_spec_kind,omitempty"`
	Placeholder bool    `json:"placeholder,omitempty"` // the event names a block of a lower tier and describes nothing
	Unknown     int     `json:"events,omitempty"`      // with unknown: the number of such events in the batch

	TokenIDs  []uint32 `json:"token_ids,omitempty"`  // only on request
	ExtraKeys [][]any  `json:"extra_keys,omitempty"` // only on request
}

// blocks are those of an event.
type blocks struct {
	Hashes    []any `json:"hashes,omitempty"`
	Parent    any   `json:"parent,omitempty"`
	BlockSize int   `json:"block_size,omitempty"`
	Tokens    *int  `json:"tokens,omitempty"` // their number
}

// fresh is the line that marks a new start of the state: batches may be
// missing before it, or the publisher is a new process.
type fresh struct {
	Event       string `json:"event"`
	Incarnation uint64 `json:"incarnation"`
}

// rawLine is a frame in the form of lab predict's input.
type rawLine struct {
	Frame rawFrame `json:"frame"`
}

type rawFrame struct {
	Topic   string `json:"topic"`
	Seq     uint64 `json:"seq"`
	Payload []byte `json:"payload"`
}

// printer writes lines. It is the subscriber's Sink and its observer; both are
// called from one goroutine.
type printer struct {
	out    *bufio.Writer
	tokens bool
	raw    bool
	topic  string
	begun  uint64
	failed context.CancelCauseFunc
}

// printEvents follows the publisher and prints until ctx ends or out fails.
func printEvents(ctx context.Context, o options, out, stderr io.Writer) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &printer{out: bufio.NewWriter(out), tokens: o.tokens, raw: o.raw, topic: o.topic, failed: cancel}
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

// Begin implements kvevents.Sink.
func (p *printer) Begin(index.Holder) uint64 {
	p.begun++
	if p.begun > 1 && !p.raw { // raw frames show it by a sequence number
		p.print(fresh{Event: "begin", Incarnation: p.begun})
		p.flush()
	}
	return p.begun
}

// Apply implements kvevents.Sink; observe has printed the batch.
func (p *printer) Apply(*index.Batch) (index.Result, error) { return index.Result{}, nil }

func (p *printer) observe(seq uint64, b *kvevents.Batch) {
	if p.raw {
		p.print(rawLine{rawFrame{p.topic, seq, b.Payload}})
		p.flush()
		return
	}
	for i := range b.Events {
		p.print(p.line(seq, b, &b.Events[i]))
	}
	if b.Unknown > 0 {
		p.print(line{Seq: seq, Time: b.Time, Event: "unknown", Unknown: b.Unknown})
	}
	p.flush()
}

func (p *printer) line(seq uint64, b *kvevents.Batch, e *kvevents.Event) line {
	l := line{Seq: seq, Time: b.Time, Event: "cleared", Medium: e.Medium, Group: e.Group}
	if b.Rank >= 0 {
		l.Rank = &b.Rank
	}
	if e.Kind == index.Cleared {
		return l
	}
	l.Event, l.Hashes = "removed", hashes(e)
	if e.Kind == index.Removed {
		return l
	}
	l.Event, l.BlockSize, l.Tokens, l.Kind, l.Placeholder = "stored", e.BlockSize, &e.TokenCount, e.Spec, e.Placeholder()
	if e.HasParent {
		l.Parent = e.Parent
		if d := e.ParentDigest(); d != nil {
			l.Parent = hex.EncodeToString(d)
		}
	}
	if e.LoRA.Set {
		l.LoRA = &e.LoRA.Name
	}
	if p.tokens {
		l.TokenIDs, l.ExtraKeys = e.Tokens, extraKeys(e)
	}
	return l
}

func hashes(e *kvevents.Event) []any {
	out := make([]any, 0, len(e.Hashes))
	if d := e.Digests(); d != nil {
		for _, b := range d {
			out = append(out, hex.EncodeToString(b))
		}
		return out
	}
	for _, h := range e.Hashes {
		out = append(out, h)
	}
	return out
}

// extraKeys returns the extra keys as published: text, or [identifier,
// offset].
func extraKeys(e *kvevents.Event) [][]any {
	out := make([][]any, 0, len(e.Extras))
	for _, row := range e.Extras {
		var keys []any
		for _, k := range row {
			if k.HasOffset {
				keys = append(keys, []any{k.ID, k.Offset})
			} else {
				keys = append(keys, k.ID)
			}
		}
		out = append(out, keys)
	}
	return out
}

func (p *printer) print(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		p.failed(fmt.Errorf("printing: %w", err))
		return
	}
	_, _ = p.out.Write(append(text, '\n')) // flush reports the error
}

// flush ends a batch; bufio keeps the first error of any write for it.
func (p *printer) flush() {
	if err := p.out.Flush(); err != nil {
		p.failed(fmt.Errorf("printing: %w", err))
	}
}
