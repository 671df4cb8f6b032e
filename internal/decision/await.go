package decision

import (
	"slices"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmroute/index"
	"warmroute/internal/decision/history"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/prefixhash"
)

// mostAwaited bounds the answers that are awaited at once. A later request takes the place of
// the oldest.
const mostAwaited = 512

// A guess costs as much as a lookup of CPU memory. When none of the last unheard requests had an
// answer whose usage was read, the router guesses in listenFor of every listenEvery seconds only.
const (
	unheard                = 256
	listenFor, listenEvery = 4, 64 // s
)

// listens reports whether the answer to a request that is decided now may teach something
// about the replica, as far as earlier answers show. It counts the request.
func (h *holder) listens(now time.Time) bool {
	return h.account.Unheard() <= unheard || now.Unix()%listenEvery < listenFor
}

// awaited are the requests whose answers' usage may show the index what a clear has taken, or the
// histories how much the caches of their replicas hold. Their memory is reused.
type awaited struct {
	mu   sync.Mutex
	next int
	seqs [mostAwaited]uint64 // of the decisions' records; 0: nothing is awaited in this place
	all  [mostAwaited]awaitedAnswer
}

// awaitedAnswer is one request. It has hits, and nothing of the prompt.
type awaitedAnswer struct {
	id    uint64 // the hash of the request's
	at    index.HolderID
	scope index.Scope
	guess index.Guess
	load  *load.Account    // of at
	cache *history.Cache   // that learns from the answer; nil: none does
	used  history.Used     // of cache
	alone bool             // the request has ended, and no other is known to have been on the holder meanwhile
	keys  []prefixhash.Key // of the blocks that at has reported, if its answers find less than that
	sent  int64            // Unix ns
}

const (
	// mostChecked bounds the keys that are kept of an awaited answer, 8 bytes each.
	mostChecked = 4096
	// missedFor is how long after an answer that found too little the keys are kept.
	missedFor = time.Minute
)

// checked returns the keys of the reported blocks that an answer may disprove: of one prompt, where
// the replica's events alone tell.
func (r *Reservation) checked(w *Work) []prefixhash.Key {
	at, size := r.here, r.mv.scopes[r.here.scope].BlockSize
	n := int(r.own.Terms().Claimed) / max(1, size)
	if r.split != nil || !at.account.MissedSince(r.d.now().Add(-missedFor)) || !w.keyed(r.mv, r.here.scope) || len(w.ends) != 1 || n > min(len(w.keys), mostChecked) {
		return nil
	}
	return w.keys[:n]
}

// expect guesses the hit of a prompt on a holder with a tier: its answer tells what a clear has
// taken. There is no guess of several prompts, nor of one of which other blocks are on their way:
// their answer shows nothing. Nor does that of a prompt that two replicas have, or any rank.
func (d *Decider) expect(a *Ask, mv *View, w *Work, at *holder) {
	if a.Prompts == nil || !at.reports() || a.Repeated || a.Cacheless || !at.listens(w.LookedUp) || w.cands[w.ranked[0]].Match[policy.Coming].Tokens > 0 {
		return
	}
	w.chain(a, mv, at.scope)
	if a.ended() || len(w.ends) != 1 {
		return
	}
	w.prompt = onePrompt{of: a.Prompts}
	w.guess = d.index.Guess(at.id, mv.scopes[at.scope], w.keys[:w.ends[0]], &w.prompt)
}

// Await keeps what is expected of the answer to a request, until Answered. dec is the last
// decision of w, and id the request's. A prompt of which nothing is expected to be hit is not
// awaited.
func (d *Decider) Await(dec *Decision, id string, w *Work) {
	r := dec.Reservation
	if r == nil || r.here == nil {
		return
	}
	cache, used := r.past.awaits()
	if m := r.here.replica.Model(r.mv.model.ID); m != nil {
		used.Most = m.MaxLen
	}
	keys := r.checked(w)
	if (cache == nil || !r.past.alone) && !dec.Telling && len(keys) == 0 && !w.guess.Any() {
		return
	}
	l := &d.awaited
	l.mu.Lock()
	defer l.mu.Unlock()
	r.awaited, r.seq, l.seqs[l.next] = l.next, dec.Seq, dec.Seq
	one := &l.all[l.next]
	l.next = (l.next + 1) % len(l.all)
	one.id, one.at, one.scope, one.alone = xxhash.Sum64String(id), r.here.id, r.mv.scopes[r.here.scope], false
	one.guess = w.guess
	one.cache, one.used = cache, used
	one.load = r.here.account
	one.keys, one.sent = append(one.keys[:0], keys...), r.own.Terms().Sent
}

// ended records that the request of r has ended, and whether no other was on its holder
// meanwhile.
func (l *awaited) ended(r *Reservation, alone bool) {
	if r.seq == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seqs[r.awaited] == r.seq {
		l.all[r.awaited].alone = alone
	}
}

// Counted is what a replica says of an answer.
type Counted = history.Counted

// Answered takes what the chosen replica has counted for a request, by its decision and its id.
// Only an awaited answer teaches, and once. The index learns from exact counts alone: of as
// many tokens of the prompt as the router has counted. With disproved, reported blocks that the
// replica has not found leave the index.
func (d *Decider) Answered(seq uint64, id string, n Counted, exact, disproved bool) {
	one, ok := d.awaited.take(seq, xxhash.Sum64String(id))
	if !ok {
		return
	}
	one.load.Heard()
	exact = exact && n.Cached >= 0
	if size := max(1, one.scope.BlockSize); exact && disproved && n.Cached/size < len(one.keys) {
		d.index.Disprove(one.at, one.scope, one.keys, n.Cached/size, time.Unix(0, one.sent))
	}
	if one.cache != nil {
		one.cache.Answered(&one.used, n)
	}
	if exact {
		d.index.Answered(one.at, one.scope, &one.guess, n.Cached, one.alone)
	}
}

// take takes out the answer of a decision and a request: the index may wait for the holder's
// writer, which no request may.
func (l *awaited) take(seq, id uint64) (one awaitedAnswer, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.seqs[:], seq)
	if seq == 0 || i < 0 || l.all[i].id != id {
		return one, false
	}
	at := &l.all[i]
	one = *at
	at.keys = nil
	at.scope, at.cache, at.load, l.seqs[i] = index.Scope{}, nil, nil, 0
	return one, true
}
