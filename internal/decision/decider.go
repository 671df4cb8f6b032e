package decision

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/sessions"
	"warmroute/internal/sglang"
	"warmroute/prefixhash"
)

// Fleet gives the replicas as an immutable snapshot.
type Fleet interface{ Snapshot() *fleet.Snapshot }

// Index gives the cached prefix of a key chain per holder.
type Index interface {
	ID(h index.Holder) index.HolderID
	Guess(id index.HolderID, s index.Scope, keys []prefixhash.Key, p index.Prompt) index.Guess
	Answered(id index.HolderID, s index.Scope, g *index.Guess, reported int, alone bool)
	Disprove(id index.HolderID, s index.Scope, keys []prefixhash.Key, depth int, sent time.Time) bool
	ExplainGroups(id index.HolderID, s index.Scope, p index.Prompt) (g index.Groups, ok bool)
	FindPrompt(f *index.Found, s index.Scope, keys []prefixhash.Key, p index.Prompt)
	Partial(id index.HolderID, s index.Scope) bool
	BlockSize(id index.HolderID, tenant, model string) int
	Trust(id index.HolderID, tenant, model string) (index.GroupTrust, bool)
	Why(id index.HolderID, s index.Scope, t *index.Trail) index.Ending
}

// Options configures a Decider. Zero values are the defaults.
type Options struct {
	Ranked int              // length of the ranked list; default 3
	Seed   uint64           // of the hash that spreads ties
	Now    func() time.Time // default index.Now; the ledger and the index should have the same
	Peers  Peers            // other routers of the fleet; nil = there are none
	// ReadsSalt reports whether a replica of a release reads the cache_salt of
	// /v1/messages, or may do so; nil: every one does.
	ReadsSalt func(version string) bool
}

// Decider takes decisions from matches and loads, for requests of any form, and
// learns from the outcome of each. The router, `lab policy` and `lab replay` all
// run this code.
type Decider struct {
	o        Options
	now      func() time.Time
	views    views
	index    Index
	ledger   *load.Ledger
	book     *policy.Book
	history  *history.History // of each holder: which prompts it was sent
	sessions *sessions.Table
	pressure *Pressure
	splits   splits
	unheld   atomic.Int64 // requests that lacked room and went all the same
	ordinal  atomic.Uint64
	ranked   atomic.Int64 // Options.Ranked, which may change
	answers
	// replicas whose departure another router has reported: it need not be sent
	// again
	invalidated sync.Map
}

// answers are what the answers to requests tell.
type answers struct {
	awaited  awaited
	refusals refusals
}

// New returns a decider over a fleet and an index, by the settings of
// book.
func New(f Fleet, x Index, l *load.Ledger, book *policy.Book, o Options) *Decider {
	o.Ranked = cmp.Or(o.Ranked, 3)
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.ReadsSalt == nil {
		o.ReadsSalt = func(string) bool { return true }
	}
	d := &Decider{
		o: o, now: o.Now, index: x, ledger: l, book: book, history: new(history.History), sessions: sessions.New(), pressure: NewPressure(),
		views: views{fleet: f, index: x, ledger: l, clock: o.Now, readsSalt: o.ReadsSalt},
	}
	d.views.history = d.history
	d.splits.phases = newPhases()
	d.SetRanked(o.Ranked)
	return d
}

// SetRanked replaces Options.Ranked, for decisions from now on.
func (d *Decider) SetRanked(n int) { d.ranked.Store(int64(n)) }

// Pressure returns the signal of overridden matches.
func (d *Decider) Pressure() *Pressure { return d.pressure }

// Forget drops the requests in flight and the history of a replica that left.
// The replica's feed removes its index entries. Forget waits for no request.
func (d *Decider) Forget(replica string) {
	if len(d.ledger.Drop(replica)) == 0 { // another source has reported it
		return
	}
	d.views.refusals.Delete(replica)
	d.views.replies.Delete(replica)
	d.refusals.left(replica)
	had := d.history.Drop(replica, d.now())
	if _, told := d.invalidated.LoadAndDelete(replica); !told && had && d.o.Peers != nil {
		d.o.Peers.Send(Prefix{Statement: Invalidated, Holder: index.Holder{Replica: replica}})
	}
}

