package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// learnTimeout bounds all requests of one attempt to learn a replica that is not
// up. A busy vLLM answers each in milliseconds, a loading one not at all.
const learnTimeout = 5 * time.Second

// lookEvery is the least time between two readings that answers to requests cause: clients choose them.
const lookEvery = time.Second

// firstBackoff is the wait after a first failed attempt; it doubles up to
// maxBackoff, and half of it is random so that the replicas of a fleet
// that died together are not retried at the same time.
const firstBackoff = 500 * time.Millisecond

// notice is a worker's message to the fleet's loop.
type notice struct {
	from    *worker
	change  change
	replica *Replica // joined, updated: a new value that the worker does not keep
	reason  string   // left, failed: of the closed set
	why     string   // the same for people
}

type change uint8

const (
	joined  change = iota + 1 // learned, offer it
	updated                   // the same replica with new values
	left                      // it was up and no longer is
	failed                    // it is still not up
)

// worker does all HTTP of one replica, one request at a time, and decides
// whether it is up. Everything but the immutable head belongs to its goroutine.
type worker struct {
	fleet   *Fleet
	options ReplicaOptions
	addr    string
	host    string        // addr without the port
	wake    chan struct{} // capacity 1: it may have become another one

	up        bool
	answered  time.Time // start of the last request that was answered
	failures  int       // failed requests since then
	known     learned
	warned    bool   // the log has it that nothing reports the replica's blocks
	sglang    bool   // it runs SGLang, by its last answer
	loadsOnly bool   // it is an SGLang without /metrics, so /v1/loads is read
	held      string // why it is passed over, "" = it is not
	closed    string // why its models are not read again, "" = they are
	scrapes
	due
}

// scrapes are what a replica's pages have shown since its join.
type scrapes struct {
	page  page // the last
	loads []Load
	shown []int // ranks
	stall stall
	empty bool    // the page before the last said that the KV cache is discarded
	start float64 // the start of the process, by the page at the join; 0: it does not say

	read   time.Time // when the page that loads is of was asked for; zero: no page was read
	unread string    // why later pages could not be read
}

// due is when a worker does what next.
type due struct {
	nextLearn time.Time
	nextLook  time.Time // the earliest, see lookEvery
	nextPage  time.Time // when /metrics is due, if only the models are due before; zero: now
	backoff   time.Duration
}

func newWorker(f *Fleet, addr string, o ReplicaOptions) *worker {
	return &worker{fleet: f, options: o, addr: addr, host: netip.MustParseAddrPort(addr).Addr().String(), wake: make(chan struct{}, 1)}
}

// run returns when no source lists the replica any more.
func (w *worker) run(ctx context.Context) {
	defer w.fleet.publishers.release(w)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			if !w.up || time.Now().Before(w.nextLook) {
				continue
			}
			w.nextLook, w.nextLearn, w.nextPage = time.Now().Add(lookEvery), time.Time{}, time.Time{}
		case <-timer.C:
		}
		var wait time.Duration
		if w.up {
			wait = w.refresh(ctx)
		} else {
			wait = w.join(ctx)
		}
		timer.Reset(wait)
	}
}

