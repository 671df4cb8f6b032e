package tokens

import (
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

	"warmroute/internal/chat"
	"warmroute/internal/openai"
	"warmroute/internal/tokenizer"
)

// Encoder turns a text into token ids, appended to dst, as the model's
// tokenizer does. It gets no memory for them, so it should determine their number
// before it allocates.
type Encoder interface {
	Append(dst []uint32, text []byte, addSpecial bool) []uint32
}

// PieceEncoder is an Encoder that can encode a text piece by piece. known is false
// when a piece names a token that the vocabulary does not have.
type PieceEncoder interface {
	AppendPieces(dst []uint32, text []byte, pieces []tokenizer.Piece) (ids []uint32, known bool)
}

// Model is everything needed to compute a model's ids here.
type Model struct {
	// Chat is how the model's servers render; its Version is not read: the
	// servers' own is used.
	Chat    chat.Options
	Encoder Encoder
	// Alternative loads another reading of the model's files that servers may have
	// instead of Encoder's; nil: there is none. A replica decides between them.
	Alternative func() (Encoder, error)
	// MaxLen is the model's context in tokens; 0: as the servers report. vLLM
	// refuses or cuts a longer prompt, so there are no ids for it.
	MaxLen int
}

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
	LocalSettings
	Hooks Hooks
	Log   *slog.Logger
	Now   func() time.Time
}

// LocalSettings are those of LocalOptions that may change later.
type LocalSettings struct {
	// TrustUnverified are features used although no server could verify them.
	// One that was found to differ is never used.
	TrustUnverified chat.Features
	// SampleEvery is how many requests there are to one that is checked
	// against a replica; negative: none. Default DefaultSampleEvery.
	SampleEvery int
	// CheckEvery is how often versions are looked at and unverified features
	// are tried again. Default DefaultCheckEvery.
	CheckEvery time.Duration
}

// Hooks report to metrics; each may be nil.
type Hooks struct {
	// Checked: a request was compared with a replica. outcome is one of
	// Equal, Differs, Unanswered.
	Checked func(model, outcome string)
	// Demoted: a feature is not trusted any more.
	Demoted func(model, feature string)
	// Refused: a request was not computed here, and why (chat.Why, or
	// "untrusted", "too_long", "no_model").
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
	// samplesWaiting bounds what waits to be compared; more are not taken.
	samplesWaiting = 16
	// checkTimeout bounds one question of a check, off the request path.
	checkTimeout = 10 * time.Second
)

// Local computes ids in this process for the models loaded into it, as far as
// they are trusted. Safe for concurrent use; Run does the verifying.
type Local struct {
	o       LocalOptions
	set     atomic.Pointer[LocalSettings] // in force
	models  sync.Map                      // served model name → *localModel
	samples chan sample
	wake    chan struct{}
	buffers sync.Pool // *[]byte
}

// localModel is one model; a new one replaces it when its files change.
type localModel struct {
	Model
	name  string
	trust trust
	// encoder is how the model's servers read its files, as far as is known.
	encoder atomic.Pointer[Encoder]
	// renderer belongs to version; both are nil and "" until the first check.
	renderer atomic.Pointer[chat.Renderer]
	limit    atomic.Int64 // the servers' context in tokens, 0: not known
	mu       sync.Mutex   // one check at a time; guards what follows
	version  string
	checked  bool    // the replicas of version have answered
	chosen   bool    // and which encoder is theirs is decided
	other    Encoder // the alternative, while it is not decided
}

func newLocalModel(name string, m Model) *localModel {
	local := &localModel{Model: m, name: name}
	local.encoder.Store(&local.Encoder)
	return local
}

// sample is a request to be compared, with a body of its own.
type sample struct {
	model    *localModel
	tenant   string // whose replicas may see it
	route    openai.Route
	body     []byte
	features chat.Features
	ids      [][]uint32
}

