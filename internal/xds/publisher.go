package xds

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	cachev3 "github.com/envoyproxy/go-control-plane/pkg/cache/v3"
	"github.com/prometheus/client_golang/prometheus"

	"warmroute/envoy"
	"warmroute/index"
	"warmroute/internal/certs"
	"warmroute/internal/fleet"
)

const (
	// lookEvery is how often the fleet's snapshot is read.
	lookEvery = 50 * time.Millisecond
	// quiet is how long the fleet must stay the same before it is published, so
	// that many simultaneous joins are one update; patience bounds that wait.
	quiet    = 200 * time.Millisecond
	patience = time.Second
	// rewriteAfter is how long after a failure the files are written again.
	rewriteAfter = time.Second
	// stageLeast and stageMost bound the wait for Envoys between the steps of a
	// change of clusters. Envoy reads files within the least.
	stageLeast = 200 * time.Millisecond
	stageMost  = 3 * time.Second
)

// Fleet gives the replicas as an immutable snapshot.
type Fleet interface{ Snapshot() *fleet.Snapshot }

// Publisher sends Envoys the fleet; see the package comment. Make it
// with New.
type Publisher struct {
	fleet   Fleet
	log     *slog.Logger
	metrics *metrics
	acks    *acks
	cache   cachev3.SnapshotCache
	gated   atomic.Pointer[gated]

	mu       sync.Mutex // guards settings and notes
	settings Settings   // wanted
	notes    notes

	listener net.Listener  // taken by Listen, for Run; nil without an address
	certs    *certs.Source // nil without TLS

	// Only follow's goroutine reads the fields below.
	want
	progress
	now func() time.Time
}

// notes are problems, for people.
type notes struct {
	failure  string // why the newest state is not published
	unkept   string // why it is not on disk
	shared   string // who else writes there
	unserved string // why no Envoy is served
}

// want is the state that Envoys should receive.
type want struct {
	seen    *fleet.Snapshot // the last snapshot read
	learned bool
	wanted  state
	since   time.Time // since when wanted has its value
	first   time.Time // since when it differs from the target
}

// progress is how far they have received it.
type progress struct {
	target   state             // published, or about to be
	stages   []stage           // left to publish
	previous *stage            // published last
	at       time.Time         // and when
	written  map[string]string // version by file of At.State
	failed   time.Time         // when a file could not be written; zero: all are
	lock     *os.File          // held as long as this process alone writes to At.State; nil: it is not known to
}

// Settings are what Envoys receive, which may change while the router runs, and where, which may not.
type Settings struct {
	At      Options
	Envoy   envoy.Options
	Listing bool // Envoy answers GET /v1/models where there are several models
}

// state is the configuration for Envoys before it is rendered.
type state struct {
	fleet    envoy.Fleet
	settings Settings
}

func (s state) equal(t state) bool { return s.sameClusters(t) && s.fleet.Equal(t.fleet) }

// sameClusters reports whether both differ in endpoints at most.
func (s state) sameClusters(t state) bool {
	a, b := s.settings.Envoy, t.settings.Envoy
	return s.settings.Listing == t.settings.Listing && sameOptions(a, b) && s.fleet.SameClusters(t.fleet)
}

// New returns a publisher that has published nothing. Run publishes the state
// kept in s.At.State at once.
func New(s Settings, f Fleet, reg prometheus.Registerer, log *slog.Logger) *Publisher {
	p := &Publisher{settings: s, fleet: f, log: log, now: index.Now, cache: cachev3.NewSnapshotCache(true, oneSnapshot{}, nil)}
	p.metrics = newMetrics(reg, p)
	p.acks = newAcks(p.metrics, log)
	return p
}

// oneSnapshot gives all Envoys the same snapshot.
type oneSnapshot struct{}

const fleetNode = "fleet"

func (oneSnapshot) ID(*corev3.Node) string { return fleetNode }

// Set replaces the settings, except for At, and pings stay: another cluster in the place of the router's
// would end its streams, and with them requests in flight that fail without it.
func (p *Publisher) Set(s Settings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s.At, s.Envoy.Pinged = p.settings.At, p.settings.Envoy.Pings()
	p.settings = s
}

// wants returns the settings in force.
func (p *Publisher) wants() Settings {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.settings
}

// Notes lists problems with the updates to Envoys.
func (p *Publisher) Notes() []string {
	out := p.acks.notes()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, note := range []string{p.notes.failure, p.notes.unkept, p.notes.shared, p.notes.unserved} {
		if note != "" {
			out = append(out, note)
		}
	}
	return out
}

// Certificates returns the server's, nil without TLS.
func (p *Publisher) Certificates() *certs.Source { return p.certs }

