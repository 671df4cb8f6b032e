package tokens

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/render/openai"
)

// trust is the evidence about a model's features. Readers use atomics alone.
type trust struct {
	trusted  atomic.Uint32 // openai.Features that a replica confirmed
	demoted  atomic.Uint32 // openai.Features that differed, until the server changes
	settings settings

	mu       sync.Mutex // guards the fields below; never held while readers wait
	evidence map[openai.Features]*Evidence
	dissent  map[string]Dissent // by the replica's URL
}

// Evidence counts the comparisons of one feature.
type Evidence struct {
	Equal      int       // comparisons that were equal
	Unanswered int       // questions no replica answered
	Differs    int       // comparisons that were not equal
	Position   int       // first differing token of the first difference
	At         time.Time // of the first difference
	By         []string  // the replicas that agreed on other ids then, by their addresses
}

// differs counts a difference, of which the first is kept.
func (e *Evidence) differs(first Evidence) {
	if e.Differs++; e.Differs == 1 {
		e.At, e.Position, e.By = first.At, first.Position, first.By
	}
}

// all reports whether every feature may be used.
func (t *trust) all(f, unverified openai.Features) bool {
	return f&^(openai.Features(t.trusted.Load())|unverified) == 0 && f&openai.Features(t.demoted.Load()) == 0
}

// nothing reports whether no request can be used.
func (t *trust) nothing(unverified openai.Features) bool {
	return (openai.Features(t.trusted.Load())|unverified)&^openai.Features(t.demoted.Load()) == 0
}

// reset forgets everything: the server has changed.
func (t *trust) reset() {
	t.settings.reset()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trusted.Store(0)
	t.demoted.Store(0)
	t.evidence = nil
}

// note records an outcome for each of the features.
func (t *trust) note(f openai.Features, set func(*Evidence)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.evidence == nil {
		t.evidence = map[openai.Features]*Evidence{}
	}
	for _, one := range openai.AllFeatures() {
		if f&one == 0 {
			continue
		}
		if t.evidence[one] == nil {
			t.evidence[one] = &Evidence{}
		}
		set(t.evidence[one])
	}
}

// confirm trusts the features that have never differed.
func (t *trust) confirm(f openai.Features) {
	t.note(f, func(e *Evidence) { e.Equal++ })
	t.trusted.Or(uint32(f))
}

// demote ends the trust in the features to blame for a difference: the features
// other than the route that no replica has confirmed, or else all other than the
// route, or else the route. It returns the features demoted now.
func (t *trust) demote(f openai.Features, route openai.Features, online bool, first Evidence) openai.Features {
	blamed := f &^ route
	if !online {
		if unproven := f &^ openai.Features(t.trusted.Load()); unproven != 0 {
			blamed = unproven
		}
	}
	if blamed == 0 {
		blamed = route
	}
	t.note(blamed, func(e *Evidence) { e.differs(first) })
	return blamed &^ openai.Features(t.demoted.Or(uint32(blamed)))
}

// featureSetting names what is demoted when one value of a request's settings differs, and
// its features do not.
const featureSetting = "setting"

// The states of a feature.
const (
	Trusted    = "trusted"    // a replica confirmed it
	Unverified = "unverified" // no replica was compared with, or none answered
	Configured = "configured" // unverified, and used because the configuration requires it
	Demoted    = "demoted"    // it differed: not used until the servers change
)

// FeatureStatus is one line of the status for operators.
type FeatureStatus struct {
	Feature string
	State   string // Trusted, Unverified, Configured or Demoted
	Evidence
}

// Status is a model's status for operators.
type Status struct {
	Model    string
	Version  string // of its servers; "" when they differ or are not known
	Coded    string // the code that renders its chats in vLLM, "" if a template does
	Features []FeatureStatus
	Dissent  []Dissent // by address
}

// Status reports every model, in no order.
func (l *Local) Status() []Status {
	var list []Status
	l.models.Range(func(_, v any) bool {
		m := v.(*localModel)
		s := Status{Model: m.name, Version: *m.version.Load(), Coded: m.info.Code}
		m.trust.mu.Lock()
		defer m.trust.mu.Unlock()
		for _, f := range openai.AllFeatures() {
			line := FeatureStatus{Feature: f.String(), State: m.trust.state(f, l.set.Load().TrustUnverified)}
			if e := m.trust.evidence[f]; e != nil {
				line.Evidence = *e
			}
			s.Features = append(s.Features, line)
		}
		m.trust.settings.mu.Lock()
		defer m.trust.settings.mu.Unlock()
		if e := m.trust.settings.evidence; e.Differs > 0 {
			s.Features = append(s.Features, FeatureStatus{featureSetting, Demoted, e})
		}
		for _, url := range slices.Sorted(maps.Keys(m.trust.dissent)) {
			s.Dissent = append(s.Dissent, m.trust.dissent[url])
		}
		list = append(list, s)
		return true
	})
	return list
}

func (t *trust) state(f, unverified openai.Features) string {
	switch {
	case openai.Features(t.demoted.Load())&f != 0:
		return Demoted
	case openai.Features(t.trusted.Load())&f != 0:
		return Trusted
	case unverified&f != 0:
		return Configured
	}
	return Unverified
}
