package decision

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// holder is one holder of the index, as decisions choose it.
type holder struct {
	replica *fleet.Replica
	rank    int
	id      index.HolderID
	account *load.Account
	history *history.Cache
	hash    uint64
	scope   int               // index into View.scopes
	marks   *prefixhash.Marks // of the scope's blocks
	context int               // tokens of the model's context there, 0 = not known
	events  bool              // KV events or a sidecar report its blocks
	timed   bool              // KV events report its first tokens
	adapter policy.Residency
	store   int // number of the store that it shares, 0 = none is known
	pairing
	heard
}

// heard is what the replica of a holder has answered.
type heard struct {
	refusal *rankAnswers // nil: it has one rank
	replies *replies
}

// pairing says with whom a holder can split requests: another number of the same class.
type pairing struct {
	class  int // policy.Partner.Class
	number int // policy.Partner.Replica
}

// View is the part of a fleet snapshot that decisions for one served model id and tenant
// read, computed once. It is immutable.
type View struct {
	model    fleet.Model
	holders  []holder
	answer   int           // the first holders, which may answer; the others only compute prompts for them
	paired   bool          // some two of them can split a request
	stores   int           // number of stores that holders share
	scopes   []index.Scope // distinct scopes of the holders
	usual    int           // index into scopes, of one with the block size of most replicas
	byHolder []int32       // HolderID → position in holders, -1 = not a candidate
	events   bool          // some holder has its blocks reported
	context  int           // tokens of the longest known context, 0 = none is known
	reuse    *reuse        // of the model and its adapters
	unsalted bool          // most replicas do not read the cache_salt of /v1/messages
	sglang   bool          // most replicas run SGLang
	ready    uint64        // view.ready
}

// view is a fleet snapshot prepared for decisions.
type view struct {
	snap   *fleet.Snapshot
	models sync.Map  // modelKey → *View; only ids that are served, so clients cannot grow it
	ready  uint64    // of views.readiness
	since  time.Time // of ready
}

type modelKey struct{ model, tenant string }

// views hands out the view of the current snapshot.
type views struct {
	fleet     Fleet
	index     Index
	ledger    *load.Ledger
	history   *history.History
	clock     func() time.Time
	readsSalt func(version string) bool // of /v1/messages
	refusals  sync.Map                  // address → *rankAnswers
	replies   sync.Map                  // address → *replies
	reuses    sync.Map                  // model without adapter → *reuse
	cur       atomic.Pointer[view]
}

// find returns the holder of a replica and rank, nil when there is none.
func (mv *View) find(addr string, rank int) *holder {
	for i := range mv.holders {
		if c := &mv.holders[i]; c.replica.Addr == addr && c.rank == rank {
			return c
		}
	}
	return nil
}

func (v *views) now() *view {
	snap := v.fleet.Snapshot()
	cur := v.cur.Load()
	if cur == nil || cur.snap != snap {
		now := v.clock()
		next := &view{snap: snap, ready: v.readiness(snap, now), since: now}
		if cur != nil && cur.ready == next.ready {
			next.since = cur.since
		}
		cur = next
		v.cur.Store(cur)
	}
	return cur
}

// readiness returns a number that is another one where other replicas are ready, or fail; 0 = none
// is ready.
func (v *views) readiness(snap *fleet.Snapshot, now time.Time) (ready uint64) {
	for _, r := range snap.Replicas {
		if r.Ready {
			ready += xxhash.Sum64String(r.Addr) + r.Joined
		}
	}
	if ready == 0 {
		return 0
	}
	for at, a := range v.ledger.All() {
		if a.Failing(now.UnixNano()) {
			ready ^= xxhash.Sum64String(at.Replica) + uint64(at.Rank)
		}
	}
	return ready
}

// of returns the view of a served model id, nil when no replica serves it.
func (v *views) of(model, tenant string) *View {
	cur := v.now()
	key := modelKey{model, tenant}
	if mv, ok := cur.models.Load(key); ok {
		return mv.(*View)
	}
	serving := cur.snap.Serving(model, tenant)
	if len(serving) == 0 {
		return nil // not cached: the name is the client's
	}
	if !owns(serving, tenant) {
		key.tenant = "" // tenants without replicas of their own share one view, however many there are
		if mv, ok := cur.models.Load(key); ok {
			return mv.(*View)
		}
	}
	key.model, key.tenant = strings.Clone(model), strings.Clone(key.tenant) // the arguments may alias a request body
	mv := v.build(serving, cur.snap.Agreed(model, tenant))
	mv.ready = cur.ready
	first, _ := cur.models.LoadOrStore(key, mv)
	return first.(*View)
}

