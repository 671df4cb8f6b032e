package filter

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/tokens"
	"warmroute/internal/tracefile"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// RouterOptions configures a Router.
type RouterOptions struct {
	TokenBudget time.Duration // longest wait of a request for its token ids; default 50 ms
	DropTexts   bool          // keep no message in memory when its request has ended
	Now         func() time.Time
	Log         *slog.Logger
	Tracer      Tracer            // nil: decisions are not traced
	Turns       *work.Turns       // of long bodies; nil: they take none
	Requests    *tracefile.Writer // gets a line for each decision; nil: there is no trace file
	// Usage reports whether Envoy shall read the usage of the answer to a request, by the
	// number of its decision's record and the replica that it is sent to, "" for one
	// without a hint; telling says that the index may learn from it. nil: of none.
	Usage func(seq uint64, replica string, telling bool) bool
	// Prefilled takes what a replica counted of a prompt that it has computed for another,
	// when Envoy has the request's answer. nil: it is dropped.
	Prefilled func(*Prefilled)
}

func (o RouterOptions) withDefaults() RouterOptions {
	o.TokenBudget = cmp.Or(o.TokenBudget, 50*time.Millisecond)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Prefilled == nil {
		o.Prefilled = func(*Prefilled) {}
	}
	return o
}

// Router decides where requests go: it reads bodies, finds their token ids, calls
// a Decider and keeps the record.
type Router struct {
	budget  atomic.Int64 // ns: RouterOptions.TokenBudget, which may change
	o       RouterOptions
	decider *decision.Decider
	tokens  tokens.Source
	bodies  *openai.Reader
	ring    *decision.Ring
	metrics *Metrics
	visits  visits
	scratch sync.Pool // *scratch
}

// NewRouter returns a router that decides with d, with a source of tokens.
func NewRouter(d *decision.Decider, t tokens.Source, ring *decision.Ring, m *Metrics, o RouterOptions) *Router {
	newReader := openai.NewReader
	if o.DropTexts {
		newReader = openai.NewPositionsReader
	}
	r := &Router{o: o.withDefaults(), decider: d, tokens: t, bodies: newReader(openai.DefaultMemory), ring: ring, metrics: m}
	r.SetBudget(r.o.TokenBudget)
	r.scratch.New = func() any {
		s := new(scratch)
		s.tokens.budget, s.other.budget = &s.hashing, &s.hashing
		s.find = func() string { return r.likely(s) }
		s.ended = func() bool { return s.tokens.stopped || s.other.stopped || s.rekeyed != nil && s.rekeyed.stopped }
		return s
	}
	return r
}

// SetBudget replaces RouterOptions.TokenBudget, for later requests.
func (r *Router) SetBudget(d time.Duration) { r.budget.Store(int64(d)) }

// readingLimits bound the memory for reading a body. Token ids take twice their bytes, and
// messages of a hundred bytes a third of theirs.
var readingLimits = work.Limits{Memory: 8 << 20, MemoryPerByte: 3}

// scratch is the memory of one decision.
type scratch struct {
	work    decision.Work
	ask     decision.Ask
	took    [phases]time.Duration
	base    string // base model of the request's, "" = none is served
	result  tokens.Result
	tokens  tokenPrompts
	other   tokenPrompts  // alternatives to the prompts
	rekeyed *tokenPrompts // the last ones of Ask.Rekey

	hashing work.Budget
	until   budget      // of hashing
	ended   func() bool // the budget of hashing has ended

	textRead
	asking asking
	asked  bool          // likely was called
	find   func() string // Router.likely of this scratch
}

// textRead is the text of a request's prompt.
type textRead struct {
	reading work.Budget
	read    bool // text and chain are the request's
	text    []byte
	chain   []prefixhash.Key // of text
	spread  []prefixhash.Key // chain by units, for the trace file
}

// begin empties s for a request, and returns its record.
func (s *scratch) begin() *decision.Record {
	s.work.Record.Reset()
	s.took, s.base, s.read, s.asked, s.work.LookedUp = [phases]time.Duration{}, "", false, false, time.Time{}
	return &s.work.Record
}

