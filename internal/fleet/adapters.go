package fleet

import (
	"context"
	"net/http"
	"slices"
	"time"
)

// AdapterPath returns where a replica has loaded an adapter from, "" if that is unknown. With ask
// it is the replica's own answer now, unless the configuration names its models or it does not
// answer; otherwise, what the replica answered last.
func (f *Fleet) AdapterPath(ctx context.Context, addr, name string, ask bool) string {
	r := f.Snapshot().Replica(addr)
	if ask && (r == nil || !r.told) {
		ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
		defer cancel()
		if models, _, err := f.client().models(ctx, addr); err == nil {
			r = &Replica{Reported: Reported{Models: models}}
		}
	}
	if r != nil {
		for i := range r.Models {
			if m := &r.Models[i]; m.LoRA.Set && m.LoRA.Name == name {
				return m.LoRA.Path
			}
		}
	}
	return ""
}

// models asks a replica for its models and their owner.
func (c *client) models(ctx context.Context, addr string) (models []Model, owner string, err error) {
	body, err := c.beginning(ctx, http.MethodGet, addr, "/v1/models", nil, maxAnswer)
	if err != nil {
		return nil, "", err
	}
	if models, owner, err = decodeModels(body); err != nil {
		err = &failure{reasonBadAnswer, err}
	}
	return models, owner, err
}

// relist asks an up replica for its models, and reports whether they have changed: adapters come
// and go while a server runs. Another base model is another cache, so all is learned again.
func (w *worker) relist(ctx context.Context) (changed bool) {
	if len(w.options.Models) > 0 || w.failures > 0 {
		return false
	}
	var models []Model
	err := w.attempt(ctx, func(ctx context.Context) (err error) {
		models, _, err = w.fleet.client().models(ctx, w.addr)
		return err
	})
	before := w.closed
	if w.closed = ""; isRefused(err) {
		w.closed = err.Error()
	}
	if w.known.SGLang != nil {
		models = modelsOf(models, w.known.SGLang)
	}
	switch {
	case err != nil || slices.Equal(models, w.known.Models): // scrapes decide whether it is gone
		return w.closed != before
	case len(models) == 0 || !slices.Equal(bases(models), bases(w.known.Models)):
		w.nextLearn = time.Time{}
		return false
	}
	w.known.Models = models
	return true
}

// adapted reports whether the replica has adapters, which may be loaded again at any time.
func (w *worker) adapted() bool {
	return slices.ContainsFunc(w.known.Models, func(m Model) bool { return m.LoRA.Set })
}