// reuseOf returns the reuse of a base model that is served. Before it makes one, it drops those of
// models that no replica lists any more.
func (v *views) reuseOf(base string) *reuse {
	r, ok := v.reuses.Load(base)
	if !ok {
		snap := v.fleet.Snapshot()
		v.reuses.Range(func(model, _ any) bool {
			if !lists(snap, model.(string)) {
				v.reuses.Delete(model)
			}
			return true
		})
		r, _ = v.reuses.LoadOrStore(strings.Clone(base), new(reuse))
	}
	return r.(*reuse)
}

// lists reports whether any replica lists a model of that base.
func lists(snap *fleet.Snapshot, base string) bool {
	return slices.ContainsFunc(snap.Replicas, func(r *fleet.Replica) bool {
		return slices.ContainsFunc(r.Models, func(m fleet.Model) bool { return m.Base == base })
	})
}

// owns reports whether any of the candidates is the tenant's own.
func owns(serving []fleet.Candidate, tenant string) bool {
	return slices.ContainsFunc(serving, func(c fleet.Candidate) bool { return c.Replica.Tenant == tenant })
}

// build makes a view of the candidates. Prompts are keyed for the model as most of them list
// it, so that the others match nothing.
func (v *views) build(serving []fleet.Candidate, agreed *fleet.Model) *View {
	mv := &View{model: *agreed, reuse: v.reuseOf(agreed.Base)}
	readers := 0 // replicas that read the salt of /v1/messages
	sglangs := 0
	of := make([]int, len(serving)) // the scope of each
	for i, s := range serving {
		if v.readsSalt(s.Replica.Version) {
			readers++
		}
		if s.Replica.SGLang != nil {
			sglangs++
		}
		scope := index.Scope{
			Tenant: s.Replica.Tenant, Model: s.Model.Base, LoRA: s.Model.LoRA,
			Scheme: index.SchemeTokens, BlockSize: v.blockSize(s),
		}
		if s.Replica.Sidecar {
			scope.LoRA.Path = "" // sidecars do not know it
		}
		if scope.BlockSize == 0 && len(s.Replica.Events) == 0 && !s.Replica.Sidecar {
			scope.BlockSize = assumedBlock
		}
		at := slices.Index(mv.scopes, scope)
		if at < 0 {
			at = len(mv.scopes)
			mv.scopes = append(mv.scopes, scope)
		}
		if s.Replica.Role != fleet.RolePrefill {
			v.addRanks(mv, s, at)
		}
		of[i] = at
	}
	mv.unsalted, mv.sglang = 2*readers < len(serving), 2*sglangs > len(serving)
	mv.usual = fleet.Most(of, func(scope int) int { return mv.scopes[scope].BlockSize }, func(scope int) uint64 { return uint64(scope) })
	mv.answer = len(mv.holders)
	for i, s := range serving {
		if s.Replica.Role == fleet.RolePrefill {
			v.addRanks(mv, s, of[i])
		}
	}
	mv.classify()
	mv.numberStores()
	return mv
}

// blockSize returns the tokens of a replica's blocks. What its events show counts: /metrics says
// how many of them one device has, which is less if several share the context of a prompt.
func (v *views) blockSize(s fleet.Candidate) int {
	for _, rank := range s.Replica.Ranks {
		id := v.index.ID(index.Holder{Replica: s.Replica.Addr, Rank: rank})
		if size := v.index.BlockSize(id, s.Replica.Tenant, s.Model.Base); size > 0 {
			return size
		}
	}
	return s.Replica.BlockSize
}

func (v *views) addRanks(mv *View, s fleet.Candidate, scope int) {
	for _, rank := range s.Replica.Ranks {
		block := cmp.Or(mv.scopes[scope].BlockSize, assumedBlock)
		c := v.holder(s.Replica, s.Model, rank, scope, block)
		c.marks, c.context = prefixhash.MarksOf(block), s.Model.MaxLen
		mv.context = max(mv.context, c.context)
		for len(mv.byHolder) <= int(c.id) {
			mv.byHolder = append(mv.byHolder, -1)
		}
		mv.byHolder[c.id] = int32(len(mv.holders))
		mv.holders, mv.events = append(mv.holders, c), mv.events || c.events
	}
}

