package shortfall

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Options states when a replica is flagged. Zero values are the defaults.
type Options struct {
	// Window is the least time predictions are added up for before they are
	// complete; default 1 min. Predictions count when a request is placed and hits
	// when the engine starts it, so it must be long against queueing.
	Window time.Duration
	// Least is how many predicted tokens a window must have; default 8192: a
	// few requests that failed must not decide. A window lasts until it has them.
	Least float64
	// Share is the share of the predicted tokens that must be hit; default 0.5.
	// Requests that fail or are served elsewhere keep it below 1, evictions
	// while requests queue as well.
	Share float64
	// Windows is how many bad windows in a row raise the flag; default 3.
	Windows int
}

func (o Options) withDefaults() Options {
	if o.Window == 0 {
		o.Window = time.Minute
	}
	if o.Least == 0 {
		o.Least = 8192
	}
	if o.Share == 0 {
		o.Share = 0.5
	}
	if o.Windows == 0 {
		o.Windows = 3
	}
	return o
}

// Reading is a replica's counters at one moment, in tokens.
type Reading struct {
	Replica   string
	Joined    uint64  // a new value means a new replica
	Predicted float64 // cached prompt tokens predicted, in all
	Hits      float64 // cached prompt tokens it reports, in all
}

// State is a Watch's state of a replica.
type State struct {
	Predicted, Hits float64 // tokens in the last complete window
	Shortfall       float64 // share of the predicted tokens that were not hit in it, 0 to 1
	Complete        bool    // there is a complete window
	Flagged         bool
}

// Change is a flag raised or taken back.
type Change struct {
	Replica string
	State
}

// Watch compares readings. Make it with New.
type Watch struct {
	o        Options
	mu       sync.Mutex // guards replicas
	replicas map[string]*replica
}

type replica struct {
	joined uint64
	since  time.Time
	from   Reading // at since
	bad    int     // windows in a row
	State
}

// New returns a Watch without replicas.
func New(o Options) *Watch {
	return &Watch{o: o.withDefaults(), replicas: map[string]*replica{}}
}

// Look takes the readings of all replicas at now and removes replicas without a
// reading. It returns the flags that changed.
func (w *Watch) Look(now time.Time, all []Reading) (changes []Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := map[string]bool{}
	for _, r := range all {
		seen[r.Replica] = true
		known := w.replicas[r.Replica]
		switch {
		case known == nil || known.joined != r.Joined:
			w.replicas[r.Replica] = &replica{joined: r.Joined, since: now, from: r}
		case r.Hits < known.from.Hits || r.Predicted < known.from.Predicted: // restarted
			known.since, known.from = now, r
		case w.check(known, now, r):
			changes = append(changes, Change{r.Replica, known.State})
		}
	}
	for name := range w.replicas {
		if !seen[name] {
			delete(w.replicas, name)
		}
	}
	return changes
}

// check closes the window if it is due, and reports whether the flag changed.
func (w *Watch) check(k *replica, now time.Time, r Reading) bool {
	predicted, hits := r.Predicted-k.from.Predicted, r.Hits-k.from.Hits
	if now.Sub(k.since) < w.o.Window || predicted < w.o.Least {
		return false
	}
	k.since, k.from = now, r
	was := k.Flagged
	k.State = State{Predicted: predicted, Hits: hits, Shortfall: max(0, 1-hits/predicted), Complete: true, Flagged: was}
	if hits >= w.o.Share*predicted {
		k.bad, k.Flagged = 0, false
	} else if k.bad++; k.bad >= w.o.Windows {
		k.Flagged = true
	}
	return k.Flagged != was
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
		"Share of the tokens predicted to be cached that the replica did not find in its cache, over the last complete window.", []string{"replica"}, nil)
	suspectDesc = prometheus.NewDesc("warmroute_prediction_suspect",
		"1 while a replica's hits have been far below the predictions for several windows: its cache differs from its events, or the router reads them wrongly.", []string{"replica"}, nil)
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
		if !k.Complete {
			continue
		}
		suspect := 0.0
		if k.Flagged {
			suspect = 1
		}
		ch <- prometheus.MustNewConstMetric(shortfallDesc, prometheus.GaugeValue, k.Shortfall, name)
		ch <- prometheus.MustNewConstMetric(suspectDesc, prometheus.GaugeValue, suspect, name)
	}
}
