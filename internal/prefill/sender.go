package prefill

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/envoy"
	"warmroute/internal/bound"
	"warmroute/internal/intake"
	"warmroute/render/openai"
)

const (
	// MaxParams bounds the bytes of kv_transfer_params: the numbers of 65,536 blocks take
	// half of it.
	MaxParams = 1 << 20
	// maxAnswer bounds an answer of one token, which may repeat its prompt (echo).
	maxAnswer = 8 << 20
	// maxTokens is above every context.
	maxTokens = 1 << 24
	// mostLegs are under way from one router; further requests stay on one replica.
	mostLegs = 256
	// Connections is the number of unused connections to a replica that are kept.
	Connections = 64
)

// The ways in which a leg brings nothing. A leg whose time is over matches
// context.DeadlineExceeded, a leg whose request has ended context.Canceled.
var (
	ErrBusy     = errors.New("prefill: too many legs are under way, or bytes of answers")
	ErrRefused  = errors.New("prefill: the replica refused the request") // with a 4xx that is not ofReplica
	ErrNoParams = errors.New("prefill: the answer has no kv_transfer_params")
)

// Leg is the prefill of one request.
type Leg struct {
	Addr    string // "ip:port" of the replica
	Rank    string // its data-parallel rank, "" = none
	Route   openai.Route
	Body    []byte        // the client's, an object without kv_transfer_params; read until Send returns
	Lengths []openai.Span // the members of Body that are replaced, see openai.Request.Lengths
	ID      string        // the request's x-request-id, "" = none
	Parent  string        // its traceparent, "" = none
	Timeout time.Duration
}

// Answer is a replica's answer to a leg.
type Answer struct {
	Params []byte // kv_transfer_params, a JSON object
	Tokens int    // of the prompt, as the replica counted; 0 = it does not say
	Cached *int   // of these, tokens from its cache; nil = it does not say
}

// Options configure a Sender.
type Options struct {
	Client  *http.Client             // for replicas; its Transport is used
	URL     func(addr string) string // root of a replica's HTTP API
	Legs    int                      // most legs under way; 0 = mostLegs; tests set it
	Answers *intake.Budget           // of all that are being read
}

// Sender sends legs.
type Sender struct {
	o     atomic.Pointer[Options] // its Client is never nil
	under bound.Pool
}

// New returns a Sender.
func New(o Options) *Sender {
	s := new(Sender)
	s.Set(o)
	return s
}

// Set replaces the options for later legs. A Client and Answers that are nil stay.
func (s *Sender) Set(o Options) {
	before := s.o.Load()
	if before == nil {
		before = &Options{Answers: new(intake.Budget)}
	} else if o.Client != nil {
		defer before.Client.CloseIdleConnections()
	}
	o.Client, o.Answers = cmp.Or(o.Client, before.Client), cmp.Or(o.Answers, before.Answers)
	if o.Legs == 0 {
		o.Legs = mostLegs
	}
	s.o.Store(&o)
}

// Send sends a leg and waits for its answer.
func (s *Sender) Send(ctx context.Context, l *Leg) (Answer, error) {
	o := s.o.Load()
	if !s.under.Take(1, int64(o.Legs)) {
		return Answer{}, ErrBusy
	}
	defer s.under.Give(1)
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	body := newBody(appendBody(make([][]byte, 0, 8), l))
	a, err := send(ctx, o, l, body)
	if err != nil && ctx.Err() != nil { // whatever the transport makes of it
		err = ctx.Err()
	}
	cancel() // makes the transport close a body that it has not read
	body.wait()
	return a, err
}

