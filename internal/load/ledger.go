package load

import (
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
)

// Ledger holds the accounts of all holders. Requests are charged inside the decision
// and released when their stream ends.
type Ledger struct {
	// Model returns a replica's base model, for metrics; nil: unknown.
	Model func(replica string) string

	now func() time.Time
	// deciding makes reading the accounts, picking and charging one step. Ingest,
	// discovery and ending streams never take it.
	deciding   sync.Mutex
	factor     factor   // of the accounts' recent work; guarded by deciding, as seq is
	seq        int64    // charges so far
	accounts   sync.Map // index.Holder → *Account
	changes    atomic.Pointer[changes]
	unreported atomicFloat             // s of prefill of other routers
	loads      [policy.Cut]atomicFloat // s to load a token, as the fleet shows it; 0: tierPrior
	uncharged  atomic.Int64            // Unix ns of the last request that Envoy sends where it likes
	logged     atomic.Int64            // Unix ns at which Envoy's access log last told of a request
	unlogged   atomic.Int32            // failures that streams have shown since
}

// While the access log tells of requests, it decides whose a failure is: the status that a stream
// shows may be that of another filter in Envoy. It is waited for until it has told nothing for
// loggedFor, and of none of mostUnlogged failures.
const (
	loggedFor    = time.Minute
	mostUnlogged = 8
)

// Logged records that Envoy's access log tells of requests.
func (l *Ledger) Logged() {
	l.unlogged.Store(0)
	l.logged.Store(l.now().UnixNano())
}

// logs counts a failure that a stream shows, and reports whether the access log is to tell of it.
func (l *Ledger) logs(now int64) bool {
	return l.unlogged.Add(1) <= mostUnlogged || now-l.logged.Load() < int64(loggedFor)
}

// NewLedger returns an empty ledger that reads the time from now; nil is
// index.Now.
func NewLedger(now func() time.Time) *Ledger {
	if now == nil {
		now = index.Now
	}
	return &Ledger{now: now}
}

// Lock begins a step in which the accounts are read and one is charged.
func (l *Ledger) Lock() { l.deciding.Lock() }

// Unlock ends that step.
func (l *Ledger) Unlock() { l.deciding.Unlock() }

// Uncharged records that a request goes to a replica that the router has not chosen.
func (l *Ledger) Uncharged() { l.uncharged.Store(l.now().UnixNano()) }

// Of returns the account of h, which stays the same object until h is dropped.
func (l *Ledger) Of(h index.Holder) *Account {
	if a := l.Find(h); a != nil {
		return a
	}
	v, _ := l.accounts.LoadOrStore(h, &Account{ledger: l, at: h})
	return v.(*Account)
}

// All yields every account, in no order.
func (l *Ledger) All() iter.Seq2[index.Holder, *Account] {
	return func(yield func(index.Holder, *Account) bool) {
		l.accounts.Range(func(h, a any) bool { return yield(h.(index.Holder), a.(*Account)) })
	}
}

// Drop removes a replica's accounts. Open charges on them no longer affect any load. It
// returns the numbers of the dropped holders.
func (l *Ledger) Drop(replica string) (gone []index.HolderID) {
	for h, a := range l.All() {
		if h.Replica == replica {
			l.accounts.Delete(h)
			a.down.Store(forGood)
			gone = append(gone, index.HolderID(a.holder.Load()))
		}
	}
	return gone
}

// Requests returns how many requests were charged on a holder so far, and how many are in
// flight.
func (l *Ledger) Requests(h index.Holder) (sent, inFlight int64) {
	a := l.Find(h)
	if a == nil {
		return 0, 0
	}
	return a.sent.Load(), a.inFlight.Load()
}

// Find returns the account of h, or nil.
func (l *Ledger) Find(h index.Holder) *Account {
	if v, ok := l.accounts.Load(h); ok {
		return v.(*Account)
	}
	return nil
}

// Applied finds first tokens in a batch that was applied to the index: vLLM publishes
// the block that completes a request's prompt at the end of the step that also produced
// its first token. vLLM stores the blocks of one request and step in one event, so
// Applied looks up only the last block of each event. It takes no lock, and learns the
// replica's speed without one: batches of one holder come from one goroutine at a time,
// in the order of their application. Batches of different holders may come at once.
func (l *Ledger) Applied(b *index.Batch) {
	a := l.Find(b.Holder)
	if a == nil {
		return
	}
	if b.Shared && !a.shares.Load() {
		a.shares.Store(true)
	}
	if a.sentinels.waiting.Load() == 0 {
		return
	}
	now := l.now().UnixNano()
	for i := range b.Events {
		e := &b.Events[i]
		if e.Kind != index.Stored || e.Tier != index.TierGPU || len(e.Hashes) == 0 {
			continue
		}
		if e.Ahead > 0 {
			a.stored(uint64(e.Last), now)
		} else if e.Content != nil {
			a.stored(uint64(e.Content[len(e.Content)-1]), now)
		} else {
			a.stored(e.Hashes[len(e.Hashes)-1], now)
		}
	}
}