// Uncharged records that a request goes where Envoy sends it.
func (d *Decider) Uncharged() { d.ledger.Uncharged() }

// Work is the memory of one decision. After Decide, Record explains the decision. A
// Work is not safe for concurrent use.
type Work struct {
	Record   Record
	LookedUp time.Time // when the index was read; zero without a lookup
	now      time.Time // of the decision; zero until it is asked for
	bare     bool      // Ask.Bare

	lookup
	contest
	parting

	asking sessions.Request // where requests are held
	sites  []int32          // candidates, with asking
}

// lookup is what the index says of the prompts.
type lookup struct {
	keys     []prefixhash.Key
	ends     []int  // by prompt, the end of its keys in keys, when keysOf >= 0
	keysOf   int    // the scope of keys; -1 = none or several
	unit     int    // tokens of a block of keys
	sentinel uint64 // see Decider.sentinel
	blocks   int    // full blocks of all prompts
	found    index.Found
	prompt   onePrompt
	marked   marked
	guess    index.Guess // of a single prompt, if its answer may teach
	matched  []held
	stores   []int // by holder.store, the most tokens of a prompt in it
}

// contest is who may get the request, and at what cost.
type contest struct {
	cands    []policy.Candidate
	answer   int // the first candidates, which may answer
	scores   []policy.Score
	speeds   []float64 // of the candidates, as far as known
	at       []int32   // position in the view of each candidate
	passed   []int32   // the same of the replicas that were passed over, see able
	refusers []string  // replicas that have refused the prompt
	ranked   []int32
	dest     []byte
}

// parting is of a request that another replica may compute than the one that answers it.
type parting struct {
	apart    bool             // the request may be split
	partners []policy.Partner // with apart, by candidate
	compared policy.Compared  // with apart
}

// held counts the tokens of the prompts that one holder has.
type held struct {
	match   policy.Match // without credit until it is complete
	shared  int          // tokens in the store that it shares, from the prompt's beginning
	grouped bool         // cache groups decide the match
	weight  float64
	whole   int            // tokens of the full blocks of the prompts
	next    prefixhash.Key // of the first block that is not on the GPU; 0 = several prompts, or the GPU's blocks do not tell
}

// gpu returns the tokens that are on the GPU or on their way to it.
func (h *held) gpu() int { return int(h.match[policy.GPU].Tokens + h.match[policy.Coming].Tokens) }

// Decide places a request. It never fails, takes no lock that ingest, discovery
// or scraping hold, and makes no remote call.
func (d *Decider) Decide(a *Ask, w *Work) Decision {
	w.Record.Reset()
	mv, reason := d.Find(a.Model, a.Tenant)
	if mv == nil {
		return Decision{Reason: reason}
	}
	return d.Place(a, mv, d.Settings(mv), w)
}

// Idle reports whether routing is off for every model.
func (d *Decider) Idle() bool { return d.book.Idle() }

// Find returns the view of a model, or the reason why it has none.
func (d *Decider) Find(model, tenant string) (*View, Reason) {
	if model == "" { // vLLM then takes its base model
		if model = d.only(); model == "" {
			return nil, ReasonNoModel
		}
	}
	if mv := d.views.of(model, tenant); mv != nil {
		return mv, ""
	}
	if d.views.now().knows(model) {
		return nil, ReasonNotReady
	}
	return nil, ReasonUnknownModel
}

// Adapted returns the view of a model with the adapter that a request's body names beside it, as
// SGLang reads it: the adapter of the model's name goes before. Of an adapter that no replica lists
// the view is nil, and asked the name that would have it.
func (d *Decider) Adapted(mv *View, adapter, tenant string) (of *View, asked string) {
	if adapter == "" || !mv.sglang || mv.model.LoRA.Set {
		return mv, ""
	}
	asked = mv.model.ID + sglang.AdapterMark + adapter
	return d.views.of(asked, tenant), asked
}

// only returns the base model of all replicas, "" if they differ in what they serve or none is known.
func (d *Decider) only() string {
	snap := d.views.now().snap
	if len(snap.Replicas) == 0 || d.Several() {
		return ""
	}
	return snap.Base(snap.Replicas[0].Addr)
}