// Route decides where a request goes. It never fails and never blocks longer than
// the token budget.
func (r *Router) Route(ctx context.Context, q *Query) decision.Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	start := r.o.Now()
	rec := s.begin()
	d := r.contained(ctx, start, q, s)
	s.result.Release()
	rec.ID, rec.At, rec.Tenant, rec.Route, rec.Reason = q.ID, start, q.Tenant, q.Route.String(), d.Reason
	d.Withhold(rec, q.Withheld)
	r.visited(s, &d)
	rec.Sessions(&d, q.Waited)
	switch {
	case d.Reason == decision.ReasonHeld:
		rec.Session = decision.NewHeld(d.Held.Wait(r.o.Now()))
		if rec.Took = r.o.Now().Sub(start); q.Ticket == nil {
			r.ring.Put(rec)
		}
		return d
	case d.Chosen == "" && d.Reason != decision.ReasonHeldFull:
		r.decider.Uncharged()
	}
	d.Model, d.Tokens = rec.Model, rec.Tokens
	if d.Split == nil {
		d.SplitReason = rec.Split.Reason
	}
	rec.Took = r.o.Now().Sub(start)
	d.Seq = r.ring.Put(rec)
	if d.Usage = r.usage(q.Route, rec.Prompts, &d); d.Usage != "" {
		r.decider.Await(&d, q.ID, &s.work)
	}
	r.metrics.decided(rec, s.base, &s.took)
	r.trace(q, s)
	d.Traced = r.write(s, d.Seq)
	return d
}

// usage returns how Envoy shall read the usage of the answer to a request. The usage of
// several prompts has the cached tokens of one of them, so it is not read.
func (r *Router) usage(route openai.Route, prompts int, d *decision.Decision) string {
	if r.o.Usage == nil || d.Model == "" || prompts > 1 {
		return ""
	}
	switch {
	case route == openai.Generate || !r.o.Usage(d.Seq, d.First(), d.Telling):
		return "" // Envoy does not know its answers
	case route == openai.Completions:
		return envoy.UsageCompletions
	}
	return envoy.UsageDetected
}

// contained turns a panic into a decision without a hint: a defect in judging
// one request must not end the process that routes all others.
func (r *Router) contained(ctx context.Context, start time.Time, q *Query, s *scratch) (d decision.Decision) {
	defer func() {
		s.end()
		if p := recover(); p != nil {
			r.o.Log.Error("filter: decision panicked", "panic", panicKind(p), "route", q.Route.String(), "body_bytes", len(q.Body))
			d, s.work.Record.Choice = decision.Decision{Reason: decision.ReasonPanic}, decision.Choice{}
		}
	}()
	return r.decide(ctx, start, q, s)
}

// end gives back the turns of s and forgets the stream's context.
func (s *scratch) end() {
	s.reading.End()
	s.hashing.End()
	s.reading, s.hashing, s.until, s.asking = work.Budget{}, work.Budget{}, budget{}, asking{}
	if cap(s.text) > pooledText {
		s.text = nil
	}
}

func (r *Router) decide(ctx context.Context, start time.Time, q *Query, s *scratch) decision.Decision {
	if r.decider.Idle() {
		return decision.Decision{Reason: decision.ReasonDisabled}
	}
	s.reading.Start(ctx, readingLimits, len(q.Body))
	s.reading.InTurns(r.o.Turns)
	req, err := r.bodies.ParseWithin(&s.reading, q.Route, q.Body)
	s.reading.End()
	parsed := r.o.Now()
	s.took[phaseParse] = parsed.Sub(start)
	if err != nil {
		s.work.Record.Model = r.unreadModel(q)
		return decision.Decision{Reason: parseReason(err, q.Encoded)}
	}
	mv, reason := r.decider.Find(req.Model, q.Tenant)
	if mv == nil {
		s.work.Record.Asked = decision.Asked(req.Model)
		return decision.Decision{Reason: reason}
	}
	s.base = mv.Model().Base
	adapted, asked := r.decider.Adapted(mv, req.Adapter, q.Tenant)
	if adapted == nil { // the model's replicas may know the adapter all the same
		s.work.Record.Model, s.work.Record.Asked = mv.Model().ID, decision.Asked(asked)
		return decision.Decision{Reason: decision.ReasonUnknownModel}
	}
	if mv = adapted; mv.RunsSGLang() {
		req.TakeInputIDs()
	}
	if ctx.Err() != nil { // the request has ended: nothing more is computed or charged
		return decision.Decision{Reason: decision.ReasonUnfinished}
	}
	set := r.decider.Settings(mv)
	s.ask = decision.Ask{Model: mv.Model().ID, Tenant: q.Tenant, Subset: q.Subset, Must: q.Pick, Bare: q.Bare, Priority: q.Priority, Cacheless: req.NoCacheRead, Repeated: req.Repeated || req.Raw(openai.FieldKVTransferParams) != nil, Answers: req.Answers, Dry: q.Dry, Withheld: q.Withheld != "", Ended: s.ended, MayHold: q.MayHold > 0, Session: q.Session, Ticket: q.Ticket}
	if q.MaySplit {
		s.ask.NoSplit = noSplit(req)
		s.ask.MaySplit = s.ask.NoSplit == ""
	}
	if q.Dry {
		s.ask.Rekey = s.rekey(req)
	}
	s.tokens.stopped, s.other.stopped, s.rekeyed = false, false, nil
	if set.Policy != policy.NameDisabled {
		reason := r.prompts(ctx, req, mv, set, s)
		if q.Slash {
			s.ask.Rest = 0
		}
		now := r.o.Now()
		s.took[phaseTokens], parsed = now.Sub(parsed), now
		if ctx.Err() != nil {
			reason = decision.ReasonUnfinished
		}
		if reason != "" && (!q.Pick || reason == decision.ReasonUnfinished) {
			s.work.Record.Model = mv.Model().ID
			return decision.Decision{Reason: reason}
		}
	}
	s.until = budget{Context: ctx, deadline: time.Now().Add(time.Duration(r.budget.Load()))}
	s.hashing.Start(&s.until, work.Limits{}, len(q.Body))
	s.hashing.InTurns(r.o.Turns)
	if s.ask.Other != nil && s.ask.MaySplit {
		s.ask.MaySplit, s.ask.NoSplit = false, decision.SplitOff // two replicas may render the prompt on two days
	}
	d := r.decider.Place(&s.ask, mv, set, &s.work)
	if d.Split != nil {
		q.Lengths = req.Lengths()
	}
	s.took[phasePlace] = r.o.Now().Sub(parsed)
	if d.Reason == decision.ReasonBudget && ctx.Err() != nil {
		d.Reason = decision.ReasonUnfinished
	}
	return d
}