func send(ctx context.Context, o *Options, l *Leg, body *legBody) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.URL(l.Addr)+l.Route.String(), nil)
	if err != nil {
		_ = body.Close()
		return Answer{}, errors.New("prefill: the replica has no address")
	}
	req.Body, req.ContentLength = body, body.size
	l.header(req.Header)
	resp, err := o.Client.Transport.RoundTrip(req) // follows no redirects, and copies no request for one
	if err != nil {
		return Answer{}, fmt.Errorf("prefill: %w", causeOf(err))
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusOK:
		return read(o.Answers, resp.Body)
	case code < 400 || code >= 500 || slices.Contains(ofReplica[:], code):
		return Answer{}, fmt.Errorf("prefill: the replica answered with status %d", code)
	}
	return Answer{}, ErrRefused
}

// ofReplica are the refusals that say nothing of the request.
var ofReplica = [...]int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}

func (l *Leg) header(h http.Header) {
	h.Set("Content-Type", "application/json")
	set(h, "X-Request-Id", l.ID)
	set(h, "Traceparent", l.Parent)
	set(h, envoy.HeaderRank, l.Rank)
}

func set(h http.Header, name, value string) {
	if value != "" {
		h.Set(name, value)
	}
}

// causeOf returns the error below the addresses that package net names, so that logs group by
// cause.
func causeOf(err error) error {
	var cause interface{ Unwrap() error }
	if errors.As(err, &cause) {
		return cause.Unwrap()
	}
	return err
}

// details are those of a usage's input. Replicas have them with --enable-prompt-tokens-details.
type details struct {
	Cached *int `json:"cached_tokens"`
}

// read reads an answer of one token.
func read(b *intake.Budget, body io.Reader) (Answer, error) {
	text, err := b.Read(body, maxAnswer)
	switch {
	case errors.Is(err, intake.ErrCrowded): // not by this replica
		return Answer{}, ErrBusy
	case err != nil:
		return Answer{}, fmt.Errorf("prefill: read the answer: %w", err)
	}
	defer b.Return(text)
	a, err := parse(text)
	switch {
	case err != nil:
		return Answer{}, err
	case len(a.Params) == 0 || a.Params[0] != '{' || len(a.Params) > MaxParams:
		return Answer{}, ErrNoParams
	}
	a.Params = bytes.Clone(a.Params)
	return a, nil
}

// parse finds the parts of an answer that are of use. It steps over the others, and over what
// is in kv_transfer_params, which are most of the answer.
func parse(text []byte) (a Answer, err error) {
	var usage struct {
		Prompt  int     `json:"prompt_tokens"`
		Input   int     `json:"input_tokens"`
		Details details `json:"prompt_tokens_details"`
		Inputs  details `json:"input_tokens_details"`
	}
	var broken error
	err = openai.Members(nil, text, func(key []byte, from, to int) {
		_, value, _ := bytes.Cut(text[from:to], colon) // neither of the keys has one
		switch string(key) {
		case "kv_transfer_params":
			a.Params = bytes.TrimSpace(value)
		case "usage":
			broken = json.Unmarshal(value, &usage)
		}
	})
	if err != nil || broken != nil {
		return Answer{}, errors.New("prefill: the answer is no JSON object of a completion")
	}
	a.Tokens = min(max(usage.Prompt, usage.Input), maxTokens)
	if hit := cmp.Or(usage.Details.Cached, usage.Inputs.Cached); hit != nil && *hit >= 0 && *hit <= a.Tokens {
		a.Cached = hit
	}
	return a, nil
}

var colon = []byte(":")

// legBody is the body of a leg. The caller lends it the parts and may reuse them when wait has returned.
type legBody struct {
	parts  net.Buffers // those that are not read yet
	size   int64       // bytes of all parts
	closed chan struct{}
	once   sync.Once
}

func newBody(parts [][]byte) *legBody {
	b := &legBody{parts: parts, closed: make(chan struct{})}
	for _, p := range parts {
		b.size += int64(len(p))
	}
	return b
}

// Read implements io.Reader. It fills p, because each Read becomes a packet.
func (b *legBody) Read(p []byte) (int, error) { return b.parts.Read(p) }

// Close implements io.Closer. The transport calls it once it has read the body or given up.
func (b *legBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}

func (b *legBody) wait() { <-b.closed }
