package tokens

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// check compiles a model's template for the version of its servers, and probes the
// features that are not verified, if any. With due, a round of probes waits until it is
// due. m.mu is held.
func (l *Local) check(ctx context.Context, m *localModel, due bool) {
	all := l.o.Endpoints(m.name)
	longest, cut := lengths(all)
	m.limit.Store(int64(longest))
	m.cut.Store(int64(cut))
	l.forget(m, func(url string) bool { return !slices.ContainsFunc(all, func(e Endpoint) bool { return e.URL == url }) })
	endpoints := ruling(all)
	version := commonVersion(endpoints)
	if len(endpoints) > 1 && m.alone.Swap(false) { // what one replica said when it was the only one
		l.restart(m)
		m.checked, m.lost, m.next = false, 0, time.Time{}
	}
	if m.renderer.Load() == nil || version != *m.version.Load() {
		m.busy(phaseCompiling, l.o.Now())
		r, err := m.Renderer(ctx, version, false)
		if err != nil {
			if ctx.Err() == nil {
				l.o.Log.Error("chat template does not compile any more", "model", m.name, "err", err)
			}
			return
		}
		l.restart(m)
		m.renderer.Store(&r)
		m.version.Store(&version)
		m.rounds = rounds{chosen: !m.info.ByClass}
	}
	if m.checked || l.o.Reference == nil || len(endpoints) == 0 || len((*m.renderer.Load()).Moments(l.o.Wall())) > 1 {
		return // near midnight a replica may be on another day than the router
	}
	if due && l.o.Now().Before(m.next) {
		return
	}
	if !m.chosen {
		m.busy(phaseReading, l.o.Now())
		l.choose(ctx, m, endpoints)
	}
	m.busy(phaseComparing, l.o.Now())
	if m.checked = l.probe(ctx, m, endpoints); !m.checked {
		m.postpone(l.o.Now(), l.o.CheckEvery)
	}
}

// probe compares the start-up conversations, simple ones first, so that a difference
// shows a feature that simpler ones did not use. It reports whether a replica answered:
// if none did, or mostLost answers were late or cost more work than their budget, it is
// tried again later.
func (l *Local) probe(ctx context.Context, m *localModel, endpoints []Endpoint) (answered bool) {
	lost := 0
	for _, req := range probes(m.name) {
		ids, features, setting, err := (*m.renderer.Load()).Prompts(l.probing(ctx, m, req))
		if work.Is(err) {
			if lost++; lost == mostLost {
				l.o.Log.Warn("start-up check ended: the model's template or tokenizer costs too much work", "model", m.name, "err", err)
				return false
			}
		}
		if err != nil || openai.Features(m.trust.demoted.Load())&features != 0 {
			continue // not computed here, or known to be wrong
		}
		outcome, err := l.verify(ctx, m, computed{req: req, by: m.renderer.Load(), ids: ids, features: features, setting: setting}, endpoints)
		answered = answered || outcome != Unanswered
		if errors.Is(err, context.DeadlineExceeded) {
			lost++
		}
		if ctx.Err() != nil || lost == mostLost {
			return false
		}
	}
	if !answered {
		l.o.Log.Debug("no replica answered a start-up check", "model", m.name)
		return false
	}
	l.tell(m)
	return true
}

// tell logs where the ids of a model's requests come from after a check, by feature. An
// attribute without features is left out.
func (l *Local) tell(m *localModel) {
	differed := openai.Features(m.trust.demoted.Load())
	here := (openai.Features(m.trust.trusted.Load()) | l.unverified()) &^ differed
	var rest openai.Features
	for _, f := range openai.AllFeatures() {
		rest |= f &^ here &^ differed
	}
	attrs := []any{"model", m.name, "version", *m.version.Load()}
	for _, list := range []struct {
		name     string
		features openai.Features
	}{{"computed_here", here}, {"differed", differed}, {"not_compared", rest}} {
		if list.features != 0 {
			attrs = append(attrs, list.name, strings.ReplaceAll(list.features.String(), "+", ", "))
		}
	}
	text := "in-process tokens verified"
	if differed != 0 {
		text = "in-process tokens verified in part; replicas compute the ids of the other features"
	}
	l.o.Log.Info(text, attrs...)
}

// probing returns the job of a start-up conversation.
func (l *Local) probing(ctx context.Context, m *localModel, req *openai.Request) render.Job {
	return render.Job{Request: req, Now: l.o.Wall(), Work: work.New(ctx, l.o.Work, len(req.Body())), Fits: m.mayServe, Room: new([]uint32)}
}

