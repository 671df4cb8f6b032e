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

	mu       sync.Mutex                   // guards the fields below; never held while readers wait
	evidence map[openai.Features]Evidence // of the features that differed
	dissent  map[string]Dissent           // by the replica's URL
}

// Evidence counts the comparisons in which a feature differed.
type Evidence struct {
	Position int       `json:"first_difference_at_token"` // of the first difference
	At       time.Time `json:"at"`                        // of the first difference
	Differs  int       `json:"differences"`
	By       []string  `json:"replicas"` // that agreed on other ids then, by their addresses
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

// confirm trusts the features that have never differed.
func (t *trust) confirm(f openai.Features) { t.trusted.Or(uint32(f)) }

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
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.evidence == nil {
		t.evidence = map[openai.Features]Evidence{}
	}
	for _, one := range openai.AllFeatures() {
		if blamed&one != 0 {
			e := t.evidence[one]
			e.differs(first)
			t.evidence[one] = e
		}
	}
	return blamed &^ openai.Features(t.demoted.Or(uint32(blamed)))
}

// featureSetting names what is demoted when one value of a request's settings differs, and
// its features do not.
const featureSetting = "setting"

// Demotion is a feature that is not computed here until the servers change, because it differed.
type Demotion struct {
	Model   string `json:"model"`
	Feature string `json:"feature"`
	Evidence
}

// Status is a model's status for operators.
type Status struct {
	Model   string
	Demoted []Demotion
	Dissent []Dissent
}

// Status reports every model, in no order.
func (l *Local) Status() []Status {
	var list []Status
	l.models.Range(func(_, v any) bool {
		m := v.(*localModel)
		s, t := Status{Model: m.name}, &m.trust
		t.mu.Lock()
		defer t.mu.Unlock()
		for _, f := range openai.AllFeatures() {
			if openai.Features(t.demoted.Load())&f != 0 {
				s.Demoted = append(s.Demoted, Demotion{m.name, f.String(), t.evidence[f]})
			}
		}
		t.settings.mu.Lock()
		defer t.settings.mu.Unlock()
		if e := t.settings.evidence; e.Differs > 0 {
			s.Demoted = append(s.Demoted, Demotion{m.name, featureSetting, e})
		}
		s.Dissent = slices.Collect(maps.Values(t.dissent))
		list = append(list, s)
		return true
	})
	return list
}
