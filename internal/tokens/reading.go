package tokens

import (
	"cmp"
	"context"
	"slices"

	"warmroute/render/openai"
)

// choose finds out which of two ways the servers use to read the model's files: by
// the tokenizer's file, or by its class. The first start-up conversation that the two
// encode differently decides, if one of them agrees with two replicas, or with the only one. If they do not answer, or neither
// way agrees, the file decides; choose tries again as the start-up check does. m.mu is held.
func (l *Local) choose(ctx context.Context, m *localModel, endpoints []Endpoint) {
	asLoaded := *m.renderer.Load()
	byClass, err := m.Renderer(ctx, *m.version.Load(), true)
	if err != nil {
		l.o.Log.Warn("the model's files can be read in one way only", "model", m.name, "err", err)
		m.chosen = true
		return
	}
	differed, answered := false, false
	for _, req := range probes(m.name) {
		ids, _, _, err := asLoaded.Prompts(l.probing(ctx, m, req))
		if err != nil {
			continue // not computed here
		}
		others, _, _, err := byClass.Prompts(l.probing(ctx, m, req))
		if err != nil {
			continue
		}
		if slices.EqualFunc(ids, others, slices.Equal) {
			continue
		}
		differed = true
		answer, err := l.ask(ctx, m, req, endpoints)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			continue
		}
		answered = true
		if _, equal := firstDifference(ids, answer.Prompts); equal {
			break
		}
		if _, equal := firstDifference(others, answer.Prompts); equal {
			m.renderer.Store(&byClass)
			l.o.Log.Info("the replicas encode by the tokenizer's class, not by its file", "model", m.name)
			break
		}
	}
	m.chosen = answered || !differed
}

// ask requests the ids of a start-up conversation that two replicas return, or the only one.
func (l *Local) ask(ctx context.Context, m *localModel, req *openai.Request, endpoints []Endpoint) (agreed Result, err error) {
	var got []Result
	err = ErrNone
	failed := l.answers(ctx, m, req, endpoints, func(r Result) (more bool) {
		if len(endpoints) == 1 || slices.ContainsFunc(got, func(o Result) bool { return equalPrompts(o.Prompts, r.Prompts) }) {
			agreed, err = r, nil
		}
		got = append(got, r)
		return err != nil
	})
	return agreed, cmp.Or(failed, err)
}
