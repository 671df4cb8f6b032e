package filter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/openai"
	"warmroute/internal/policy"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
)

// Fleet gives the replicas as an immutable snapshot.
type Fleet interface{ Snapshot() *fleet.Snapshot }

// Index gives the cached prefix of a key chain per KV cache.
type Index interface {
	Speculator
	ID(h index.Holder) index.HolderID
	Find(f *index.Found, s index.Scope, keys []prefixhash.Key)
}

// RouterOptions configures a Router.
type RouterOptions struct {
	TokenBudget time.Duration // most a request waits for its token ids; default 50 ms
	MaxTokens   int           // tokens of a prompt that are looked up, from its start; default 1 Mi
	Now         func() time.Time
	Log         *slog.Logger
}

func (o RouterOptions) withDefaults() RouterOptions {
	if o.TokenBudget == 0 {
		o.TokenBudget = 50 * time.Millisecond
	}
	if o.MaxTokens == 0 {
		o.MaxTokens = 1 << 20 // beyond every context length there is; 20 ms of hashing
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Router decides where requests go: it reads bodies, finds their token ids, asks
// a Decider and keeps the record.
type Router struct {
	o       RouterOptions
	decider *Decider
	tokens  tokens.Source
	ring    *Ring
	metrics *Metrics
	scratch sync.Pool // *scratch
}

// NewRouter returns a router that asks d, with a source of tokens.
func NewRouter(d *Decider, t tokens.Source, ring *Ring, m *Metrics, o RouterOptions) *Router {
	r := &Router{o: o.withDefaults(), decider: d, tokens: t, ring: ring, metrics: m}
	r.scratch.New = func() any { return new(scratch) }
	return r
}

// scratch is the memory one request is judged in.
type scratch struct {
	work   Work
	ask    Ask
	tokens tokenPrompts
	text   []byte
	chain  []prefixhash.Key
}

// Route decides where a request goes. It never fails and never blocks longer
// than the token budget.
func (r *Router) Route(ctx context.Context, q *Query) Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	start := r.o.Now()
	rec := &s.work.Record
	rec.reset()
	d := r.contained(ctx, q, s)
	rec.ID, rec.At, rec.Tenant, rec.Route = q.ID, start, q.Tenant, q.Route.String()
	rec.Reason, rec.Chosen = d.Reason, d.Destination
	rec.Took = r.o.Now().Sub(start)
	r.ring.Put(rec)
	r.metrics.decided(rec)
	return d
}

// contained turns a panic into a decision without a hint: a defect in judging
// one request must not end the process that routes all others.
func (r *Router) contained(ctx context.Context, q *Query, s *scratch) (d Decision) {
	defer func() {
		if p := recover(); p != nil {
			r.o.Log.Error("filter: decision panicked", "panic", panicKind(p), "route", q.Route.String(), "body_bytes", len(q.Body))
			d = Decision{Reason: ReasonPanic}
		}
	}()
	return r.decide(ctx, q, s)
}

func (r *Router) decide(ctx context.Context, q *Query, s *scratch) Decision {
	if r.decider.book.Idle() {
		return Decision{Reason: ReasonDisabled}
	}
	start := r.o.Now()
	req, err := openai.Parse(q.Route, q.Body)
	parsed := r.o.Now()
	took := &s.work.Record.phases
	took[phaseParse] = parsed.Sub(start)
	if err != nil {
		return Decision{Reason: parseReason(err)}
	}
	mv, reason := r.decider.find(req.Model, q.Tenant)
	if mv == nil {
		return Decision{Reason: reason}
	}
	if ctx.Err() != nil { // nobody waits for an answer: nothing more is computed, and nothing charged
		return Decision{Reason: ReasonUnfinished}
	}
	set := r.decider.settings(mv)
	s.ask = Ask{Model: req.Model, Tenant: q.Tenant, Subset: q.Subset, Must: q.Pick, Priority: q.Priority, Cacheless: req.NoCacheRead, Dry: q.Dry}
	if set.Kind != policy.KindDisabled {
		reason := r.prompts(ctx, req, mv, s)
		now := r.o.Now()
		took[phaseTokens], parsed = now.Sub(parsed), now
		if ctx.Err() != nil {
			reason = ReasonUnfinished
		}
		if reason != "" && (!q.Pick || reason == ReasonUnfinished) {
			s.work.Record.Model = mv.model.ID
			return Decision{Reason: reason}
		}
	}
	d := r.decider.decide(&s.ask, mv, set, &s.work)
	took[phasePlace] = r.o.Now().Sub(parsed)
	return d
}

// prompts fills s.ask with what there is to judge the request by: its token
// ids, or, where these are not to be had or the replicas say nothing of their
// caches, its text. It returns why there is neither.
func (r *Router) prompts(ctx context.Context, req *openai.Request, mv *modelView, s *scratch) Reason {
	ctx, cancel := withBudget(ctx, r.o.TokenBudget)
	defer cancel()
	res, err := r.tokens.Tokens(ctx, req, tokens.Served{Model: mv.model.ID, Tenant: s.ask.Tenant})
	late := errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	switch {
	case err == nil && mv.events:
		s.work.Record.Source = res.Source
		s.tokens.set(mv, req, res.Prompts, r.o.MaxTokens)
		s.ask.Prompts = &s.tokens
		return ""
	case err != nil && late:
		return ReasonBudget
	}
	s.readText(req, mv)
	if err == nil {
		s.ask.TextTokens = 0
		for i := range res.Prompts {
			s.ask.TextTokens += len(res.Prompts[i].Tokens)
		}
	}
	if len(s.ask.Text) == 0 && err != nil {
		s.ask.Text = nil
		return ReasonNoTokens
	}
	s.work.Record.Source = sourceText
	return ""
}

// sourceText is the token source of decisions by the text chain.
const sourceText = "text"

// readText fills in the text chain. A cache_salt keeps prompts apart, as it
// keeps them apart in the replicas' caches.
func (s *scratch) readText(req *openai.Request, mv *modelView) {
	model := mv.tree.Name
	if salt := mv.salt(req); salt != nil {
		model += "\x00" + *salt
	}
	s.text = req.AppendText(s.text[:0])
	s.chain = prefixhash.AppendText(s.chain[:0], model, s.text)
	if s.chain == nil {
		s.chain = []prefixhash.Key{}
	}
	s.ask.Text, s.ask.TextTokens = s.chain, len(s.text)/bytesPerToken
	if most := mv.model.MaxLen; most > 0 { // no prefill is longer; an image is many bytes and few tokens
		s.ask.TextTokens = min(s.ask.TextTokens, most)
	}
}

// bytesPerToken is what a token is taken for in bytes of text.
const bytesPerToken = prefixhash.TextWindow / textBlockTokens

// Served takes notice of the endpoint that really served a request.
func (r *Router) Served(d *Decision, addr string) {
	r.metrics.served(d, addr)
	r.decider.Served(d, addr)
}

// Skip records a request that is not judged, and why.
func (r *Router) Skip(q *Query, reason Reason) Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	rec := &s.work.Record
	rec.reset()
	rec.ID, rec.At, rec.Tenant, rec.Reason = q.ID, r.o.Now(), q.Tenant, reason
	if reason != ReasonNotOurs {
		rec.Route = q.Route.String()
		r.ring.Put(rec)
	}
	r.metrics.decided(rec)
	return Decision{Reason: reason}
}

// parseReason translates why a body could not be read.
func parseReason(err error) Reason {
	var e *openai.Error
	if errors.As(err, &e) {
		return Reason(e.Reason)
	}
	return Reason(openai.UnreadableJSON)
}

// panicKind describes a panic without its text, which may quote a prompt.
func panicKind(p any) string { return fmt.Sprintf("%T", p) }
