package tokens

import (
	"context"
	"slices"

	"warmroute/render/openai"
)

// choose finds out which of two ways the servers use to read the model's files: by
// the tokenizer's file, or by its class. The first start-up conversation that the two
// encode differently decides, if one of them agrees with a replica. If no replica answers, or neither agrees, the file
// decides; choose tries again as the start-up check does. m.mu is held.
func (l *Local) choose(ctx context.Context, m *localModel, endpoints []Endpoint) {
	asLoaded := *m.renderer.Load()
	byClass, err := m.Renderer(ctx, *m.version.Load(), true)
	if err != nil {
		l.o.Log.Warn("the model's files can be read in one way only", "model", m.name, "err", err)
		m.chosen = true
		return
	}
	differed, answered := false, false
	for _, p := range probes(m.name) {
		req, err := openai.Parse(p.route, p.body)
		if err != nil {
			continue // reported by probe
		}
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
		if equalIDs(ids, answer.Prompts) {
			break
		}
		if equalIDs(others, answer.Prompts) {
			m.renderer.Store(&byClass)
			l.o.Log.Info("the replicas encode by the tokenizer's class, not by its file", "model", m.name)
			break
		}
	}
	m.chosen = answered || !differed
}

// ask requests the ids of a start-up conversation from a replica.
func (l *Local) ask(ctx context.Context, m *localModel, req *openai.Request, endpoints []Endpoint) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return l.o.Reference.Ask(ctx, req, m.name, endpoints)
}

func equalIDs(ids [][]uint32, prompts []Prompt) bool {
	return slices.EqualFunc(ids, prompts, func(a []uint32, b Prompt) bool { return slices.Equal(a, b.Tokens) })
}
