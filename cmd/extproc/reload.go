package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs"
	"warmroute/internal/config"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/prefill"
	"warmroute/internal/xds"
)

// reloads is the state of the configuration file since the start.
type reloads struct {
	mu      sync.Mutex
	running Config   // the configuration in force
	waiting []string // fields of the file that are not in force
	refused error    // the reason why the file is not used
	unread  error    // the reason why the files of fleet.tls are not used

	published [sha256.Size]byte // the sum of fleet.tls and its files when publish used them last

	total *prometheus.CounterVec
	ok    prometheus.Gauge
	info  *prometheus.GaugeVec
}

func newReloads(c Config, reg prometheus.Registerer) *reloads {
	l := &reloads{
		running: c,
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_config_reloads_total", Help: "Changes of the file: applied, needs_restart (partly applied), refused."}, []string{"result"}),
		ok: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "warmroute_config_last_reload_successful", Help: "1 if the current file is in use; 0 if it was refused."}),
		info: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "warmroute_config_info", Help: "1; the version is a hash of the configuration."}, []string{"version"}),
	}
	reg.MustRegister(l.total, l.ok, l.info)
	l.taken(c)
	return l
}

// taken records that running is in force, and returns its version. l.mu is held, or
// l is not shared yet.
func (l *reloads) taken(running Config) string {
	l.running = running
	l.ok.Set(1)
	l.info.Reset()
	v := version(running)
	l.info.WithLabelValues(v).Set(1)
	return v
}

// version returns a hash of a configuration's effective values.
func version(c Config) string {
	text, err := config.Print(c)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%016x", xxhash.Sum64(text))
}

// inForce returns the configuration in force.
func (l *reloads) inForce() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// publish sends the settings in force, with files as they are now, to p if fleet.tls or its files
// have changed. It and apply take turns, so that no older settings follow newer ones.
func (l *reloads) publish(p *xds.Publisher) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.running.Fleet.HTTP.TLS
	if !of.Enabled {
		l.unread, l.published = nil, [sha256.Size]byte{}
		return nil
	}
	sum := of.Sum()
	if sum == l.published {
		return l.unread
	}
	l.published = sum
	s, err := l.running.xdsSettings()
	if err == nil {
		if _, err = certs.Client(of); err != nil {
			err = fmt.Errorf("fleet.tls.%w", err)
		}
	}
	if err == nil {
		p.Set(s)
	}
	l.unread = err
	return err
}

// unreadTLS says why Envoys keep former certificates for replicas.
func (l *reloads) unreadTLS() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.unread == nil {
		return nil
	}
	return []string{l.unread.Error() + ": Envoys keep the previous files"}
}

// notes lists the problems of the file, for people.
func (l *reloads) notes() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused != nil {
		out = append(out, "the configuration file is refused, the previous one stays in use: "+strings.ReplaceAll(l.refused.Error(), "\n", "; "))
	}
	if len(l.waiting) > 0 {
		out = append(out, "needs a restart: "+strings.Join(l.waiting, ", "))
	}
	return out
}