// NewLocal returns a Local without models.
func NewLocal(o LocalOptions) *Local {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Endpoints == nil {
		o.Endpoints = func(string) []Endpoint { return nil }
	}
	l := &Local{o: o, samples: make(chan sample, samplesWaiting), wake: make(chan struct{}, 1),
		buffers: sync.Pool{New: func() any { return new([]byte) }}}
	l.set.Store(o.LocalSettings.withDefaults())
	return l
}

func (s LocalSettings) withDefaults() *LocalSettings {
	s.SampleEvery = either(s.SampleEvery, DefaultSampleEvery)
	s.CheckEvery = either(s.CheckEvery, DefaultCheckEvery)
	return &s
}

// Set takes other settings.
func (l *Local) Set(s LocalSettings) {
	l.set.Store(s.withDefaults())
	l.look()
}

// look has Run check what is due.
func (l *Local) look() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Load makes a model known under a served name. The template is compiled now,
// so that a broken one is found at start; it is trusted after Run has verified it.
func (l *Local) Load(name string, m Model) error {
	m.Chat.Version = ""
	if _, err := chat.New(m.Chat); err != nil {
		return fmt.Errorf("model %q: %w", name, err)
	}
	l.models.Store(name, newLocalModel(name, m))
	l.look()
	return nil
}

// Unload forgets a model.
func (l *Local) Unload(name string) { l.models.Delete(name) }

