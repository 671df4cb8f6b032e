package shortfall

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// When a replica is flagged.
const (
	// minWindow is the least time for which predictions are added up. Predictions count when a request is
	// placed and hits when the engine starts it, so it must be long against queueing.
	minWindow = time.Minute
	// leastTokens is the number of predicted tokens that a window must have: a few failed requests must not
	// decide. A window lasts until it has them.
	leastTokens = 8192
	// leastShare is the share of the predicted tokens that must be hit. Requests that fail or are served
	// elsewhere keep it below 1, and so do evictions while requests queue.
	leastShare = 0.5
	// badWindows is the number of successive bad windows that raise the flag.
	badWindows = 3
)

// Reading is a replica's counters at one moment, in tokens.
type Reading struct {
	Replica   string
	Joined    uint64  // a new value means a new replica
	Predicted float64 // cached prompt tokens of answered requests, as its events reported them, in total
	Hits      float64 // cached prompt tokens that it reports, in total
	Queries   float64 // prompt tokens that it reports to have looked up, in total

	// The comparison by request needs the fields below; without Page it is left out.
	Requests int64     // answered requests with predicted tokens, in total
	Heads    int64     // of these, those with another first block than the ones before them
	Open     float64   // predicted tokens of requests in flight
	Page     time.Time // when the hits were read
}

// since returns what was counted after another reading.
func (r *Reading) since(before Reading) sum {
	return sum{
		requests: int(r.Requests - before.Requests), heads: int(r.Heads - before.Heads),
		claimed: r.Predicted - before.Predicted, found: r.Hits - before.Hits, asked: r.Queries - before.Queries,
	}
}

// State is a Watch's state of a replica.
type State struct {
	Predicted, Hits float64 // tokens in the last complete window
	Shortfall       float64 // share of the predicted tokens that were not hit in it, 0 to 1
	Complete        bool    // a window is complete
	Flagged         bool
	Cause           Cause // of the flag
}

// Change is a flag raised or taken back.
type Change struct {
	Replica string
	State
}

// Watch compares readings. Make it with New.
type Watch struct {
	mu       sync.Mutex // guards replicas
	replicas map[string]*replica
	known    atomic.Pointer[map[string]*replica] // the same, for Curious: never changed
}

type replica struct {
	joined uint64
	since  time.Time
	from   Reading // at since
	bad    int     // windows in a row
	low    bool    // enough of them that the flag is raised
	State

	counters counters
	answers  answers

	curious atomic.Bool
	silent  atomic.Int64 // answers in a row without usage
	asked   atomic.Int64 // requests since the last answer for whose usage Curious has asked
}

// New returns a Watch without replicas.
func New() *Watch { return &Watch{replicas: map[string]*replica{}} }

// Look takes the readings of all replicas at now and removes replicas without a
// reading. It returns the flags that changed.
func (w *Watch) Look(now time.Time, all []Reading) (changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen, joined := map[string]bool{}, false
	for _, r := range all {
		seen[r.Replica] = true
		known := w.replicas[r.Replica]
		switch {
		case known == nil || known.joined != r.Joined:
			w.replicas[r.Replica] = &replica{joined: r.Joined, since: now, from: r}
			w.replicas[r.Replica].curious.Store(true)
			joined = true
		case r.Hits < known.from.Hits || r.Predicted < known.from.Predicted: // restarted
			known.since, known.from, known.answers.window = now, r, sum{}
			known.counters = counters{suspicion: suspicion{raised: known.counters.raised}}
		case w.check(known, now, r):
			changes = append(changes, Change{r.Replica, known.State})
		}
	}
	left := len(w.replicas) > len(seen)
	maps.DeleteFunc(w.replicas, func(name string, _ *replica) bool { return !seen[name] })
	if joined || left {
		known := maps.Clone(w.replicas)
		w.known.Store(&known)
	}
	return changes
}

// check closes the window if it is due, and reports whether the flag changed.
func (w *Watch) check(k *replica, now time.Time, r Reading) bool {
	if k.counters.look(now, r) && !k.answers.enough() {
		k.show(&k.counters.suspicion)
	}
	k.window(now, r)
	return k.settle()
}

// show makes what a suspicion has shown the replica's state.
func (k *replica) show(s *suspicion) {
	k.State.Predicted, k.State.Hits, k.Cause = s.shown.claimed, s.shown.found, s.shown.cause()
}

// settle sets the flag, by answers if there are enough of them, else by counters. It
// reports whether the flag changed.
func (k *replica) settle() bool {
	was, quick := k.Flagged, k.counters.raised
	if k.answers.enough() {
		quick = k.answers.raised
	}
	if k.Flagged = k.low || quick; !k.Flagged {
		k.Cause = CauseUnknown
	}
	k.curious.Store(k.answers.curious() || k.Flagged)
	return k.Flagged != was
}

// window closes the window if it is due: by answers if there are enough of them, else by counters.
// There, requests in flight count, because their hits do.
func (k *replica) window(now time.Time, r Reading) {
	if now.Sub(k.since) < minWindow {
		return
	}
	n, proves := k.answers.window, true
	full := n.requests >= doubtful
	if !full {
		n = r.since(k.from)
		proves = n.counts()
		if n.claimed += r.Open - k.from.Open; n.claimed < leastTokens {
			return
		}
		if k.answers.raised && !r.Page.IsZero() { // the flag goes on by counters
			k.counters = counters{suspicion: suspicion{raised: true}, noted: r, judged: r, at: now}
			k.answers.suspicion = suspicion{}
		}
	}
	k.since, k.from, k.answers.window, k.answers.full = now, r, sum{}, full
	k.State = State{Predicted: n.claimed, Hits: n.found, Shortfall: max(0, n.claimed-n.found) / max(1, n.claimed), Complete: true, Flagged: k.Flagged, Cause: k.Cause}
	if !proves || n.found >= leastShare*n.claimed {
		k.bad, k.low = 0, false
	} else if k.bad++; k.bad >= badWindows {
		k.low = true
	}
	if full && k.low {
		k.Cause = n.cause()
	}
}

// State returns the state of a replica.
func (w *Watch) State(name string) State {
	w.mu.Lock()
	defer w.mu.Unlock()
	if k := w.replicas[name]; k != nil {
		return k.State
	}
	return State{}
}

var (
	shortfallDesc = prometheus.NewDesc("warmroute_prediction_shortfall",
		"Share of predicted tokens that the replica did not find, over the last window.", []string{"replica"}, nil)
	suspectDesc = prometheus.NewDesc("warmroute_prediction_suspect",
		"1 while a replica counts as holding nothing, because its hits are far below its events.", []string{"replica"}, nil)
)

// Describe implements prometheus.Collector.
func (w *Watch) Describe(ch chan<- *prometheus.Desc) {
	ch <- shortfallDesc
	ch <- suspectDesc
}

// Collect implements prometheus.Collector.
func (w *Watch) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, k := range w.replicas {
		if !k.Complete && !k.Flagged {
			continue
		}
		suspect := 0.0
		if k.Flagged {
			suspect = 1
		}
		if k.Complete {
			ch <- prometheus.MustNewConstMetric(shortfallDesc, prometheus.GaugeValue, k.Shortfall, name)
		}
		ch <- prometheus.MustNewConstMetric(suspectDesc, prometheus.GaugeValue, suspect, name)
	}
}
