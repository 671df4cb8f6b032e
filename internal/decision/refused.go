package decision

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
)

const (
	// mostRefused bounds the refused prompts that are remembered. A later one takes the place of
	// the oldest.
	mostRefused = 512
	// refusedMost bounds the time for which a refusal counts, which is refusalFirst and doubles.
	refusedMost = 10 * time.Minute
	// mostGrown is how many longer prompts one refusal sends elsewhere: another client's may begin
	// with the refused one, too.
	mostGrown = 4
)

// promptEnd tells a prompt by its end, for one model and tenant: what prompts share is their beginning.
type promptEnd struct {
	key    uint64 // of the last block; 0 = the prompt has no full block
	at     int32  // the number of blocks
	covers int32  // tokens in these
	rest   uint64 // of the last tokens, 0 = the prompt is not known
}

// reach is how far a prompt is cached on a replica. A prompt whose end is typed anew has the same one,
// other conversations that share its beginning have deeper ones.
type reach struct {
	key uint64 // of the last cached block; 0 = nothing is cached, or it is not known
	at  int32  // the number of blocks
}

// refusal is a prompt that a replica has refused.
type refusal struct {
	promptEnd
	reach   reach // there
	typed   reach // on a replica that the prompt passed over for another prompt's refusal
	others  bool  // what went to another replica for it was refused there, too: no fault of this one
	since   int64 // Unix ns
	replica string
	until   int64 // Unix ns; an older one counts again with the next refusal
	lasts   time.Duration
	lacks   bool // prompts that go on where it ends count, too
	caller  bool // its status is about who asked; it counts while the replica refuses all requests
	grown   int  // longer prompts, and prompts of equal reach, that it still sends elsewhere
}

// refusals are the prompts that replicas have refused.
type refusals struct {
	until atomic.Int64 // the latest of all
	mu    sync.Mutex
	next  int
	all   []refusal
}

// endOf puts what tells the prompts of a request into the record, and returns what the keys of a
// prompt are mixed with.
func (w *Work) endOf(a *Ask, mv *View) (keys []prefixhash.Key, of uint64) {
	keys, unit := w.keys, w.unit*len(w.keys)
	if a.Text != nil {
		keys, unit = a.Text, prefixhash.TextMarks.End(len(a.Text))
	}
	if a.Rest == 0 || a.Cacheless {
		return nil, 0
	}
	of = xxhash.Sum64String(mv.model.ID) + 31*xxhash.Sum64String(a.Tenant)
	w.Record.end = promptEnd{at: int32(len(keys)), covers: int32(unit), rest: a.Rest ^ of}
	if len(keys) > 0 {
		w.Record.end.key = uint64(keys[len(keys)-1]) ^ of
	}
	return keys, of
}

// refused puts the replicas into w that have refused the request's prompt, or one that it goes on.
func (d *Decider) refused(a *Ask, mv *View, w *Work) {
	keys, of := w.endOf(a, mv)
	r, now := &d.refusals, w.time(d).UnixNano()
	if w.refusers = w.refusers[:0]; now >= r.until.Load() {
		return
	}
	passes := func(key uint64, at int32) bool {
		return key != 0 && int(at) <= len(keys) && key == uint64(keys[at-1])^of
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		e := &r.all[i]
		if now >= e.until {
			continue
		}
		again, goesOn := e.promptEnd == w.Record.end, e.grown > 0 && e.lacks && passes(e.key, e.at)
		typed := !again && !goesOn && e.grown > 0 && passes(e.reach.key, e.reach.at) && w.typedAnew(d, mv, e)
		counts := again || goesOn || typed
		if counts && e.caller {
			counts = d.views.repliesOf(e.replica).refusing(now)
		}
		if !counts {
			continue
		}
		if w.refusers = append(w.refusers, e.replica); typed {
			w.Record.typed = e.reach
		}
		if !again && !a.Dry && !a.Withheld {
			e.grown--
		}
	}
}

