package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// LocalOptions configure a Local; zero values mean the defaults.
type LocalOptions struct {
	// Reference returns the ids to compare with. nil: nothing can be verified, and
	// ids are computed here only for TrustUnverified.
	Reference *Remote
	// Endpoints lists the servers of a model, of all tenants; their versions
	// decide how it is rendered, and they get the start-up conversations.
	Endpoints func(model string) []Endpoint
	// Base maps a served id (an alias, an adapter) to the name its model was
	// loaded under; nil: they are the same.
	Base func(Served) string
	// TrustUnverified are features used although no server could verify them, until Trust names
	// others. A feature that was found to differ is never used.
	TrustUnverified openai.Features
	// Local compares one of SampleEvery requests with a replica; negative: none. Default
	// DefaultSampleEvery.
	SampleEvery int
	// CheckEvery is the pause between looks at versions and unverified features. Default
	// DefaultCheckEvery.
	CheckEvery time.Duration
	// Work bounds a request's rendering and encoding, by the size of its body.
	Work work.Limits
	// Turns are taken by the work on requests; nil: it takes none.
	Turns *work.Turns
	Hooks Hooks
	Log   *slog.Logger
	Now   func() time.Time
	// Wall tells the day that prompts contain, which replicas read from their wall clocks.
	Wall func() time.Time
}

// Hooks report to metrics; each may be nil.
type Hooks struct {
	// Checked is called when a request was compared with a replica. outcome is one of
	// Equal, Differs, Unanswered.
	Checked func(model, outcome string)
	// Demoted is called when a feature is not trusted any more.
	Demoted func(model, feature string)
	// Refused is called when a request is not computed here, with the reason (a
	// render.Refusal's, or "rejected", "untrusted", "too_long", "no_model", "budget",
	// "memory", "too_slow", "cancelled").
	Refused func(model, why string)
}

// Outcomes of a check.
const (
	Equal      = "equal"
	Differs    = "differs"
	Unanswered = "unanswered"
)

// Defaults of LocalOptions.
const (
	// DefaultSampleEvery finds a difference that touches 1 % of the requests
	// within about 100,000 of them, for 0.1 % more work at the replicas.
	DefaultSampleEvery = 1000
	// DefaultCheckEvery is soon enough after a roll-out and costs nothing.
	DefaultCheckEvery = 5 * time.Second
	// samplesWaiting bounds the samples that wait to be compared; more are not taken.
	samplesWaiting = 16
	// sampledBody is the largest body of a sampled request, about 250,000 tokens of
	// English: samples wait with a copy of it.
	sampledBody = 1 << 20
	// checkTimeout bounds one question of a check, off the request path.
	checkTimeout = 10 * time.Second
)

// Local computes ids in this process for the models loaded into it, as far as they are
// trusted. Safe for concurrent use; Run verifies.
type Local struct {
	o       LocalOptions
	trusted atomic.Uint32 // openai.Features that are used unverified
	models  sync.Map      // served model name → *localModel
	samples chan sample
	wake    chan struct{}
	checks  chan struct{} // a place for each check under way
}

// localModel is one model; a new one replaces it when its files change.
type localModel struct {
	Model
	name  string
	info  render.Info
	trust trust

	suspicion suspicion
	// mayServe is the method fits as a function, made once and not for each request.
	mayServe func(tokens int, truncates bool) bool
	// renderer belongs to version and reads the model's files in the way of its servers,
	// as far as is known; both are nil and "" until the first check.
	renderer atomic.Pointer[Renderer]
	limit    atomic.Int64 // the longest context of the servers in tokens, 0: not known
	cut      atomic.Int64 // the context to which prompts are cut, 0: not known
	version  atomic.Pointer[string]
	alone    atomic.Bool          // features were demoted by the only replica that there was
	phase    atomic.Pointer[Busy] // of the check that is under way, nil: none is
	mu       sync.Mutex           // held by a check, one at a time; guards rounds
	rounds
}

// rounds are those of checks of one version.
type rounds struct {
	checked bool      // its replicas have answered
	chosen  bool      // renderer reads the files as the servers do for certain
	lost    int       // successive rounds that no replica answered
	next    time.Time // when the next round is due
}