// noSplit says why the prompt of a request cannot be computed by another replica, "" if it
// can: a split moves one KV cache, of text alone, that the answering replica would take from
// its own cache, too.
func noSplit(req *openai.Request) decision.SplitReason {
	switch {
	case req.OwnTransfer():
		return decision.SplitOwnParams
	case req.Route == openai.Generate || req.Multimodal || req.NoCacheRead || req.Repeated || len(req.TokenPrompts)+len(req.TextPrompts) > 1,
		req.Raw(openai.FieldPreviousResponseID) != nil || req.On(openai.FieldBackground):
		return decision.SplitOff
	}
	return ""
}

// prompts fills s.ask with the part of the request that the decision uses: its
// token ids, or its text if these are not available. It returns the reason if there is
// neither.
func (r *Router) prompts(ctx context.Context, req *openai.Request, mv *decision.View, set *policy.Settings, s *scratch) decision.Reason {
	if mv.RunsSGLang() && req.Raw(openai.FieldSessionParams) != nil { // it puts earlier prompts before
		return decision.ReasonNoTokens
	}
	ctx, cancel := withBudget(ctx, time.Duration(r.budget.Load()))
	defer cancel()
	s.asking = asking{ctx: ctx, req: req, mv: mv, set: set}
	res, err := r.tokens.Tokens(ctx, req, tokens.Served{Model: mv.Model().ID, Tenant: s.ask.Tenant, Subset: s.ask.Subset, Likely: s.find})
	s.result = res // until the decision is taken
	late := errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil
	switch {
	case err == nil:
		s.work.Record.Source = res.Source
		s.tokens.set(mv, req, res.Prompts, maxLookup)
		for i := range res.Prompts {
			s.needs(req, len(res.Prompts[i].Tokens))
			s.ask.Rest = restOf(res.Prompts[i].Tokens)
		}
		s.ask.Prompts = &s.tokens
		if res.Other != nil {
			s.other.set(mv, req, res.Other, maxLookup)
			s.ask.Other = &s.other
		}
		return ""
	case errors.Is(err, tokens.ErrBusy):
		return decision.ReasonBusy
	case err != nil && late:
		return decision.ReasonBudget
	}
	if r.readText(ctx, s, req, mv) != nil {
		return decision.ReasonBudget
	}
	s.byText(req, mv)
	slow := errors.Is(err, tokens.ErrTooSlow)
	if len(s.ask.Text) == 0 {
		s.ask.Text = nil
		if slow {
			return decision.ReasonRenderSlow
		}
		return decision.ReasonNoTokens
	}
	s.work.Record.Source = sourceText
	if slow {
		s.work.Record.Source = sourceTextInstead
	}
	return ""
}

// sourceText is the token source of decisions by the text chain.
const sourceText = "text"

// sourceTextInstead is the source of decisions by the text chain when no replica
// could have returned the token ids in time.
const sourceTextInstead = "text_render_too_slow"

