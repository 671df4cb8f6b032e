package tokens

import (
	"context"
	"slices"

	"warmroute/render/openai"
)

// choose finds out which of two ways the servers use to read the model's files. The
// first start-up conversation that the two encode differently decides, if one of
// them agrees with a replica. If no replica answers, or neither agrees, the file
// decides; choose tries again as the start-up check does. m.mu is held.
func (l *Local) choose(ctx context.Context, m *localModel, endpoints []Endpoint) {
	if m.other == nil {
		other, err := m.Alternative()
		if err != nil {
			l.o.Log.Warn("the model's files can be read in one way only", "model", m.name, "err", err)
			m.chosen = true
			return
		}
		m.other = other
	}
	differed, answered := false, false
	for _, p := range probes(m.name) {
		req, err := openai.Parse(p.route, p.body)
		if err != nil {
			continue // reported by probe
		}
		asLoaded, _, err := l.probing(ctx, m, m.Encoder, p.body).Prompts(req, l.o.Now(), new([]uint32))
		if err != nil {
			continue // not computed here
		}
		byClass, _, err := l.probing(ctx, m, m.other, p.body).Prompts(req, l.o.Now(), new([]uint32))
		if err != nil {
			continue
		}
		if slices.EqualFunc(asLoaded, byClass, slices.Equal) {
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
		if equalIDs(asLoaded, answer.Prompts) {
			break
		}
		if equalIDs(byClass, answer.Prompts) {
			other := m.other
			m.encoder.Store(&other)
			l.o.Log.Info("the replicas encode by the tokenizer's class, not by its file", "model", m.name)
			break
		}
	}
	if answered || !differed {
		m.chosen, m.other = true, nil
	}
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
