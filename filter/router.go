package filter

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
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
	ID(h index.Holder) index.HolderID
	Lookup(dst []index.Match, s index.Scope, keys []prefixhash.Key) []index.Match
}

// RouterOptions configures a Router.
type RouterOptions struct {
	Policy      policy.TTFT
	HintCold    bool          // route requests nobody has a prefix of, too
	Ranked      int           // length of the ranked list; default 3
	TokenBudget time.Duration // most a request waits for its token ids; default 50 ms
	MaxTokens   int           // tokens of a prompt that are looked up, from its start; default 1 Mi
	Now         func() time.Time
	Log         *slog.Logger
}

func (o RouterOptions) withDefaults() RouterOptions {
	if o.Ranked == 0 {
		o.Ranked = 3
	}
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

// Router decides where requests go.
type Router struct {
	o       RouterOptions
	views   views
	index   Index
	tokens  tokens.Source
	ring    *Ring
	metrics *Metrics
	ordinal atomic.Uint64

	charge  sync.Mutex // makes reading the loads, picking and charging one step
	scratch sync.Pool  // *scratch
}

// NewRouter returns a router over a fleet, an index and a source of tokens.
func NewRouter(f Fleet, x Index, l *Ledger, t tokens.Source, ring *Ring, m *Metrics, o RouterOptions) *Router {
	r := &Router{o: o.withDefaults(), index: x, tokens: t, ring: ring, metrics: m}
	r.views = views{fleet: f, index: x, ledger: l}
	r.scratch.New = func() any { return new(scratch) }
	return r
}

// scratch is the memory one decision works in.
type scratch struct {
	rec     Record
	keys    []prefixhash.Key
	extras  [][]prefixhash.ExtraKey
	matches []index.Match
	matched []held
	cands   []policy.Candidate
	scores  []policy.Score
	at      []int32 // position in the view of each candidate
	ranked  []int32
	dest    []byte
}

// held is how much of the prompts one KV cache holds, in tokens.
type held struct {
	gpu, lower int
	hybrid     bool
}

// Route decides where a request goes. It never fails and never blocks longer
// than the token budget.
func (r *Router) Route(ctx context.Context, q *Query) Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	start := r.o.Now()
	s.rec.reset()
	s.rec.ID, s.rec.At, s.rec.Tenant, s.rec.Route = q.ID, start, q.Tenant, q.Route.String()
	d := r.contained(ctx, q, s)
	s.rec.Reason, s.rec.Chosen = d.Reason, d.Destination
	s.rec.Took = r.o.Now().Sub(start)
	r.ring.Put(&s.rec)
	r.metrics.decided(&s.rec)
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
	req, err := openai.Parse(q.Route, q.Body)
	if err != nil {
		return Decision{Reason: parseReason(err)}
	}
	mv := r.views.of(req.Model, q.Tenant)
	if mv == nil {
		if r.views.now().knows(req.Model) {
			return Decision{Reason: ReasonNotReady}
		}
		return Decision{Reason: ReasonUnknownModel}
	}
	s.rec.Model = mv.model.ID
	ctx, cancel := context.WithTimeout(ctx, r.o.TokenBudget)
	defer cancel()
	res, err := r.tokens.Tokens(ctx, req, mv.model.ID)
	if err != nil {
		return r.withoutTokens(ctx, q, mv, s, err)
	}
	s.rec.Source, s.rec.Prompts = res.Source, len(res.Prompts)
	r.match(mv, req, res.Prompts, s)
	return r.pick(q, mv, s)
}

// withoutTokens is the decision when the prompt's token ids are not to be had.
func (r *Router) withoutTokens(ctx context.Context, q *Query, mv *modelView, s *scratch, err error) Decision {
	reason := ReasonNoTokens
	if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
		reason = ReasonBudget
	}
	if !q.Pick {
		return Decision{Reason: reason}
	}
	s.matched = append(s.matched[:0], make([]held, len(mv.caches))...)
	d := r.pick(q, mv, s)
	if d.Destination != "" {
		d.Reason = ReasonAlways
	}
	return d
}

// match fills s.matched with the tokens each cache of mv holds of the prompts:
// with several prompts in one request, their sum decides.
func (r *Router) match(mv *modelView, req *openai.Request, prompts []tokens.Prompt, s *scratch) {
	s.matched = s.matched[:0]
	for range mv.caches {
		s.matched = append(s.matched, held{})
	}
	for i := range prompts {
		p := &prompts[i]
		s.rec.Tokens += len(p.Tokens)
		if !req.NoCacheRead {
			r.matchPrompt(mv, req, p, s)
		}
	}
}

func (r *Router) matchPrompt(mv *modelView, req *openai.Request, p *tokens.Prompt, s *scratch) {
	mix := prefixhash.Request{LoRA: mv.model.LoRA, LoRAPath: mv.model.LoRAPath, CacheSalt: req.CacheSalt, MM: p.MM}
	root := prefixhash.TokenRoot(mv.model.Base, mv.model.LoRA)
	hashed := 0 // block size s.keys was made for
	for i := range mv.scopes {
		scope := &mv.scopes[i]
		// vLLM always computes the last prompt token, so it never counts as cached.
		usable := len(p.Tokens)
		if !p.Partial {
			usable--
		}
		usable = min(usable, r.o.MaxTokens)
		if scope.BlockSize <= 0 || usable < scope.BlockSize {
			continue
		}
		if hashed != scope.BlockSize {
			blocks := usable / scope.BlockSize
			s.extras = mix.AppendExtras(s.extras[:0], blocks, scope.BlockSize)
			s.keys = prefixhash.AppendTokens(s.keys[:0], root, p.Tokens[:blocks*scope.BlockSize], scope.BlockSize, s.extras)
			hashed = scope.BlockSize
		}
		s.rec.Blocks = max(s.rec.Blocks, len(s.keys))
		s.matches = r.index.Lookup(s.matches[:0], *scope, s.keys)
		for _, m := range s.matches {
			mv.hold(s.matched, m, scope.BlockSize, i)
		}
	}
}

// hold adds a match in scope to the cache it belongs to.
func (mv *modelView) hold(matched []held, m index.Match, blockSize, scope int) {
	if int(m.ID) >= len(mv.byHolder) || mv.byHolder[m.ID] < 0 {
		return
	}
	at := mv.byHolder[m.ID]
	if mv.caches[at].scope != scope {
		return
	}
	h := &matched[at]
	h.gpu += int(m.Blocks) * blockSize
	h.lower += int(m.Storage) * blockSize
	h.hybrid = h.hybrid || m.HybridUnknown
}