// readText fills in the text and its chain, once for a request. A cache_salt keeps the chains of
// prompts apart, as it keeps prompts apart in the replicas' caches.
func (r *Router) readText(ctx context.Context, s *scratch, req *openai.Request, mv *decision.View) (err error) {
	if s.read {
		return nil
	}
	s.reading.Start(ctx, work.Limits{}, 0)
	s.reading.InTurns(r.o.Turns)
	defer s.reading.End()
	defer work.Catch(&err)
	model := mv.TextModel()
	if salt := mv.Salt(req); salt != nil {
		model += "\x00" + *salt
	}
	s.text = req.AppendTextWithin(&s.reading, s.text[:0], prefixhash.MaxText)
	s.reading.Pause()
	s.chain = prefixhash.AppendText(s.chain[:0], model, s.text)
	if s.chain == nil {
		s.chain = []prefixhash.Key{}
	}
	s.read = true
	return nil
}

// byText makes the text decide.
func (s *scratch) byText(req *openai.Request, mv *decision.View) {
	size := len(s.text)
	s.ask.Rest = xxhash.Sum64(s.text[max(0, size-restBytes):]) ^ uint64(size)
	if size == prefixhash.MaxText { // and the prompt may go on
		size = max(size, req.TextLen())
	}
	s.ask.Text, s.ask.TextTokens = s.chain, size/prefixhash.TextToken
	if !req.Multimodal {
		s.needs(req, s.ask.TextTokens/mostSurplus)
	}
	if most := mv.Context(); most > 0 { // no prefill is longer; an image is many bytes and few tokens
		s.ask.TextTokens = min(s.ask.TextTokens, most)
	}
}

// mostSurplus is how many times fewer tokens a text may have than TextToken says.
const mostSurplus = 4

// needs notes that a prompt of the request has at least so many tokens, unless the replica cuts
// it to fit.
func (s *scratch) needs(req *openai.Request, tokens int) {
	cut := req.Raw(openai.FieldTruncation)
	if req.Raw(openai.FieldTruncatePromptTokens) != nil || cut != nil && string(cut) != `"disabled"` {
		return
	}
	s.ask.Least, s.ask.Answer = max(s.ask.Least, tokens), req.MaxTokens
}

// restBytes and restTokens are what tells the end of a prompt.
const restBytes, restTokens = 256, 64

// restOf returns the hash of the end of a prompt's tokens.
func restOf(tokens []uint32) uint64 {
	var end [4 * restTokens]byte
	last := tokens[max(0, len(tokens)-restTokens):]
	for i, t := range last {
		binary.LittleEndian.PutUint32(end[4*i:], t)
	}
	return xxhash.Sum64(end[:4*len(last)]) ^ uint64(len(tokens))
}

// pooledText is the most room, in bytes, for a text that is kept for later requests.
const pooledText = 1 << 20

// Tried records the endpoint that Envoy has tried last for a request of that id, and the
// response's status.
func (r *Router) Tried(d *decision.Decision, id, addr string, status int) {
	if status < http.StatusInternalServerError { // else it may be Envoy that answers
		r.metrics.served(d, addr)
		r.decider.Replied(r.ring, d.Seq, id, addr, status)
	}
	r.decider.Served(d, addr)
}

// Skip records a request without a decision, with the reason.
func (r *Router) Skip(q *Query, reason decision.Reason) decision.Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	rec := s.begin()
	rec.ID, rec.At, rec.Tenant, rec.Reason = q.ID, r.o.Now(), q.Tenant, reason
	if reason != decision.ReasonNotOurs {
		rec.Route = q.Route.String()
		r.ring.Put(rec)
	}
	r.metrics.decided(rec, s.base, &s.took)
	if reason != decision.ReasonNotOurs {
		r.decider.Uncharged()
		r.trace(q, s)
	}
	return decision.Decision{Reason: reason}
}

// parseReason returns the Reason of a body that cannot be read.
func parseReason(err error, encoded bool) decision.Reason {
	reason := openai.UnreadableJSON
	var e *openai.Error
	switch {
	case errors.Is(err, work.ErrEnded):
		return decision.ReasonUnfinished
	case errors.As(err, &e):
		reason = e.Reason
	}
	if encoded && (reason == openai.UnreadableJSON || reason == openai.InvalidUTF8) {
		return decision.ReasonEncoded
	}
	return decision.Reason(reason)
}

// panicKind describes a panic without its text, which may quote a prompt.
func panicKind(p any) string { return fmt.Sprintf("%T", p) }