// typedAnew reports whether the request's prompt is cached as far as the refused one was, which may be
// the replica's fault.
func (w *Work) typedAnew(d *Decider, mv *View, e *refusal) bool {
	if e.others || d.views.repliesOf(e.replica).served.Load() >= e.since {
		return false
	}
	deepest := 0
	for i := range mv.holders {
		if mv.holders[i].replica.Addr == e.replica {
			deepest = max(deepest, w.matched[i].gpu())
		}
	}
	return w.unit > 0 && deepest/w.unit == int(e.reach.at) && deepest < int(w.Record.end.covers)
}

// reach notes how far the prompt is cached on the holder that gets it, if it goes on beyond.
func (w *Work) reach(a *Ask, at int32) {
	n, all := w.matched[at].gpu()/max(1, w.unit), len(w.keys)
	if a.Prompts != nil && w.Record.end.key != 0 && n > 0 && n < all {
		of := uint64(w.keys[all-1]) ^ w.Record.end.key
		w.Record.reach = reach{key: uint64(w.keys[n-1]) ^ of, at: int32(n)}
	}
}

// add records a replica's answer to a prompt. The first refusal with a status that is the client's
// own fault more often counts from the next on; an answer that serves the prompt ends it.
func (r *refusals) add(one refusal, status int, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := slices.IndexFunc(r.all, func(e refusal) bool { return e.promptEnd == one.promptEnd && e.replica == one.replica })
	one.since, one.lasts, one.grown = now, refusalFirst, mostGrown
	one.caller = status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests
	served := status < firstStatus
	if !served {
		r.compare(&one, now)
	}
	switch {
	case served && of < 0, !served && of >= 0 && now < r.all[of].until && (one.caller || !r.all[of].caller): // nothing is known, or it was under way before
		return
	case served:
		r.all[of] = refusal{}
		return
	case of >= 0 && one.caller == r.all[of].caller:
		one.lasts = min(2*r.all[of].lasts, refusedMost)
	case status == http.StatusBadRequest || status == http.StatusRequestEntityTooLarge || status == http.StatusUnprocessableEntity:
		one.lasts /= 2
	}
	if one.lasts >= refusalFirst {
		one.until = now + int64(one.lasts)
	}
	r.until.Store(max(r.until.Load(), now+int64(one.lasts)))
	switch {
	case of >= 0:
		r.all[of] = one
	case len(r.all) < mostRefused:
		r.all = append(r.all, one)
	default:
		r.all[r.next] = one
		r.next = (r.next + 1) % mostRefused
	}
}

// left forgets what a replica that has left refused: another process may come back there.
func (r *refusals) left(replica string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.all {
		if r.all[i].replica == replica {
			r.all[i] = refusal{}
		}
	}
}

// compare finds out whose fault refusals of prompts with one reach are: a prompt that went to another
// replica for one of them, and is refused there, too, shows that it is not the replica's.
func (r *refusals) compare(one *refusal, now int64) {
	for i := range r.all {
		switch e := &r.all[i]; {
		case e.reach.key == 0, now >= e.until:
		case e.replica == one.replica:
			one.others = one.others || e.others && e.reach == one.reach
		case e.reach == one.typed:
			e.others = true
		}
	}
}

// Replied records the status of the answer to the request of a record, by a replica, or by a filter
// behind the router (""). What was refused is in no history, and what a replica has refused goes
// elsewhere when it comes again.
func (d *Decider) Replied(g *Ring, seq uint64, id, replica string, status int) {
	if status >= firstStatus {
		g.with(seq, id, (*Record).forget)
	}
	r := d.views.now().snap.Replica(replica)
	if r == nil || seq == 0 || status < http.StatusOK || status > lastStatus || load.Failure(status) {
		return
	}
	now := d.now().UnixNano()
	d.views.repliesOf(r.Addr).add(status, now)
	if status < firstStatus && now >= d.refusals.until.Load() {
		return
	}
	e := refusal{replica: r.Addr}
	g.with(seq, id, func(rec *Record) {
		if e.promptEnd = rec.end; rec.First() == replica {
			e.reach, e.typed, e.lacks = rec.reach, rec.typed, rec.Predicted < int(rec.end.covers)
		}
	})
	if e.rest != 0 {
		d.refusals.add(e, status, now)
	}
}