// classify numbers the replicas, and groups those that can hand KV caches to each other.
func (mv *View) classify() {
	var classes []*fleet.Replica // one of each
	for i := range mv.holders {
		c := &mv.holders[i]
		if i > 0 && mv.holders[i-1].replica == c.replica {
			c.pairing = mv.holders[i-1].pairing
			continue
		}
		c.number = i
		if c.replica.Transfer.Connector == "" {
			continue
		}
		at := slices.IndexFunc(classes, func(of *fleet.Replica) bool { return fleet.Alike(of, c.replica) })
		switch {
		case at >= 0:
			c.class = at + 1
		case len(classes) < policy.MaxClasses:
			classes = append(classes, c.replica)
			c.class = len(classes)
		}
	}
	for i := range mv.holders {
		p := &mv.holders[i]
		if p.class > 0 && p.replica.Role != fleet.RoleDecode && mv.answersFor(p) {
			mv.paired = true
			return
		}
	}
}

// answersFor reports whether another replica can answer a request whose prompt p computes.
func (mv *View) answersFor(p *holder) bool {
	for i := range mv.answer {
		if d := &mv.holders[i]; d.class == p.class && d.number != p.number {
			return true
		}
	}
	return false
}

func (v *views) holder(r *fleet.Replica, m *fleet.Model, rank, scope, block int) holder {
	h := index.Holder{Replica: r.Addr, Rank: rank}
	c := holder{
		replica: r, rank: rank, scope: scope,
		id: v.index.ID(h), account: v.ledger.Of(h),
		hash: xxhash.Sum64String(r.Addr) + uint64(rank)*0x9E3779B97F4A7C15,
	}
	c.history, c.refusal, c.replies = v.history.Of(h), v.answersOf(r), v.repliesOf(r.Addr)
	if r.Blocks > 0 && r.BlockSize > 0 && !r.CacheOff {
		c.history.SetCapacity(r.Blocks * block)
	}
	c.account.SetID(c.id)
	for _, e := range r.Events {
		c.events = c.events || e.Rank == rank
	}
	c.timed = c.events // a sidecar's reports come too late to time first tokens
	if r.Sidecar {     // until one reports, the history stands for its cache
		_, c.events = v.index.Trust(c.id, r.Tenant, m.Base)
	}
	if page, ok := r.LoadOf(rank); ok {
		v.ledger.Lock()
		c.account.Scrape(page, c.timed)
		v.ledger.Unlock()
		c.history.Read(history.Page{
			Answers: page.Answers.Count, Tokens: page.Answers.Tokens, Seconds: page.Decode.Seconds, Usage: page.KVUsage, Waiting: page.Waiting,
		})
		c.adapter = residency(m.LoRA, page)
	}
	return c
}

// residency returns whether a rank lacks an adapter. vLLM reports the adapters of running
// and waiting requests: an idle one may be loaded, unless those take all the slots.
func residency(a prefixhash.LoRA, page fleet.Load) policy.Residency {
	if a.Set && page.MaxLoRAs > 0 && len(page.LoRAs) >= page.MaxLoRAs && !slices.Contains(page.LoRAs, a.Name) {
		return policy.AdapterEvicted
	}
	return policy.AdapterReady
}

// TextModel returns the model's name in text chains and settings. Adapters have names of
// their own; the aliases of a model share one.
func (mv *View) TextModel() string {
	if mv.model.LoRA.Set {
		return mv.model.ID
	}
	return mv.model.Base
}

// Salt returns the cache_salt that most replicas mix into the request's blocks; it counts
// if half of them do. On the others a cached prompt may be missed.
func (mv *View) Salt(req *openai.Request) *string {
	if mv.unsalted && req.Route == openai.Messages {
		return nil
	}
	return req.CacheSalt
}

// RunsSGLang reports whether most of the model's replicas run SGLang.
func (mv *View) RunsSGLang() bool { return mv.sglang }

// Context returns the tokens of the model's longest known context, 0 when none is known.
func (mv *View) Context() int { return mv.context }

// Model returns the served model.
func (mv *View) Model() *fleet.Model { return &mv.model }

// InSubset reports whether addr is named by a subset of "ip:port" or "ip"
// entries. A nil subset names all.
func InSubset(addr string, subset []string) bool {
	if subset == nil {
		return true
	}
	host := addr
	if i := strings.LastIndexByte(addr, ':'); i >= 0 {
		host = strings.Trim(addr[:i], "[]")
	}
	for _, s := range subset {
		if s == addr || strings.Trim(s, "[]") == host {
			return true
		}
	}
	return false
}

// knows reports whether any replica serves model; a replica that is not ready counts with
// the models that it served last. Without a ready replica knows returns true, because the
// models are not known.
func (v *view) knows(model string) bool {
	if v.snap.Ready == 0 {
		return true
	}
	return slices.ContainsFunc(v.snap.All(), func(r *fleet.Replica) bool { return r.Model(model) != nil })
}