// apply applies the parts of a new configuration that can change at run time, and
// reports the others.
func (r *router) apply(c Config) error {
	l := r.reloads
	before := l.inForce()
	if before.sources() == nil && c.sources() != nil {
		return errors.New("fleet: there is no source of replicas any more; a fleet that may be empty is named under fleet.dns or kubernetes")
	}
	next := config.Live(before, c)
	var renders, legs *http.Client // for requests of token ids, and of prefills; nil: as before
	if next.Fleet.HTTP != before.Fleet.HTTP {
		var err error
		if renders, err = next.Fleet.HTTP.Client(renderConns); err != nil {
			return err
		}
		if legs, err = next.Fleet.HTTP.Client(prefill.Connections); err != nil {
			return err
		}
	}
	published, err := next.xdsSettings()
	if err != nil {
		return err
	}
	if err := r.replicas.fleet.Set(next.Fleet); err != nil {
		return err
	}
	r.ids.remote.Set(renders, next.Filter.TokenBudget)
	r.ids.set(next.Tokens)
	if p := next.policies(); !reflect.DeepEqual(p, before.policies()) { // otherwise the patches of the run time stay
		change, err := r.decisions.book.Replace(p)
		if err != nil {
			return err
		}
		r.decisions.audit(change, "configuration file")
	}
	if err := r.dial.Set(next.Log); err != nil {
		return err
	}
	r.envoys.set(next, legs)
	if next.Filter.trial() != before.Filter.trial() {
		r.outcomes.compared.Restart()
	}
	r.decisions.decider.SetRanked(next.Filter.named())
	r.outcomes.usage.Set(next.usageShare())
	waiting := config.Differences(before, c, config.AtRestart)
	if printed := config.Differences(before, c, config.AtEnvoy); len(printed) > 0 {
		r.log.Warn("Envoy reads these from its bootstrap: print it again with `extproc envoy-config` and restart Envoy", "fields", strings.Join(printed, ", "))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r.xds.Set(published)
	l.waiting, l.refused = waiting, nil
	v := l.taken(next)
	if len(waiting) > 0 {
		l.total.WithLabelValues("needs_restart").Inc()
		r.log.Warn("configuration reloaded, but not all of it", "needs_a_restart", strings.Join(waiting, ", "), "replicas", len(c.Fleet.Replicas))
		return nil
	}
	l.total.WithLabelValues("applied").Inc()
	r.log.Info("configuration reloaded", "replicas", len(c.Fleet.Replicas), "version", v)
	return nil
}

func (r *router) refuse(err error) {
	l := r.reloads
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = err
	l.ok.Set(0)
	l.total.WithLabelValues("refused").Inc()
	r.log.Error("configuration refused, the previous one stays in use", "error", err)
}

// unservedModels names the models that no replica can serve now, and the replicas whose
// models are not known.
func unservedModels(s *fleet.Snapshot) (out []string) {
	if s.Ready == 0 {
		return []string{fmt.Sprintf("no replica is ready, of %d", len(s.Replicas))}
	}
	for _, m := range s.Models() {
		if m.Ready == 0 {
			out = append(out, fmt.Sprintf("no replica of model %q is ready", m.Base))
		}
	}
	for _, r := range s.Replicas {
		if !r.Ready && len(r.Models) == 0 { // one stands for all
			return append(out, fmt.Sprintf("replica %s has not answered yet, so its models are not known: requests for models that no other replica serves are sent there", r.Addr))
		}
	}
	return out
}

// mostUnable bounds the replicas that unableReplicas names.
const mostUnable = 8

// unableReplicas names the replicas that are up and passed over, and those whose ranks no
// request names.
func (d *decisions) unableReplicas(s *fleet.Snapshot) (out []string) {
	for _, rep := range s.Replicas {
		switch {
		case len(out) >= mostUnable:
			return append(out, "and further replicas")
		case rep.Held:
			out = append(out, fmt.Sprintf("replica %s is passed over: %s", rep.Addr, rep.Why))
		case rep.Ready && d.decider.Unasked(rep):
			out = append(out, fmt.Sprintf("replica %s gets no x-data-parallel-rank: it has refused one, or does not say how it counts ranks", rep.Addr))
		}
		if n := d.failures(s, rep); n > 0 && rep.Ready {
			out = append(out, fmt.Sprintf("replica %s is a last resort: its last %d requests have failed, by a status of 5xx or a broken connection", rep.Addr, n))
		}
		if refused := d.decider.Refusing(s, rep); refused != "" {
			out = append(out, fmt.Sprintf("replica %s has served nothing lately, and others of its model have: it answered %s", rep.Addr, refused))
		}
	}
	return out
}

// failures returns how many requests of a replica's worst rank have failed in a row, if they are
// more than few.
func (d *decisions) failures(s *fleet.Snapshot, rep *fleet.Replica) (n int) {
	d.replicas.account(s, rep.Addr, func(a *load.Account) { n = max(n, a.LastResort()) })
	return n
}

// replicaReady fails readiness without a replica, if the configuration says so.
func (r *router) replicaReady() error {
	if o := r.reloads.inForce().Filter; o.Picker && o.ReadyNeedsReplica && !r.replicas.fleet.Snapshot().Serves() {
		return errors.New("no replica is ready")
	}
	return nil
}