// follow publishes until ctx ends.
func (p *Publisher) follow(ctx context.Context) error {
	p.restore()
	defer func() { _ = p.lock.Close() }()
	tick := time.Tick(lookEvery)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		p.look()
		p.step()
	}
}

// look computes the state that Envoys should receive now.
func (p *Publisher) look() {
	settings := p.wants()
	s := p.fleet.Snapshot()
	p.learned = p.learned || s.Settled
	if !p.learned || !settings.At.Enabled() {
		return
	}
	next := state{p.wanted.fleet, settings}
	if s != p.seen || settings.Listing != p.wanted.settings.Listing {
		p.seen = s
		next.fleet = Plan(s, settings.Listing)
		first := p.since.IsZero() // later, a replica more is no reason for another listener
		next.fleet.ReadsModel = p.wanted.fleet.ReadsModel || len(next.fleet.Groups) > 0 || first && len(next.fleet.Unread.Replicas) > 0
		if !next.fleet.ReadsModel {
			next.fleet.Unread = envoy.Group{}
		}
	}
	if next.equal(p.wanted) && !p.since.IsZero() {
		return
	}
	p.wanted, p.since = next, p.now()
}

// step publishes the stage that is due.
func (p *Publisher) step() {
	now := p.now()
	if len(p.stages) > 0 {
		if waited := now.Sub(p.at); waited >= stageMost || waited >= stageLeast && p.acks.pending() == 0 {
			p.advance()
		}
		return
	}
	if p.since.IsZero() || p.wanted.equal(p.target) {
		p.first = time.Time{}
		p.alone()
		p.rewrite()
		return
	}
	if p.first.IsZero() {
		p.first = now
	}
	if len(p.wanted.fleet.Replicas) == 0 || now.Sub(p.since) < quiet && now.Sub(p.first) < patience {
		return // an empty fleet serves no request: the Envoys' present state is no worse
	}
	p.first = time.Time{}
	if err := p.begin(p.wanted); err != nil {
		p.target = p.wanted // until the fleet or the settings change
		p.fail(err)
	}
}

// begin publishes the first stage from the target to s.
func (p *Publisher) begin(s state) error {
	live, files, err := p.render(s)
	if err != nil {
		return err
	}
	old := p.previous
	p.stages = []stage{{live, files}}
	if old != nil && !p.target.sameClusters(s) {
		p.stages = stages(*old, p.stages[0])
	}
	p.target = s
	p.advance()
	return nil
}

// advance publishes the next stage.
func (p *Publisher) advance() {
	s := p.stages[0]
	p.stages = p.stages[1:]
	p.at = p.now()
	if err := p.publish(s); err != nil {
		p.fail(err)
		return
	}
	p.setNote(&p.notes.failure, "")
	if len(p.stages) == 0 {
		p.metrics.versions.Inc()
		p.tell()
		p.keep()
	}
}

// tell logs what is published, and whether an Envoy is there to take it. An Envoy that
// connects later has a line of its own.
func (p *Publisher) tell() {
	up := 0
	for _, e := range p.target.fleet.Replicas {
		if !e.Down && (p.seen == nil || p.seen.Ready > 0) { // none is marked down if none answers
			up++
		}
	}
	envoys, text := p.acks.connected(), "Envoys receive the fleet"
	if envoys == 0 {
		text = "the fleet is ready for Envoys, and none is connected"
	}
	p.log.Info(text, "envoys", envoys, "replicas", up, "down", len(p.target.fleet.Replicas)-up, "model_clusters", len(p.target.fleet.Groups))
}

func (p *Publisher) fail(err error) {
	p.log.Error("Envoys do not receive a change", "error", err)
	p.setNote(&p.notes.failure, fmt.Sprintf("Envoys do not receive a change: %v", err))
}

// setNote sets one of the notes.
func (p *Publisher) setNote(note *string, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*note = text
}

// sameOptions compares the options that Envoy receives.
func sameOptions(a, b envoy.Options) bool {
	a.Fleet, b.Fleet = envoy.Fleet{}, envoy.Fleet{}
	return reflect.DeepEqual(a, b)
}

// render makes the resources of s for the stream, and for files if there is a
// folder for them.
func (p *Publisher) render(s state) (live, files *envoy.Resources, err error) {
	o := s.settings.Envoy
	o.Fleet = s.fleet
	if live, err = envoy.Render(o, envoy.ADS); err != nil || s.settings.At.State == "" {
		return live, nil, err
	}
	files, err = envoy.Render(o, envoy.Discovery(s.settings.At.State))
	return live, files, err
}

// names returns the names of the clusters of r.
func names(r *envoy.Resources) map[string]bool {
	out := map[string]bool{}
	for _, c := range r.Clusters {
		out[c.GetName()] = true
	}
	return out
}