// Several reports whether replicas differ in the models that they serve or served last, or one
// has never said what it serves, so that the model of a request chooses among them.
func (d *Decider) Several() bool {
	snap := d.views.now().snap
	all := snap.Replicas
	return len(all) > 0 && slices.ContainsFunc(snap.Named, func(n *fleet.Replica) bool {
		return slices.ContainsFunc(n.Models, func(m fleet.Model) bool { return all[0].Model(m.ID) == nil })
	}) || slices.ContainsFunc(all, func(r *fleet.Replica) bool {
		return !slices.EqualFunc(all[0].Models, r.Models, func(a, b fleet.Model) bool { return a.ID == b.ID })
	})
}

// Settings returns the settings of a model.
func (d *Decider) Settings(mv *View) *policy.Settings {
	return d.book.Of(mv.model.ID, mv.model.Base)
}

// Place is Decide with a view and settings that the caller has found. The caller
// resets the record.
func (d *Decider) Place(a *Ask, mv *View, set *policy.Settings, w *Work) Decision {
	dec := d.place(a, mv, set, w)
	if a.Ticket != nil && dec.Held == nil { // if it goes for another reason it is still in the queue
		a.Ticket.Leave(d.now())
	}
	return dec
}

func (d *Decider) place(a *Ask, mv *View, set *policy.Settings, w *Work) Decision {
	w.Record.Model, w.Record.Policy = mv.model.ID, set.Policy
	w.guess, w.bare, w.now = index.Guess{}, a.Bare, time.Time{}
	if set.Policy == policy.NameDisabled {
		return Decision{Reason: ReasonDisabled}
	}
	w.clear(len(mv.holders))
	switch {
	case a.Prompts != nil:
		d.match(a, mv, w)
		if a.Other != nil && !a.Cacheless {
			d.matchOther(a, mv, w)
		}
	case a.Text != nil:
		w.Record.Tokens, w.Record.Prompts, w.Record.Blocks = a.TextTokens, 1, len(a.Text)
		d.recall(a, mv, w)
	}
	if a.ended() {
		return Decision{Reason: ReasonBudget}
	}
	return d.pick(a, mv, set, w)
}

// matchOther matches the other reading of the request, and keeps the reading with
// more cached tokens.
func (d *Decider) matchOther(a *Ask, mv *View, w *Work) {
	first := w.longestPrompt()
	for range 2 {
		a.Prompts, a.Other = a.Other, a.Prompts
		w.Record.Tokens, w.Record.Blocks = 0, 0
		w.clear(len(mv.holders))
		if d.match(a, mv, w); w.longestPrompt() > first {
			return
		}
		first = -1 // matches the first reading again
	}
}

// longestPrompt returns the most tokens of the prompts that one holder has.
func (w *Work) longestPrompt() (tokens int) {
	for i := range w.matched {
		tokens = max(tokens, w.matched[i].gpu())
	}
	return tokens
}

func (w *Work) clear(holders int) {
	w.matched = w.matched[:0]
	for range holders {
		w.matched = append(w.matched, held{})
	}
	w.keys, w.ends, w.keysOf, w.marked.marks = w.keys[:0], w.ends[:0], -1, nil
}

// Blocks returns the keys of the prompts' full blocks of the last lookup by token ids,
// and the tokens of a block. The next decision reuses the keys' memory.
func (w *Work) Blocks() (keys []prefixhash.Key, tokens int) {
	if w.keysOf < 0 {
		return nil, 0
	}
	return w.keys, w.unit
}

// onePrompt is one of a request's prompts, for the index.
type onePrompt struct {
	of     Prompts
	i      int
	flight index.Flight // to explain it
}

// InFlight implements index.Prompt's addition for prompts that are described as they arrive.
func (p *onePrompt) InFlight() (index.Flight, bool) { return p.flight, true }

// Tokens implements index.Prompt.
func (p *onePrompt) Tokens() int { return p.of.Length(p.i) }

// AppendChain implements index.Prompt.
func (p *onePrompt) AppendChain(dst []prefixhash.Key, c index.Keying) []prefixhash.Key {
	return p.of.AppendChain(dst, c, p.i)
}