// GaveUp records that the client of the request of a record left without an answer, so long after it
// was sent: what was not to be computed by then is in no history.
func (d *Decider) GaveUp(g *Ring, seq uint64, id string, after time.Duration) {
	g.with(seq, id, func(rec *Record) {
		if after < rec.wait {
			rec.forget()
		}
	})
}

// forget takes the prompt, which was not computed, out of the history that has it.
func (rec *Record) forget() {
	if rec.cache != nil {
		rec.cache.Refused(rec.hold)
	}
}

// refusingRow is the number of refusals in a row after which a replica may be the cause, and
// refusingFor for how long after the last one.
const (
	refusingRow = 8
	refusingFor = 10 * time.Minute
)

// Between these are the statuses of refusals, without those that show a failure (load.Failure).
const firstStatus, lastStatus = http.StatusMultipleChoices, http.StatusGatewayTimeout

// replies counts a replica's refusals since it has last served.
type replies struct {
	row      atomic.Int32
	last     atomic.Int64 // Unix ns of the last of them
	served   atomic.Int64 // Unix ns at which it has last served
	statuses [lastStatus - firstStatus + 1]atomic.Int32
}

// repliesOf returns the answers of the replica at an address.
func (v *views) repliesOf(addr string) *replies {
	r, ok := v.replies.Load(addr)
	if !ok {
		r, _ = v.replies.LoadOrStore(addr, new(replies))
	}
	return r.(*replies)
}

// add counts an answer.
func (r *replies) add(status int, now int64) {
	if status >= firstStatus {
		r.row.Add(1)
		r.last.Store(now)
		r.statuses[status-firstStatus].Add(1)
		return
	}
	r.served.Store(now)
	if r.row.Swap(0) != 0 {
		for i := range r.statuses {
			r.statuses[i].Store(0)
		}
	}
}

// refusing reports whether the replica has refused all requests of late.
func (r *replies) refusing(now int64) bool {
	return r.row.Load() >= refusingRow && now-r.last.Load() < int64(refusingFor)
}

// level gives replicas that refuse all requests the mean load of the others: they answer at once,
// so they look idle and would get every new prompt.
func (w *Work) level(mv *View, now int64) {
	var inFlight, pending, live, n float64
	for i, at := range w.at {
		if l := &w.cands[i].Load; !mv.holders[at].replies.refusing(now) {
			inFlight, pending, live, n = inFlight+float64(l.InFlight), pending+l.Pending, live+l.Live, n+1
		}
	}
	if n == 0 || int(n) == len(w.at) {
		return
	}
	for i, at := range w.at {
		if l := &w.cands[i].Load; mv.holders[at].replies.refusing(now) {
			l.InFlight, l.Pending, l.Live = max(l.InFlight, int(math.Ceil(inFlight/n))), max(l.Pending, pending/n), max(l.Live, live/n)
		}
	}
}

// Refusing says how often a replica has refused with which status, if it has served nothing of late
// and another replica of its model has; "" otherwise.
func (d *Decider) Refusing(s *fleet.Snapshot, r *fleet.Replica) (statuses string) {
	now, of := d.now().UnixNano(), d.views.repliesOf(r.Addr)
	serves := func(other *fleet.Replica) bool {
		return other != r && s.Base(other.Addr) == s.Base(r.Addr) && now-d.views.repliesOf(other.Addr).served.Load() < int64(refusingFor)
	}
	if !of.refusing(now) || !slices.ContainsFunc(s.Replicas, serves) {
		return ""
	}
	for i := range of.statuses {
		if n := of.statuses[i].Load(); n > 0 {
			statuses += fmt.Sprintf(", %d (%d times)", firstStatus+i, n)
		}
	}
	return strings.TrimPrefix(statuses, ", ")
}