// join tries to learn a replica that is not up and returns the wait until the
// next step.
func (w *worker) join(ctx context.Context) time.Duration {
	select { // replicas that hang must not add up
	case w.fleet.slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	attempt, cancel := context.WithTimeout(ctx, learnTimeout)
	w.loads, w.shown, w.stall, w.read, w.unread, w.closed = nil, nil, stall{}, time.Time{}, "", ""
	l, err := w.learn(attempt, nil)
	cancel()
	<-w.fleet.slots
	if ctx.Err() != nil {
		return 0
	}
	if err != nil {
		w.send(ctx, notice{change: failed, reason: reasonOf(err), why: err.Error()})
		w.backoff = min(max(2*w.backoff, firstBackoff), maxBackoff)
		return w.backoff/2 + rand.N(w.backoff/2+1)
	}
	w.up, w.known, w.failures, w.backoff = true, l, 0, 0
	w.start, w.empty = w.page.start, w.page.discarded
	w.scheduleLearn()
	w.send(ctx, notice{change: joined, replica: w.replica()})
	return rand.N(w.fleet.now().ScrapeInterval) + 1 // spreads the fleet's scrapes over the interval
}

// refresh scrapes a replica that is up and returns the wait until the next
// step.
func (w *worker) refresh(ctx context.Context) time.Duration {
	if !time.Now().Before(w.nextLearn) && !w.relearn(ctx) {
		return 0
	}
	if w.relist(ctx) {
		w.send(ctx, notice{change: updated, replica: w.replica()})
	}
	if wait := time.Until(w.nextPage); wait > 0 {
		w.nextPage = time.Time{}
		return wait
	}
	began, sign := time.Now(), w.scrape
	if w.known.pageless {
		sign = w.health
	}
	err := w.attempt(ctx, sign)
	if err == nil {
		return w.scraped(ctx, began)
	}
	if ctx.Err() != nil {
		return 0
	}
	w.failures++
	if !w.dead() {
		asked := time.Now()
		if err := w.attempt(ctx, w.health); err == nil {
			w.answered, w.failures = asked, 0
			w.send(ctx, notice{change: updated, replica: w.replica()})
		} else if w.failures++; w.start == 0 && vacant(err) {
			w.start = another
		}
	}
	if ctx.Err() != nil {
		return 0
	}
	if w.dead() {
		w.leave(ctx, reasonOf(err), err)
		return 0
	}
	next := began.Add(w.fleet.now().ScrapeInterval)
	if end := w.answered.Add(w.fleet.now().DeadAfter); w.failures > 0 && end.Before(next) {
		next = end
	}
	return max(time.Until(next), time.Millisecond)
}

// scraped takes the sign of life that was asked for at began, which is a page if it has one.
func (w *worker) scraped(ctx context.Context, began time.Time) time.Duration {
	if w.replaced() {
		w.leave(ctx, reasonRestarted, errors.New("another process answers at the address"))
		return 0
	}
	if w.page.discarded && !w.empty {
		w.leave(ctx, reasonChanged, errors.New("it sleeps, and its caches are discarded"))
		return 0
	}
	w.answered, w.failures, w.empty = began, 0, w.page.discarded
	if size := w.page.blockSize; size != 0 && w.options.BlockSize == 0 && size != w.known.BlockSize {
		w.nextLearn = time.Time{}
	}
	w.send(ctx, notice{change: updated, replica: w.replica()})
	interval := w.fleet.now().ScrapeInterval
	if w.adapted() {
		w.nextPage = began.Add(interval)
		interval /= 2
	}
	return max(time.Until(began.Add(interval)), time.Millisecond)
}

// dead reports whether the replica has been silent for long enough. Two requests
// must have failed: a router that was itself stopped for a while sends requests
// before it drops its fleet.
func (w *worker) dead() bool {
	return w.failures >= 2 && time.Since(w.answered) >= w.fleet.now().DeadAfter
}

// attempt runs one request with the scrape timeout. For a replica that is up the
// request ends at the latest when the replica counts as gone, or after the
// minimum time of a request.
func (w *worker) attempt(ctx context.Context, request func(context.Context) error) error {
	o := w.fleet.now()
	limit := scrapeTimeout
	if w.up {
		limit = min(limit, time.Until(w.answered.Add(o.DeadAfter)))
	}
	ctx, cancel := context.WithTimeout(ctx, max(limit, 50*time.Millisecond))
	defer cancel()
	return request(ctx)
}

// scrape reads /metrics, or SGLang's /v1/loads, into w.page and w.loads.
func (w *worker) scrape(ctx context.Context) error {
	began := time.Now()
	w.page.ranks = maxRanks
	err := w.readPage(ctx)
	if err != nil {
		w.page.reset()
		w.missed(began, err)
		return err
	}
	previous := w.loads
	if loads := w.page.loads(began); len(loads) > 0 {
		w.loads, w.read, w.unread = loads, began, ""
	} else {
		w.missed(began, errForeign)
	}
	w.show()
	w.judge(began)
	if w.up && wentBack(previous, w.loads) {
		w.start = another
	}
	return nil
}

// errForeign is the reason why a page of an engine without series of its own tells no load.
var errForeign = errors.New("none of vLLM's series are there, as with --disable-log-stats")

// missed forgets the requests of the last page where it is older than a silent replica may be:
// nothing tells that they are still there.
func (w *worker) missed(now time.Time, err error) {
	if now.Sub(w.read) < w.fleet.now().DeadAfter {
		return
	}
	w.unread = err.Error()
	w.loads = slices.Clone(w.loads) // readers have the old ones
	for i := range w.loads {
		l := &w.loads[i]
		l.Running, l.Waiting, l.Deferred, l.KVUsage, l.LoRAs = 0, 0, 0, 0, nil
	}
}

// another stands for the start of a process that is not the one that joined.
const another = -1

// wentBack reports whether a counter is lower than before: another process.
func wentBack(before, after []Load) bool {
	for _, a := range after {
		for _, b := range before {
			if a.Rank == b.Rank && (a.PrefixQueries < b.PrefixQueries || a.TTFT.Requests < b.TTFT.Requests) {
				return true
			}
		}
	}
	return false
}

// replaced reports whether the process that answered is not the one that joined.
func (w *worker) replaced() bool {
	return w.start == another || w.start != 0 && w.page.start != 0 && w.page.start != w.start
}

// health requests /health; any answer below 500 is a sign of life (a server
// without that route answers 404 or 501). SGLang's generates a token, so it is asked for /ready.
func (w *worker) health(ctx context.Context) error {
	path := "/health"
	if w.sglang {
		path = "/ready"
	}
	_, err := w.get(ctx, path)
	if isRefused(err) {
		return nil
	}
	return err
}

// relearn learns an up replica again; false when it has left because of it.
func (w *worker) relearn(ctx context.Context) bool {
	var l learned
	err := w.attempt(ctx, func(ctx context.Context) (err error) {
		l, err = w.learn(ctx, &w.known)
		return err
	})
	if err != nil { // the scrapes decide whether it is gone
		w.scheduleLearn()
		return ctx.Err() == nil
	}
	if w.replaced() || !l.sameCache(w.known) {
		reason := reasonChanged
		if w.replaced() {
			reason = reasonRestarted
		}
		w.leave(ctx, reason, errors.New("its caches have changed"))
		return false
	}
	w.known = l
	w.scheduleLearn()
	return true
}

func (w *worker) scheduleLearn() {
	wait := learnEvery
	if w.known.incomplete {
		wait = min(wait, 2*w.fleet.now().ScrapeInterval)
	}
	w.nextLearn = time.Now().Add(wait)
}

func (w *worker) leave(ctx context.Context, reason string, err error) {
	w.up, w.backoff, w.loads = false, 0, nil
	w.fleet.publishers.release(w)
	w.send(ctx, notice{change: left, reason: reason, why: err.Error()})
}

func (w *worker) get(ctx context.Context, path string) ([]byte, error) {
	return w.fleet.client().do(ctx, http.MethodGet, w.addr, path, nil)
}

func (w *worker) send(ctx context.Context, n notice) {
	n.from = w
	select {
	case w.fleet.notices <- n:
	case <-ctx.Done():
	}
}

// replica makes the value for readers; the fleet's loop adds the join number.
func (w *worker) replica() *Replica {
	r := describe(w.addr, w.options)
	r.Ready, r.Held, r.Why = w.held == "", w.held != "", w.held
	r.Empty = w.page.discarded
	r.told, r.closed = len(w.options.Models) > 0, w.closed
	r.Reported = w.known.Reported
	r.Store = storeOf(w.options.SharedStore, r.Transfer.Connector)
	r.Load = w.loads
	if !w.known.pageless && w.unread != errForeign.Error() || w.known.Engine == "vllm" {
		r.unread = w.unread
	}
	r.Ranks, r.FirstRank = w.ranks()
	if r.Sidecar {
		r.Events = nil // they gave the ranks; the sidecar subscribes to them
	}
	return r
}

// describe returns the part of a replica that the configuration alone gives.
func describe(addr string, o ReplicaOptions) *Replica {
	role, _ := ParseRole(o.Role) // it is validated
	return &Replica{
		Addr:     addr,
		Reported: Reported{Models: configuredModels(o), Transfer: configuredTransfer(o), BlockSize: o.BlockSize},
		Configured: Configured{
			Name: o.Name, Tenant: o.Tenant, Role: role, HashSeed: o.HashSeed, NoEvents: o.NoEvents, Sidecar: o.Sidecar, KVReportFull: o.KVReportFull, Cache: o.Cache,
		},
	}
}