func newLocalModel(name string, m Model) *localModel {
	local := &localModel{Model: m, name: name, info: m.Info()}
	local.mayServe = local.fits
	local.version.Store(new(string))
	return local
}

// sample is a request to be compared, with a body of its own.
type sample struct {
	model    *localModel
	by       *Renderer // of model, when the ids were computed
	tenant   string    // the tenant whose replicas may see it
	subset   []string  // the replicas that may see it; nil: all
	route    openai.Route
	body     []byte
	features openai.Features
	setting  uint64
	ids      [][]uint32
}

// NewLocal returns a Local without models.
func NewLocal(o LocalOptions) *Local {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.SampleEvery = cmp.Or(o.SampleEvery, DefaultSampleEvery)
	o.CheckEvery = cmp.Or(o.CheckEvery, DefaultCheckEvery)
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Wall == nil {
		o.Wall = index.Wall
	}
	if o.Endpoints == nil {
		o.Endpoints = func(string) []Endpoint { return nil }
	}
	l := &Local{o: o, samples: make(chan sample, samplesWaiting), wake: make(chan struct{}, 1),
		checks: make(chan struct{}, checksAtOnce)}
	l.trusted.Store(uint32(o.TrustUnverified))
	return l
}

// Trust replaces the features that are used although no server could verify them.
func (l *Local) Trust(unverified openai.Features) { l.trusted.Store(uint32(unverified)) }

func (l *Local) unverified() openai.Features { return openai.Features(l.trusted.Load()) }

// look makes Run check the models that are due.
func (l *Local) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Load gives the Local a model under a served name. It compiles the template, so that a
// broken one is found at start; the template is trusted after Run has verified it.
func (l *Local) Load(name string, m Model) error {
	if _, err := m.Renderer(context.Background(), "", false); err != nil {
		return fmt.Errorf("model %q: %w", name, err)
	}
	l.models.Store(name, newLocalModel(name, m))
	l.look()
	return nil
}

// Unload forgets a model.
func (l *Local) Unload(name string) { l.models.Delete(name) }

// Tokens implements Source: it returns the ids when every feature of the request is
// trusted. The work ends with ctx, at its deadline and with the budget of
// LocalOptions.Work; it notices the first two within a millisecond of work.
func (l *Local) Tokens(ctx context.Context, req *openai.Request, served Served) (Result, error) {
	name := served.Model
	if l.o.Base != nil {
		name = l.o.Base(served)
	}
	v, ok := l.models.Load(name)
	if !ok {
		return Result{}, l.refused(served.Model, "no_model")
	}
	m := v.(*localModel)
	r, unverified := m.renderer.Load(), l.unverified()
	if r == nil || m.trust.nothing(unverified) {
		return Result{}, l.refused(served.Model, "untrusted")
	}
	if !m.mayFit(req) {
		return Result{}, l.refused(served.Model, "too_long")
	}
	moments := (*r).Moments(l.o.Wall())
	if req.Route == openai.Completions {
		moments = moments[:1] // a plain text has no date
	}
	room := rooms.Get().(*[]uint32)
	b := budgets.Get().(*work.Budget)
	defer release(b)
	b.Start(ctx, l.o.Work, len(req.Body()))
	b.InTurns(l.o.Turns)
	j := render.Job{Request: req, Now: moments[0], Work: b, Fits: m.mayServe, Room: room}
	ids, features, setting, err := (*r).Prompts(j)
	var other [][]uint32
	if err == nil && len(moments) > 1 {
		j.Now, j.Room = moments[1], new([]uint32)
		other, _, _, err = (*r).Prompts(j)
	}
	if err != nil {
		none := l.refused(served.Model, whyNot(err))
		if errors.Is(err, work.ErrEnded) {
			return Result{}, err
		}
		if whyNot(err) == renderDiffers {
			return Result{}, errServedAlone
		}
		return Result{}, none
	}
	if !m.trust.all(features, unverified) {
		return Result{}, l.refused(served.Model, "untrusted")
	}
	s := sample{model: m, by: r, tenant: served.Tenant, subset: served.Subset, features: features, setting: setting, ids: ids}
	if features&^unverified != 0 && !m.trust.settings.equal(setting, l.o.Now()) {
		if len(moments) == 1 {
			l.sample(req, s, true)
		}
		return Result{}, l.refused(served.Model, "untrusted")
	}
	result := Result{Prompts: prompts(ids), Source: FromInProcess, room: room}
	if len(moments) == 1 { // a replica's clock may be on another day than the router's
		if l.sample(req, s, false) {
			result.room = nil // the sample has it now
		}
	} else if !slices.EqualFunc(ids, other, slices.Equal) {
		result.Other = prompts(other)
	}
	return result, nil
}

