package tokens

import (
	"context"
	"errors"
	"slices"

	"warmroute/internal/chat"
	"warmroute/internal/openai"
)

// check compiles a model's template for the version its servers run, and probes
// what is not verified. It does nothing when there is nothing to do.
func (l *Local) check(ctx context.Context, m *localModel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	endpoints := l.o.Endpoints(m.name)
	version := commonVersion(endpoints)
	m.limit.Store(int64(shortest(endpoints)))
	if m.renderer.Load() == nil || version != m.version {
		o := m.Chat
		o.Version = version
		r, err := chat.New(o)
		if err != nil {
			l.o.Log.Error("chat template does not compile any more", "model", m.name, "err", err)
			return
		}
		m.trust.reset()
		m.encoder.Store(&m.Encoder)
		m.renderer.Store(r)
		m.version, m.checked, m.chosen = version, false, m.Alternative == nil
	}
	if m.checked || l.o.Reference == nil || len(endpoints) == 0 || len(m.renderer.Load().Moments(l.o.Now())) > 1 {
		return // near midnight a replica may be on another day than the router
	}
	if !m.chosen {
		l.choose(ctx, m, endpoints)
	}
	m.checked = l.probe(ctx, m, endpoints)
}

// commonVersion is the version that all servers run; "" when they differ or one is
// unknown, and rendering must then be right for any.
func commonVersion(endpoints []Endpoint) string {
	if len(endpoints) == 0 {
		return ""
	}
	for _, e := range endpoints {
		if e.Version != endpoints[0].Version {
			return ""
		}
	}
	return endpoints[0].Version
}

// shortest is the smallest known context of the servers; 0: none is known.
func shortest(endpoints []Endpoint) int {
	limit := 0
	for _, e := range endpoints {
		if e.MaxLen > 0 && (limit == 0 || e.MaxLen < limit) {
			limit = e.MaxLen
		}
	}
	return limit
}

// probe compares the start-up conversations, simple ones first, so that a
// difference can be blamed on what the simpler ones did not use. It reports
// whether a replica answered at all: if not, it is tried again later.
func (l *Local) probe(ctx context.Context, m *localModel, endpoints []Endpoint) (answered bool) {
	for _, p := range probes(m.name) {
		req, err := openai.Parse(p.route, p.body)
		if err != nil {
			l.o.Log.Error("a start-up probe cannot be read", "model", m.name, "err", err)
			continue
		}
		ids, features, err := l.compute(m, *m.encoder.Load(), m.renderer.Load(), req, l.o.Now(), new([]uint32))
		if err != nil || m.trust.state(features, 0) == Demoted {
			continue // not computed here, or known to be wrong
		}
		switch l.verify(ctx, m, req, ids, features, endpoints, false) {
		case Equal, Differs:
			answered = true
		}
		if ctx.Err() != nil {
			return false
		}
	}
	l.o.Log.Info("in-process tokens verified", "model", m.name, "version", m.version, "answered", answered,
		"trusted", chat.Features(m.trust.trusted.Load()&^m.trust.demoted.Load()).String(),
		"demoted", chat.Features(m.trust.demoted.Load()).String())
	return answered
}

// compare checks one sample of the traffic.
func (l *Local) compare(ctx context.Context, s sample) {
	if req, err := openai.Parse(s.route, s.body); err == nil {
		endpoints := l.o.Reference.o.Endpoints(Served{s.model.name, s.tenant})
		l.verify(ctx, s.model, req, s.ids, s.features, endpoints, true)
	}
}

// verify sends the same request to a replica and confirms or demotes the features.
func (l *Local) verify(ctx context.Context, m *localModel, req *openai.Request, ids [][]uint32, features chat.Features, endpoints []Endpoint, online bool) string {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	result, err := l.o.Reference.Ask(ctx, req, m.name, endpoints)
	outcome := Unanswered
	switch position, equal := firstDifference(ids, result.Prompts); {
	case err != nil:
		m.trust.note(features, func(e *Evidence) { e.Unanswered++ })
		if !errors.Is(err, ErrNone) && ctx.Err() == nil {
			l.o.Log.Debug("no replica answered a check", "model", m.name, "err", err)
		}
	case equal:
		outcome = Equal
		m.trust.confirm(features)
	default:
		outcome = Differs
		l.demote(m, features, chat.RouteFeature(req.Route), online, position, result.Source)
	}
	if l.o.Hooks.Checked != nil {
		l.o.Hooks.Checked(m.name, outcome)
	}
	return outcome
}

func (l *Local) demote(m *localModel, features, route chat.Features, online bool, position int, reference string) {
	demoted := m.trust.demote(features, route, online, l.o.Now(), position)
	for _, f := range chat.AllFeatures() {
		if demoted&f == 0 {
			continue
		}
		l.o.Log.Warn("in-process tokens differ from vLLM's; this feature goes to a replica from now on",
			"model", m.name, "feature", f.String(), "request_features", features.String(),
			"first_difference_at_token", position, "reference", reference, "sampled", online)
		if l.o.Hooks.Demoted != nil {
			l.o.Hooks.Demoted(m.name, f.String())
		}
	}
}

// firstDifference is the position of the first token that differs, counted over
// all prompts.
func firstDifference(ids [][]uint32, prompts []Prompt) (position int, equal bool) {
	for i, mine := range ids {
		if i >= len(prompts) {
			return position, false
		}
		theirs := prompts[i].Tokens
		if !slices.Equal(mine, theirs) {
			for j := 0; j < len(mine) && j < len(theirs) && mine[j] == theirs[j]; j++ {
				position++
			}
			return position, false
		}
		position += len(mine)
	}
	return position, len(ids) == len(prompts)
}
