package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"warmroute/internal/tokenizer/modelfiles"
)

// Defaults of a Discovery.
const (
	// discoverEvery is how often the list of served models is read; models that were
	// found, or failed recently, are skipped.
	discoverEvery = 2 * time.Second
	// discoverTimeout bounds one attempt to fetch a model's files.
	discoverTimeout = 10 * time.Minute
	// discoverRetry is the wait after a failed attempt; it doubles up to discoverRest.
	discoverRetry = time.Minute
	discoverRest  = time.Hour
)

// DiscoveryOptions configure a Discovery.
type DiscoveryOptions struct {
	// Served lists the served base models that are not configured: what they were
	// loaded from, by their names.
	Served func() map[string]string
	// Hub is the cache of this machine and the hub behind it; nil: paths alone.
	Hub *modelfiles.Hub
	// Download allows requests to the hub; it may change.
	Download func() bool
	// Local computes the ids of found models, once a replica has confirmed them.
	Local *Local
	Flags Flags
	// Files, when set, is called with the folder of a model when it is found.
	Files func(model, folder string)
	Log   *slog.Logger
	Now   func() time.Time
}

// Found is the result of the search for a model's files.
type Found struct {
	Model  string    `json:"model"`
	Root   string    `json:"root"`             // where its replicas report to have loaded it from
	Folder string    `json:"folder,omitempty"` // here; "" while there is none
	From   string    `json:"from,omitempty"`   // FromPath, FromCache or FromHub
	Commit string    `json:"commit,omitempty"`
	Error  string    `json:"error,omitempty"` // why there is none
	At     time.Time `json:"at"`
}

// Where files were found.
const (
	FromPath  = "path"  // the model's root exists on this machine
	FromCache = "cache" // in the Hugging Face cache
	FromHub   = "hub"   // fetched
)

// Discovery finds the tokenizer files of served models by itself and loads them into
// a Local, which uses nothing that no replica has confirmed. It runs apart from the
// requests; Found may be called at any time.
type Discovery struct {
	o  DiscoveryOptions
	mu sync.Mutex
	// attempts are by model; guarded by mu.
	attempts map[string]*attempt
}

type attempt struct {
	Found
	failed int
	next   time.Time // of another attempt; zero: none is needed
}

// NewDiscovery returns a Discovery that has found nothing yet.
func NewDiscovery(o DiscoveryOptions) *Discovery {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Discovery{o: o, attempts: map[string]*attempt{}}
}

// Run looks for the files of served models until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	tick := time.NewTicker(discoverEvery)
	defer tick.Stop()
	for {
		d.Look(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// Look makes one attempt for each model whose turn it is.
func (d *Discovery) Look(ctx context.Context) {
	served := d.o.Served()
	for _, name := range slices.Sorted(maps.Keys(served)) {
		root := served[name]
		if ctx.Err() != nil {
			return
		}
		last := d.last(name)
		if last != nil && last.Root == root && (last.next.IsZero() || d.o.Now().Before(last.next)) {
			continue
		}
		a := &attempt{Found: Found{Model: name, Root: root}}
		if last != nil && last.Root == root {
			a.failed = last.failed
		}
		err := d.find(ctx, a)
		if ctx.Err() != nil {
			return
		}
		d.note(a, err)
	}
}

func (d *Discovery) last(name string) *attempt {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.attempts[name]
}

// note keeps the result of an attempt and logs it once.
func (d *Discovery) note(a *attempt, err error) {
	a.At = d.o.Now()
	if err != nil {
		a.Error, a.Folder, a.From, a.Commit = err.Error(), "", "", ""
		a.next = a.At.Add(min(discoverRest, discoverRetry<<min(a.failed, 10)))
		if a.failed++; a.failed == 1 {
			d.o.Log.Info("no tokenizer found by itself; this model's token ids are asked of replicas", "model", a.Model, "root", a.Root, "why", err)
		}
	} else {
		a.failed = 0
		d.o.Log.Info("tokenizer found; it is used once a replica has confirmed it",
			"model", a.Model, "root", a.Root, "folder", a.Folder, "from", a.From, "commit", a.Commit)
	}
	d.mu.Lock()
	d.attempts[a.Model] = a
	d.mu.Unlock()
}

// Forget starts a new search for a served model: its files were configured until
// now, or the cause of its refusal has changed. "" is every model not found.
func (d *Discovery) Forget(model string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if model != "" {
		delete(d.attempts, model)
		return
	}
	maps.DeleteFunc(d.attempts, func(_ string, a *attempt) bool { return a.Error != "" })
}

// find finds, fetches and loads.
func (d *Discovery) find(ctx context.Context, a *attempt) error {
	if err := d.folder(ctx, a); err != nil {
		return err
	}
	if d.o.Files != nil {
		d.o.Files(a.Model, a.Folder)
	}
	m, err := LoadFolder(a.Folder, d.o.Flags)
	if err != nil {
		return err
	}
	return d.o.Local.Load(a.Model, m)
}

func (d *Discovery) folder(ctx context.Context, a *attempt) (err error) {
	if a.Root == "" {
		return errors.New("its replicas do not say what they loaded it from")
	}
	if a.Folder, err = d.o.Hub.Find(a.Root); err == nil {
		a.From, a.Commit = FromCache, modelfiles.Commit(a.Folder)
		if filepath.IsAbs(a.Root) || a.Folder == a.Root {
			a.From = FromPath
		}
		return nil
	}
	if d.o.Hub == nil {
		return err
	}
	if !modelfiles.Named(a.Root) {
		return fmt.Errorf("its root is no folder with a tokenizer here, nor a hub's name of the form owner/name")
	}
	if !d.o.Download() {
		return fmt.Errorf("%w; tokens.download forbids to fetch it", err)
	}
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	if a.Folder, err = d.o.Hub.Fetch(ctx, a.Root); err != nil {
		return err
	}
	a.From, a.Commit = FromHub, modelfiles.Commit(a.Folder)
	return nil
}

// Found reports what was found, or why not, by model.
func (d *Discovery) Found() []Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Found, 0, len(d.attempts))
	for _, name := range slices.Sorted(maps.Keys(d.attempts)) {
		list = append(list, d.attempts[name].Found)
	}
	return list
}