// Mixes implements index.Prompt's addition for values besides tokens.
func (p *onePrompt) Mixes() index.Mix {
	if m, ok := p.of.(interface{ Mixes() index.Mix }); ok {
		return m.Mixes()
	}
	return index.Mix{}
}

// match fills w.matched with the tokens of the prompts that each holder of mv has.
// Several prompts of one request count together.
func (d *Decider) match(a *Ask, mv *View, w *Work) {
	for i := range a.Prompts.Len() {
		w.Record.Tokens += a.Prompts.Tokens(i)
	}
	w.Record.Prompts = a.Prompts.Len()
	if a.Cacheless {
		return
	}
	for scope := range mv.scopes {
		w.Record.Block = max(w.Record.Block, mv.scopes[scope].BlockSize)
		w.chain(a, mv, scope)
		if len(w.keys) > 0 {
			w.Record.head = uint64(w.keys[0])
		}
		from := 0
		for i, end := range w.ends {
			w.prompt = onePrompt{of: a.Prompts, i: i}
			d.matchPrompt(mv, scope, w.keys[from:end], w)
			from = end
		}
		w.ending(mv, scope)
	}
	d.recall(a, mv, w)
}

// ending sets the tokens of a whole match of each holder in a scope whose keys w has, and the key
// behind its match for a request with one prompt.
func (w *Work) ending(mv *View, scope int) {
	single := w.unit > 0 && len(w.ends) == 1
	for i := range mv.holders {
		h := &w.matched[i]
		if mv.holders[i].scope != scope {
			continue
		}
		h.whole = len(w.keys) * mv.scopes[scope].BlockSize
		if !single || h.grouped {
			continue
		}
		if n := int(h.match[policy.GPU].Tokens) / w.unit; n < len(w.keys) {
			h.next = w.keys[n]
		}
	}
}

// keyed reports whether w.keys are those of a scope: scopes that differ only in the group have
// equal keys.
func (w *Work) keyed(mv *View, scope int) bool {
	if w.keysOf < 0 {
		return false
	}
	s, of := &mv.scopes[scope], &mv.scopes[w.keysOf]
	return s.BlockSize == of.BlockSize && s.LoRA == of.LoRA
}

// chain puts the keys of all prompts for a scope into w.keys.
func (w *Work) chain(a *Ask, mv *View, scope int) {
	if w.keyed(mv, scope) {
		w.keysOf = scope
		return
	}
	s := &mv.scopes[scope]
	w.keys, w.ends, w.keysOf, w.unit = w.keys[:0], w.ends[:0], scope, s.BlockSize
	for i := range a.Prompts.Len() {
		w.keys = a.Prompts.AppendKeys(w.keys, s, i)
		w.ends = append(w.ends, len(w.keys))
	}
}

func (d *Decider) matchPrompt(mv *View, scope int, keys []prefixhash.Key, w *Work) {
	if len(keys) == 0 {
		return
	}
	w.Record.Blocks = max(w.Record.Blocks, len(keys))
	s := &mv.scopes[scope]
	d.index.FindPrompt(&w.found, *s, keys, &w.prompt)
	w.emptyStores(mv)
	for m := range w.found.All() {
		if int(m.ID) >= len(mv.byHolder) || mv.byHolder[m.ID] < 0 {
			continue
		}
		at := mv.byHolder[m.ID]
		if len(mv.scopes) > 1 && mv.holders[at].scope != scope {
			continue
		}
		h := &w.matched[at]
		reported := int(m.Blocks) * s.BlockSize
		if m.Grouped { // Hit counts tokens: it may end inside one of these blocks
			reported = int(m.Hit)
			h.match[policy.Cut].Tokens += max(0, m.Full-m.Hit)
			h.grouped = true
		}
		h.match[policy.GPU].Tokens += int32(reported)
		if m.Grouped || m.Storage > m.Blocks {
			h.below(&mv.holders[at], &m, reported, s.BlockSize)
		}
		if c := &mv.holders[at]; c.store > 0 {
			w.stores[c.store] = max(w.stores[c.store], stored(&m, s.BlockSize))
		}
	}
	w.share(mv, scope)
}
