package simulator

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// External is a policy in another process, over JSON lines; brain.Run has the protocol.
// After its first error, which Err returns, it gives no hints.
type External struct {
	w   *bufio.Writer
	r   *bufio.Reader
	err error
}

// NewExternal returns a policy that writes to w and reads from r.
func NewExternal(s *Sim, w io.Writer, r io.Reader) *External {
	e := &External{w: bufio.NewWriterSize(w, 1<<20), r: bufio.NewReader(r)}
	hw := &s.c.Hardware
	e.send(map[string]any{
		"type": "init", "replicas": s.c.Replicas, "routers": 1, "block_tokens": s.block, "kv_capacity_tokens": hw.Capacity,
		"prefill_s_per_token": hw.PrefillToken, "attn_s_per_pair": hw.PrefillPair, "decode_s_per_ctx_token": hw.DecodeToken, "scrape_s": s.c.Scrape,
	})
	return e
}

// Err returns the first error. Call it after the run.
func (e *External) Err() error { return errors.Join(e.err, e.w.Flush()) }

func (e *External) send(message any) {
	line, err := json.Marshal(message)
	if err == nil && e.err == nil {
		_, err = e.w.Write(append(line, '\n'))
	}
	if e.err == nil && err != nil {
		e.err = fmt.Errorf("external policy: %w", err)
	}
}

// Route implements Policy.
func (e *External) Route(now float64, r *Request) int {
	e.send(map[string]any{"type": "route", "t": now, "id": r.ID, "router": 0, "input_tokens": r.Input, "blocks": r.Blocks})
	if e.err != nil {
		return -1
	}
	if e.err = e.w.Flush(); e.err != nil {
		return -1
	}
	line, err := e.r.ReadBytes('\n')
	if err != nil {
		e.err = fmt.Errorf("external policy: %w", err)
		return -1
	}
	answer := struct{ Replica int }{-1}
	if err := json.Unmarshal(line, &answer); err != nil {
		e.err = fmt.Errorf("external policy: answer %.100q: %w", line, err)
		return -1
	}
	return answer.Replica
}

func (e *External) life(kind string, now float64, r *Request) {
	e.send(map[string]any{"type": kind, "t": now, "id": r.ID, "router": 0, "replica": r.Replica})
}

// Routed implements Policy.
func (e *External) Routed(now float64, r *Request) { e.life("routed", now, r) }

// First implements Policy.
func (e *External) First(now float64, r *Request) { e.life("first_token", now, r) }

// Done implements Policy.
func (e *External) Done(now float64, r *Request) { e.life("done", now, r) }

// Stored implements Policy.
func (e *External) Stored(now float64, replica int, blocks []int32) {
	e.send(map[string]any{"type": "stored", "t": now, "replica": replica, "blocks": blocks})
}

// Removed implements Policy.
func (e *External) Removed(now float64, replica int, blocks []int32) {
	e.send(map[string]any{"type": "removed", "t": now, "replica": replica, "blocks": blocks})
}

// Scraped implements Policy.
func (e *External) Scraped(now float64, pages []Page) {
	e.send(map[string]any{"type": "metrics", "t": now, "replicas": pages})
}