// Tokens implements Source: the ids, when every feature of the request is trusted.
func (l *Local) Tokens(_ context.Context, req *openai.Request, served Served) (Result, error) {
	name := served.Model
	if l.o.Base != nil {
		name = l.o.Base(served)
	}
	v, ok := l.models.Load(name)
	if !ok {
		return Result{}, l.refused(served.Model, "no_model")
	}
	m := v.(*localModel)
	r := m.renderer.Load()
	if r == nil || m.trust.nothing(l.set.Load().TrustUnverified) {
		return Result{}, l.refused(served.Model, "untrusted")
	}
	if !m.mayFit(req) {
		return Result{}, l.refused(served.Model, "too_long")
	}
	moments := r.Moments(l.o.Now())
	if req.Route == openai.Completions {
		moments = moments[:1] // a plain text contains no day
	}
	room := rooms.Get().(*[]uint32)
	ids, features, err := l.compute(m, *m.encoder.Load(), r, req, moments[0], room)
	var other [][]uint32
	if err == nil && len(moments) > 1 {
		other, _, err = l.compute(m, *m.encoder.Load(), r, req, moments[1], new([]uint32))
	}
	if err != nil {
		var not *chat.NotInProcess
		if errors.As(err, &not) {
			return Result{}, l.refused(served.Model, string(not.Why))
		}
		return Result{}, l.refused(served.Model, "too_long")
	}
	if !m.trust.all(features, l.set.Load().TrustUnverified) {
		return Result{}, l.refused(served.Model, "untrusted")
	}
	result := Result{Prompts: prompts(ids), Source: FromInProcess, room: room}
	if len(moments) == 1 { // a replica's clock may be on another day than the router's
		if l.sample(m, served.Tenant, req, features, ids) {
			result.room = nil // the sample's now
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

// compute renders as at a moment and encodes, trusted or not. The ids are in room, as
// far as they are of one prompt.
func (l *Local) compute(m *localModel, encoder Encoder, r *chat.Renderer, req *openai.Request, now time.Time, room *[]uint32) ([][]uint32, chat.Features, error) {
	buf := l.buffers.Get().(*[]byte)
	defer l.buffers.Put(buf)
	out, err := r.Render((*buf)[:0], req, now)
	if err != nil {
		return nil, out.Features, err
	}
	var ids [][]uint32
	if req.Route == openai.Completions {
		for _, text := range out.TextPrompts {
			*buf = append((*buf)[:0], text...)
			ids = append(ids, encoder.Append(nil, *buf, out.AddSpecialTokens))
		}
	} else {
		*buf = out.Text
		if *room, err = encodeRendered((*room)[:0], encoder, out); err != nil {
			return nil, out.Features, err
		}
		ids = [][]uint32{*room}
	}
	for _, prompt := range ids {
		if len(prompt) == 0 || !m.fits(len(prompt), out.Truncates) {
			return nil, out.Features, ErrNone
		}
	}
	if len(ids) == 0 {
		return nil, out.Features, ErrNone
	}
	return ids, out.Features, nil
}

// fits reports whether vLLM takes a prompt as it is. One that may be cut is cut
// to one token less than the context; without the context's length nothing is
// known of such a one.
func (m *localModel) fits(tokens int, truncates bool) bool {
	limit := m.context()
	switch {
	case truncates:
		return tokens < limit
	case limit > 0:
		return tokens <= limit
	}
	return true
}

// context is the model's in tokens, 0: not known.
func (m *localModel) context() int { return either(m.MaxLen, int(m.limit.Load())) }

// mostBytes is how many bytes of a body a token stands for at most, over a whole
// prompt: English has 4 to 5 of them, and 30 where every letter is a \u escape.
const mostBytes = 64

// mayFit reports whether the prompts may fit the model's context, by their bytes
// alone. Rendering and encoding 50 MB would take a second, to see that they do
// not; of a context of 131,072 tokens, what may fit takes 0.17 s at most.
func (m *localModel) mayFit(req *openai.Request) bool {
	limit := m.context()
	if limit <= 0 || req.Multimodal { // images are large and no text
		return true
	}
	size := len(req.Raw(openai.FieldMessages)) + len(req.Raw(openai.FieldInput))
	for _, text := range req.TextPrompts {
		size = max(size, len(text))
	}
	return size/mostBytes <= limit
}

// encodeRendered encodes a prompt as a whole or in its pieces. A model whose
// vocabulary lacks a token of its own code is another model.
func encodeRendered(dst []uint32, encoder Encoder, out chat.Rendered) ([]uint32, error) {
	if out.Pieces == nil {
		return encoder.Append(dst, out.Text, out.AddSpecialTokens), nil
	}
	pieces, ok := encoder.(PieceEncoder)
	if !ok {
		return dst, &chat.NotInProcess{Why: chat.RenderedInCode}
	}
	ids, ok := pieces.AppendPieces(dst, out.Text, out.Pieces)
	if !ok {
		return dst, &chat.NotInProcess{Why: chat.RenderedInCode}
	}
	return ids, nil
}

// sample sets one request in SampleEvery aside to be compared, and reports whether
// it did: the ids are kept then.
func (l *Local) sample(m *localModel, tenant string, req *openai.Request, features chat.Features, ids [][]uint32) bool {
	every := l.set.Load().SampleEvery
	if every < 0 || l.o.Reference == nil || rand.IntN(every) != 0 || len(l.samples) == cap(l.samples) {
		return false
	}
	select {
	case l.samples <- sample{m, strings.Clone(tenant), req.Route, slices.Clone(req.Body()), features, ids}:
		return true
	default:
		return false
	}
}

// Run verifies models when they are loaded and when their servers' version
// changes, and compares samples, until ctx ends.
func (l *Local) Run(ctx context.Context) error {
	tick := time.NewTicker(l.set.Load().CheckEvery)
	defer tick.Stop()
	for {
		l.CheckAll(ctx)
		tick.Reset(l.set.Load().CheckEvery)
	wait:
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				break wait
			case <-l.wake:
				break wait
			case s := <-l.samples:
				l.compare(ctx, s)
			}
		}
	}
}

// CheckAll verifies everything that is new or could not be verified yet.
func (l *Local) CheckAll(ctx context.Context) {
	l.models.Range(func(_, v any) bool {
		l.check(ctx, v.(*localModel))
		return ctx.Err() == nil
	})
}
