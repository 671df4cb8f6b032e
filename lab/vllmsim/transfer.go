package vllmsim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// bytesPerToken is the KV of one token in the counters of transfers: that of a model with
// two layers of two heads.
const bytesPerToken = 1024

// transfer is a request's kv_transfer_params.
type transfer struct {
	raw           []byte
	RemotePrefill bool   `json:"do_remote_prefill"`
	RemoteDecode  bool   `json:"do_remote_decode"`
	Request       string `json:"remote_request_id"`
	Host          string `json:"remote_host"`
	Port          int    `json:"remote_port"`
	Cached        *int   `json:"remote_prefill_cached_tokens"`
}

func readTransfer(raw json.RawMessage) (t transfer, err error) {
	if !given(raw) {
		return t, nil
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return t, badRequest("kv_transfer_params cannot be decoded: %v", err)
	}
	t.raw = raw
	return t, nil
}

// pull is the KV that a sequence takes from the replica that computed its prompt.
type pull struct {
	from    string // URL of that replica
	request string // of its handout
	cached  *int   // tokens that it had cached itself; vLLM reports these as the answer's
	lost    bool   // it cannot be reached
	begun   bool   // its blocks are allocated
	arrived bool
	tokens  int
}

// errRefused is the answer to parameters that P refuses. A real vLLM answers with another
// prompt's KV, or recomputes: a stand-in that did so would hide the mistake.
func errRefused(why string) error {
	return &apiError{http.StatusInternalServerError, "InternalServerError", "kv_transfer_params",
		"vllmsim: the replica that made these kv_transfer_params refuses them: " + why}
}

// prepare gives the only sequence of a request its part in a transfer.
func (s *Sim) prepare(r *http.Request, g *generation, seqs []*sequence) error {
	t := g.transfer
	if s.o.Connector != Nixl || len(seqs) != 1 {
		return nil
	}
	q := seqs[0]
	switch {
	case t.RemoteDecode:
		if !g.stream { // vLLM's streams have no parameters
			q.leg = s.legOf(r, g)
		}
	case t.RemotePrefill:
		q.pull = &pull{from: "http://" + net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), request: t.Request, cached: t.Cached}
		why, err := s.side.claim(r.Context(), q.pull.from, claimed{t.Request, t.raw, q.fingerprint()})
		if why != "" {
			s.refuse(why)
			return errRefused(why)
		}
		q.pull.lost = err != nil
	}
	return nil
}

func (s *Sim) refuse(why string) {
	s.refusedMu.Lock()
	defer s.refusedMu.Unlock()
	s.refused[why]++
}

// Refused returns how many requests this replica has answered with an error because
// another one refused their kv_transfer_params.
func (s *Sim) Refused() (n int) {
	s.refusedMu.Lock()
	defer s.refusedMu.Unlock()
	for _, v := range s.refused {
		n += v
	}
	return n
}

// side sends requests to other replicas.
type side struct{ http *http.Client }

// sideTimeout bounds a request between replicas, which are on one machine or near.
const sideTimeout = 5 * time.Second

func newSide() side {
	return side{&http.Client{Timeout: sideTimeout, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// claim asks P for a handout, and returns its reason to refuse; an error: it cannot be
// reached.
func (c side) claim(ctx context.Context, from string, body claimed) (why string, err error) {
	var answer struct {
		Refused string `json:"refused"`
	}
	err = c.post(ctx, from+claimPath, body, &answer)
	return answer.Refused, err
}

func (c side) post(ctx context.Context, url string, body, answer any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("vllmsim: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("vllmsim: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("vllmsim: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("vllmsim: %s: status %d", url, resp.StatusCode)
	}
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("vllmsim: %w", err)
	}
	return nil
}

// beginPullLocked takes blocks for the whole prompt of s, which is at the head of the
// queue, and starts to pull the part that is not cached here; false: blocks are short.
func (e *engine) beginPullLocked(s *sequence) bool {
	h := e.hitLocked(s)
	if e.neededIn(s, h, s.prompt, s.prompt, true) > e.pool.free || !e.takeLocked(s, h, s.prompt-h.tokens) {
		return false
	}
	s.pull.begun, s.pull.tokens = true, s.prompt-h.tokens
	e.admittedLocked(s, h.tokens)
	e.stats.external.queries += s.pull.tokens
	e.stats.external.hits += s.pull.tokens
	e.pulling = append(e.pulling, s)
	e.begun = append(e.begun, s)
	return true
}

// startPulls starts the pulls that the last step has begun.
func (e *engine) startPulls(ctx context.Context) {
	e.mu.Lock()
	begun := e.begun
	e.begun = nil
	e.mu.Unlock()
	for _, s := range begun {
		e.pulls.Go(func() { e.endPull(s, e.pull(ctx, s.pull)) })
	}
}

var errLost = errors.New("vllmsim: the replica that computed the prompt cannot be reached")

// pull takes the time of a transfer, and tells P that it is over.
func (e *engine) pull(ctx context.Context, p *pull) error {
	took := e.o.Handover
	if e.o.TransferRate > 0 {
		took += time.Duration(float64(p.tokens) / e.o.TransferRate * float64(time.Second))
	}
	switch {
	case p.lost:
		return errLost
	case e.faults.Load().TransferFails:
		return errors.New("vllmsim: the transfer fails, as it was told to")
	case !sleep(ctx, took):
		return ctx.Err()
	}
	e.mu.Lock()
	e.stats.nixl.seconds.observe(took.Seconds())
	e.stats.nixl.bytes.observe(float64(blocksOf(p.tokens, e.o.BlockSize) * e.o.BlockSize * bytesPerToken))
	e.mu.Unlock()
	return e.side.post(ctx, p.from+pulledPath, claimed{Request: p.request}, nil)
}

// endPull puts a sequence back at the head of the queue: with the KV, or without it to
// compute it here. With vLLM's policy "fail" the second is an error.
func (e *engine) endPull(s *sequence, err error) {
	e.mu.Lock()
	i := slices.Index(e.pulling, s)
	if i < 0 { // the engine has ended
		e.mu.Unlock()
		return
	}
	e.pulling = slices.Delete(e.pulling, i, i+1)
	switch {
	case err == nil:
		s.pull.arrived = true
		s.computed = s.prompt - 1 // the last token is computed again, for its logits
		s.transferred = s.pull.tokens
		e.waiting = slices.Insert(e.waiting, 0, s)
	case e.o.LoadFailure == Recompute:
		e.stats.nixl.failed++
		e.freeAll(s)
		s.pull, s.computed = nil, 0
		e.waiting = slices.Insert(e.waiting, 0, s)
	default:
		e.stats.nixl.failed++
		e.freeAll(s)
		e.stats.finished["error"]++
		s.out <- token{index: s.index, gone: true}
	}
	e.mu.Unlock()
	e.poke()
}