func prompts(ids [][]uint32) []Prompt {
	out := make([]Prompt, len(ids))
	for i := range ids {
		out[i].Tokens = ids[i]
	}
	return out
}

func (l *Local) refused(model, why string) error {
	if l.o.Hooks.Refused != nil {
		l.o.Hooks.Refused(model, why)
	}
	return ErrNone
}

// renderDiffers is the reason of a request that a server renders otherwise than its /render.
const renderDiffers = "render_differs"

// whyNot returns the reason that a request's ids are not computed here.
func whyNot(err error) string {
	var refusal *render.Refusal
	switch {
	case errors.As(err, &refusal):
		return refusal.Why
	case errors.Is(err, render.ErrRejected):
		return "rejected"
	case errors.Is(err, work.ErrSteps):
		return "budget"
	case errors.Is(err, work.ErrMemory):
		return "memory"
	case errors.Is(err, context.DeadlineExceeded):
		return "too_slow"
	case errors.Is(err, work.ErrEnded):
		return "cancelled"
	}
	return "too_long"
}

// budgets are the memory of requests' budgets.
var budgets = sync.Pool{New: func() any { return new(work.Budget) }}

func release(b *work.Budget) {
	b.End()
	*b = work.Budget{} // or the pool would keep the request's context
	budgets.Put(b)
}

// fits reports whether vLLM accepts a prompt unchanged. vLLM cuts a prompt that may be
// cut to one token less than the context; if the context is unknown, such a prompt never
// fits.
func (m *localModel) fits(tokens int, truncates bool) bool {
	if truncates {
		return tokens < cmp.Or(m.info.MaxLen, int(m.cut.Load()))
	}
	limit := m.context()
	return limit <= 0 || tokens <= limit
}

// context returns the model's longest context in tokens; 0: unknown. Decisions leave out the
// replicas whose own is shorter than a prompt.
func (m *localModel) context() int { return cmp.Or(m.info.MaxLen, int(m.limit.Load())) }

// mostBytes bounds the bytes of a body for each token, over a complete prompt: English
// has 4 to 5, and 30 if every letter is a \u escape.
const mostBytes = 64

// inPrompts are the fields whose content may be in a prompt.
var inPrompts = []openai.Field{openai.FieldMessages, openai.FieldInput, openai.FieldSystem, openai.FieldInstructions,
	openai.FieldPreviousInputMessages, openai.FieldTools, openai.FieldDocuments, openai.FieldChatTemplateKwargs}

// mayFit reports whether the prompts may fit the model's context, by their bytes alone: 8
// MiB for a context of 131,072 tokens. Within that the budget of LocalOptions.Work and
// the request's deadline bound the work.
func (m *localModel) mayFit(req *openai.Request) bool {
	limit := m.context()
	if limit <= 0 || req.Multimodal { // images are large and no text
		return true
	}
	size := 0
	for _, f := range inPrompts {
		size += len(req.Raw(f))
	}
	for _, text := range req.TextPrompts {
		size = max(size, len(text))
	}
	return size/mostBytes <= limit
}

// sample sets one request in SampleEvery aside for a comparison, and those that a suspicion
// chooses or whose setting is new, and reports whether it did: the sample keeps the ids then.
func (l *Local) sample(req *openai.Request, s sample, isNew bool) bool {
	every := l.o.SampleEvery
	if !isNew && every < 0 || l.o.Reference == nil || len(req.Body()) > sampledBody || len(l.samples) == cap(l.samples) {
		return false
	}
	if isNew && !s.model.trust.settings.asks(s.setting, l.o.Now()) || !isNew && !s.model.suspicion.chooses(s.features) && rand.IntN(every) != 0 {
		return false
	}
	s.tenant, s.route, s.body = strings.Clone(s.tenant), req.Route, slices.Clone(req.Body())
	s.subset = slices.Clone(s.subset)
	select {
	case l.samples <- s:
		return true
	default:
		return false
	}
}