// compare checks one sample of the traffic, unless it was computed for a former version.
func (l *Local) compare(ctx context.Context, s sample) {
	if s.model.renderer.Load() != s.by {
		return
	}
	if req, err := openai.Parse(s.route, s.body); err == nil {
		endpoints := peers(l.o.Reference.o.Endpoints(Served{Model: s.model.name, Tenant: s.tenant, Subset: s.subset}))
		_, _ = l.verify(ctx, s.model, computed{req, s.by, s.ids, s.features, s.setting, true}, endpoints)
	}
}

// computed is a request with its ids as computed here.
type computed struct {
	req      *openai.Request
	by       *Renderer // of the model, when the ids were computed
	ids      [][]uint32
	features openai.Features
	setting  uint64
	sampled  bool // from the traffic, not a start-up conversation
}

// verify sends the same request to a replica and confirms the features, or demotes them if two
// replicas return other ids, or the only one, and none these. It returns the error of a question without an answer.
func (l *Local) verify(ctx context.Context, m *localModel, c computed, endpoints []Endpoint) (string, error) {
	outcome, position := Unanswered, 0
	var others []Result // ids that differ
	err := l.answers(ctx, m, c.req, endpoints, func(r Result) (more bool) {
		at, equal := firstDifference(c.ids, r.Prompts)
		if equal {
			outcome = Equal
			l.forget(m, func(url string) bool { return url == r.by })
			return false
		}
		if outcome != Differs {
			outcome, position = Differs, at
		}
		same := slices.IndexFunc(others, func(o Result) bool { return equalPrompts(o.Prompts, r.Prompts) })
		if same >= 0 {
			others = others[same : same+1]
		}
		others = append(others, r)
		return same < 0
	})
	if m.renderer.Load() != c.by { // the servers changed meanwhile: the answers say nothing of the new ones
		return Unanswered, err
	}
	alone := len(others) == 1 && len(ruling(l.o.Endpoints(m.name))) == 1
	switch {
	case outcome == Differs && (alone || len(others) > 1):
		if alone {
			m.alone.Store(true)
		}
		l.demote(m, c, position, others)
	default:
		for _, r := range others {
			l.dissents(m, c, r, outcome == Equal)
		}
	}
	switch outcome {
	case Equal:
		m.trust.confirm(c.features)
		m.trust.settings.set(c.setting, settingEqual, l.o.Now())
	case Unanswered:
		if !errors.Is(err, ErrNone) && ctx.Err() == nil {
			l.o.Log.Debug("no replica answered a check", "model", m.name, "err", err)
		}
	}
	if l.o.Hooks.Checked != nil {
		l.o.Hooks.Checked(m.name, outcome)
	}
	return outcome, err
}

func (l *Local) demote(m *localModel, c computed, position int, by []Result) {
	first := Evidence{At: l.o.Now(), Position: position}
	for i := range by {
		first.By = append(first.By, address(by[i].by))
	}
	if !m.trust.settings.equal(c.setting, first.At) && m.trust.all(c.features, 0) {
		l.demoteSetting(m, c, first)
		return
	}
	demoted := m.trust.demote(c.features, c.req.Route.Feature(), c.sampled, first)
	for _, f := range openai.AllFeatures() {
		if demoted&f == 0 {
			continue
		}
		l.o.Log.Warn("in-process tokens differ from vLLM's; this feature goes to a replica from now on",
			"model", m.name, "feature", f.String(), "request_features", c.features.String(),
			"first_difference_at_token", position, "reference", by[0].Source, "replicas", strings.Join(first.By, ", "), "sampled", c.sampled)
		if l.o.Hooks.Demoted != nil {
			l.o.Hooks.Demoted(m.name, f.String())
		}
	}
}

// demoteSetting ends the use of a setting alone: its features are right with others.
func (l *Local) demoteSetting(m *localModel, c computed, first Evidence) {
	if m.trust.settings.differs(c.setting, first) { // clients choose settings: one line stands for all
		l.o.Log.Warn("in-process tokens differ from vLLM's for one value of a setting, as for a reasoning effort or a template's kwarg; requests with that value go to a replica from now on: do tokens.models and the servers' flags agree?",
			"model", m.name, "request_features", c.features.String(), "first_difference_at_token", first.Position, "replicas", strings.Join(first.By, ", "))
	}
	if l.o.Hooks.Demoted != nil {
		l.o.Hooks.Demoted(m.name, featureSetting)
	}
}

// firstDifference returns the position of the first token that differs, counted over
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
