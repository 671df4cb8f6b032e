package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// loading has the configured models whose ids are computed in process.
type loading struct {
	mu     sync.Mutex
	models []*loadingModel // in the order of the file
	wake   chan struct{}   // capacity 1: there is one to load
}

// loadingModel is one of these models.
type loadingModel struct {
	config ModelConfig
	since  time.Time // it was configured, or its loading began
	late   bool      // it came with a reload: readiness does not wait for it
	err    error     // errWaiting, errLoading, the reason why it is not loaded, or nil
}

var (
	errWaiting = errors.New("waits to be loaded")
	errLoading = errors.New("is being loaded")
)

func newLoading(list []ModelConfig) *loading {
	l := &loading{wake: make(chan struct{}, 1)}
	l.set(list, false)
	return l
}

// set replaces the list of models and returns the ids that it no longer has. Models
// with unchanged settings stay as they are.
func (l *loading) set(list []ModelConfig, late bool) (gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.models
	l.models = nil
	for _, c := range list {
		i := slices.IndexFunc(old, func(m *loadingModel) bool { return reflect.DeepEqual(m.config, c) })
		if i >= 0 {
			l.models = append(l.models, old[i])
			continue
		}
		l.models = append(l.models, &loadingModel{config: c, since: time.Now(), late: late, err: errWaiting})
	}
	for _, m := range old {
		if !slices.ContainsFunc(list, func(c ModelConfig) bool { return c.ID == m.config.ID }) {
			gone = append(gone, m.config.ID)
		}
	}
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return gone
}

// next returns a model to load, nil when there is none.
func (l *loading) next() *loadingModel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.models {
		if errors.Is(m.err, errWaiting) {
			m.err, m.since = errLoading, time.Now()
			return m
		}
	}
	return nil
}

// wanted reports whether m is still configured.
func (l *loading) wanted(m *loadingModel) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Contains(l.models, m)
}

func (l *loading) done(m *loadingModel, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m.err = err
}

// loads reports whether m is loaded now, or is next.
func (m *loadingModel) loads() bool {
	return errors.Is(m.err, errLoading) || errors.Is(m.err, errWaiting)
}

// again lets the models that could not be loaded be loaded again.
func (l *loading) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.models {
		if m.err != nil && !m.loads() {
			m.late, m.err = true, errWaiting
		}
	}
}

// ready names each model of the start that is not loaded yet. It is waited for until its loading
// fails, or takes too long: replicas compute its ids meanwhile.
func (l *loading) ready() error { return errors.Join(l.missing(true)...) }

// notes names each other model that is not loaded.
func (l *loading) notes() (out []string) {
	for _, err := range l.missing(false) {
		out = append(out, err.Error())
	}
	return out
}

func (l *loading) missing(awaited bool) (out []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.models {
		if m.err == nil || awaited != (!m.late && m.loads() && time.Since(m.since) < stuckAfter) {
			continue
		}
		err := fmt.Errorf("tokens of model %q: %w", m.config.ID, m.err)
		if took := time.Since(m.since); errors.Is(m.err, errLoading) && took >= stuckAfter {
			err = fmt.Errorf("%w for %v", err, took.Round(time.Second))
		}
		out = append(out, err)
	}
	return out
}

// configured reports whether a model's files are named in the configuration.
func (l *loading) configured(id string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.models, func(m *loadingModel) bool { return m.config.ID == id })
}

// loadsAtOnce bounds the configured models that are loaded at once.
const loadsAtOnce = 4

// loadAgain is the time after which what could not be loaded is tried again.
const loadAgain = time.Minute

// load loads models as they are configured, off the request path and independently of
// each other. A model takes a second or less, unless it is fetched.
func (t *ids) load(ctx context.Context) error {
	var running errgroup.Group
	running.SetLimit(loadsAtOnce)
	for {
		m := t.loading.next()
		if m == nil {
			select {
			case <-ctx.Done():
				return running.Wait()
			case <-t.loading.wake:
			case <-time.After(loadAgain):
				t.loading.again()
			}
			continue
		}
		running.Go(func() error { t.loadOne(ctx, m); return nil })
	}
}

func (t *ids) loadOne(ctx context.Context, m *loadingModel) {
	start := time.Now()
	files, err := t.loadModel(ctx, m.config)
	if ctx.Err() != nil {
		return
	}
	switch {
	case err == nil && t.loading.wanted(m):
		err = t.local.Load(m.config.ID, files)
	case !t.loading.configured(m.config.ID):
		t.library.Release(m.config.holder())
	}
	t.loading.done(m, err)
	if err != nil {
		t.log.Error("model not loaded; replicas compute its token ids", "model", m.config.ID, "error", err)
		return
	}
	t.log.Info("model loaded", "model", m.config.ID, "took", time.Since(start).Round(time.Millisecond).String())
}

// set applies another configuration to the sources of token ids.
func (t *ids) set(next TokensConfig) {
	settings, _ := next.settings() // validated
	t.local.Set(settings)
	t.library.Set(next.loaded())
	if t.hub != nil {
		t.hub.Limit(next.downloads())
	}
	for _, id := range t.loading.set(next.Models, true) {
		t.local.Unload(id)
		t.library.Release(ModelConfig{ID: id}.holder())
		t.discovery.Forget(id)
	}
	for _, m := range next.Models {
		t.discovery.Forget(m.ID)
	}
	if t.download.Swap(next.Download) != next.Download {
		t.discovery.Forget("")
	}
}
