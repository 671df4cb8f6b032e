package tokens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	"warmroute/index"
	"warmroute/internal/modelfiles"
)

// Defaults of a Discovery.
const (
	// discoverEvery is the pause between looks at the list of served models. Found
	// models, and models whose search failed recently, are skipped.
	discoverEvery = 2 * time.Second
	// discoverTimeout bounds one attempt to fetch a model's files, loadTimeout one to
	// load them.
	discoverTimeout = 10 * time.Minute
	loadTimeout     = 2 * time.Minute
	// discoverRetry is the wait after a failed attempt; it doubles up to discoverRest.
	discoverRetry = time.Minute
	discoverRest  = time.Hour
	// searchesAtOnce bounds the models that are searched and loaded at once,
	// fetchesAtOnce the models that are fetched.
	searchesAtOnce = 4
	fetchesAtOnce  = 4
	// keepFor is how long a model stays loaded after the last replica has stopped
	// listing it: longer than a replica's restart.
	keepFor = 10 * time.Minute
)

// Wanted is a model that is to be loaded.
type Wanted struct {
	Root       string // the path or the hub's name of its files, as its replicas report or as configured; "" = not known
	Flags      Flags  // of its servers
	Configured bool   // its files are fetched whatever Download says, and it is loaded as long as it is wanted alone
}

// DiscoveryOptions configure a Discovery.
type DiscoveryOptions struct {
	// Wanted lists the base models that are configured or served.
	Wanted func() map[string]Wanted
	// Hub is the cache of this machine and the hub behind it; nil: paths alone.
	Hub *modelfiles.Hub
	// Download allows requests to the hub; it may change.
	Download func() bool
	// Local computes the ids of found models, once a replica has confirmed them.
	Local *Local
	// Library loads them; nil: one of its own.
	Library *Library
	// Files, when set, is called with the folder of a model when it is found.
	Files func(model, folder string)
	Log   *slog.Logger
	Now   func() time.Time
}

// Found is the result of the search for a model's files.
type Found struct {
	Model  string    `json:"model"`
	Root   string    `json:"root"`             // the path or name from which its replicas report to have loaded it, or as configured
	Folder string    `json:"folder,omitempty"` // here; "" while there is none
	From   string    `json:"from,omitempty"`   // FromPath, FromCache or FromHub
	Commit string    `json:"commit,omitempty"`
	Error  string    `json:"error,omitempty"`  // why no folder was found
	Failed bool      `json:"failed,omitempty"` // the files exist as far as is known, and could not be fetched or loaded
	At     time.Time `json:"at"`
}

// The places where files were found.
const (
	FromPath  = "path"  // the model's root exists on this machine
	FromCache = "cache" // in the Hugging Face cache
	FromHub   = "hub"   // fetched
)

// The phases of an attempt.
const (
	phaseSearching = "its files are being searched"
	phaseFetching  = "its files are being fetched"
	phaseLoading   = "its files are being loaded"
)

// Discovery finds the tokenizer files of configured and served models and loads them into a
// Local, which uses nothing that no replica has confirmed. Models are searched
// independently of each other. It runs apart from the requests; Found, Busy and Again
// may be called at any time.
type Discovery struct {
	o    DiscoveryOptions
	wake chan struct{} // capacity 1: another attempt may begin
	mu   sync.Mutex
	// mu guards the fields below.
	attempts  map[string]*attempt // by model
	searching int                 // attempts under way, other than fetching
	fetching  int
}

type attempt struct {
	Found
	want     Wanted
	held     *Loan // what the Local has of the model, by this attempt or an earlier one; nil: nothing
	failed   int
	next     time.Time // of another attempt; zero: none is needed
	unlisted time.Time // the moment when no replica listed the model any more; zero: one does
	phase    string    // "": the attempt has ended
	since    time.Time // of phase
}

// NewDiscovery returns a Discovery that has found nothing yet.
func NewDiscovery(o DiscoveryOptions) *Discovery {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Library = cmp.Or(o.Library, NewLibrary(DefaultModelBytes))
	if o.Now == nil {
		o.Now = index.Now
	}
	return &Discovery{o: o, wake: make(chan struct{}, 1), attempts: map[string]*attempt{}}
}

// Run looks for the files of served models until ctx ends.
func (d *Discovery) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	tick := time.Tick(discoverEvery)
	for {
		d.start(ctx, &running)
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		case <-d.wake:
		}
	}
}

// Look makes one attempt for each model whose turn it is, and waits for all.
func (d *Discovery) Look(ctx context.Context) {
	var running sync.WaitGroup
	for d.start(ctx, &running) > 0 && ctx.Err() == nil {
		running.Wait()
	}
}

// start begins the attempts that are due, as many as may be under way, and unloads the
// models that no replica has listed for long.
func (d *Discovery) start(ctx context.Context, running *sync.WaitGroup) (begun int) {
	wanted := d.o.Wanted()
	now := d.o.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, a := range d.attempts {
		w, listed := wanted[name]
		switch {
		case a.want.Configured && !w.Configured:
			d.unload(name)
		case listed:
			a.unlisted = time.Time{}
		case a.unlisted.IsZero():
			a.unlisted = now
		case now.Sub(a.unlisted) >= keepFor && a.phase == "":
			d.unload(name)
		}
	}
	for _, name := range d.due(wanted, now) {
		if d.searching >= searchesAtOnce { // fetched models that are loaded count, too
			break
		}
		a := &attempt{Found: Found{Model: name, Root: wanted[name].Root}, want: wanted[name], phase: phaseSearching, since: now}
		if last := d.attempts[name]; last != nil {
			a.held, a.failed = last.held, last.failures(a.want)
		}
		d.attempts[name] = a
		d.searching++
		begun++
		running.Go(func() { d.attempt(ctx, a) })
	}
	return begun
}

// failures returns how often attempts of what is wanted have failed in a row.
func (a *attempt) failures(of Wanted) int {
	if a == nil || !reflect.DeepEqual(a.want, of) {
		return 0
	}
	return a.failed
}

// due lists the models whose attempt is due, the ones that failed least often first,
// so that repeated failures delay no model that has not been searched yet, and of these the
// configured ones. What is wanted otherwise than before does not wait for an attempt under way.
func (d *Discovery) due(wanted map[string]Wanted, now time.Time) []string {
	var names []string
	for name, w := range wanted {
		last := d.attempts[name]
		if last == nil || !reflect.DeepEqual(last.want, w) || last.phase == "" && !last.next.IsZero() && !now.Before(last.next) {
			names = append(names, name)
		}
	}
	found := func(name string) int {
		if wanted[name].Configured {
			return 0
		}
		return 1
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(d.attempts[a].failures(wanted[a]), d.attempts[b].failures(wanted[b])), cmp.Compare(found(a), found(b)), cmp.Compare(a, b))
	})
	return names
}

// unload forgets a model and unloads its files.
func (d *Discovery) unload(name string) {
	if held := d.attempts[name].held; held != nil {
		d.o.Local.Unload(name)
		held.End()
		d.o.Log.Info("tokenizer unloaded: its model is neither served nor configured so any more", "model", name)
	}
	delete(d.attempts, name)
}

// attempt makes one attempt, from the search to the result.
func (d *Discovery) attempt(ctx context.Context, a *attempt) {
	found, err := d.find(ctx, a)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.again()
	d.searching--
	a.phase = ""
	switch {
	case d.attempts[a.Model] != a: // forgotten while it was under way
	case ctx.Err() != nil:
		delete(d.attempts, a.Model)
	case errors.Is(err, errLater):
		a.Error, a.next = err.Error(), d.o.Now().Add(discoverEvery)
	case errors.Is(err, modelfiles.ErrPaused): // the log has the model that caused it
		a.Error, a.next = err.Error(), d.o.Now().Add(discoverRetry)
	default:
		found.At = d.o.Now()
		a.Found = found
		d.note(a, err)
	}
}

// again makes Run look for another attempt to begin.
func (d *Discovery) again() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// enter notes the phase of an attempt.
func (d *Discovery) enter(a *attempt, phase string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a.phase, a.since = phase, d.o.Now()
}

// note keeps the result of an attempt and logs it once. d.mu is held.
func (d *Discovery) note(a *attempt, err error) {
	if err != nil {
		a.Error, a.Failed, a.Folder, a.From, a.Commit = err.Error(), a.want.Configured || !errors.Is(err, errNowhere), "", "", ""
		wait := min(discoverRest, discoverRetry<<min(a.failed, 10))
		if a.want.Configured {
			wait = discoverRetry
		}
		a.next = a.At.Add(wait)
		switch a.failed++; {
		case a.failed > 1:
		case a.Failed:
			d.o.Log.Warn("a tokenizer cannot be fetched or loaded; this model's token ids are asked of replicas", "model", a.Model, "root", a.Root, "why", err)
		default:
			d.o.Log.Info("no tokenizer found by itself; this model's token ids are asked of replicas", "model", a.Model, "root", a.Root, "why", err)
		}
		return
	}
	a.failed = 0
	d.o.Log.Info("tokenizer found; it is used once a replica has confirmed it",
		"model", a.Model, "root", a.Root, "folder", a.Folder, "from", a.From, "commit", a.Commit)
}

// Again has Run look at once at what is wanted, and try again what could not be loaded: the causes
// may have gone.
func (d *Discovery) Again() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range d.attempts {
		if a.Error != "" && a.phase == "" {
			a.failed, a.next = 0, d.o.Now()
		}
	}
	d.again()
}

// errNowhere is matched by the errors of attempts that find no files and may fetch none:
// the configuration or the replicas want it so.
var errNowhere = errors.New("no files to load")

// nowhere makes err match errNowhere, with the text of err alone.
type nowhere struct{ error }

func (nowhere) Is(target error) bool { return target == errNowhere } //nolint:errorlint // Is compares one error of the chain

// errLater ends an attempt that waits for its turn to fetch.
var errLater = errors.New("waits for other models to be fetched")

// find searches, fetches and loads a model's files.
func (d *Discovery) find(ctx context.Context, a *attempt) (Found, error) {
	found := Found{Model: a.Model, Root: a.Root}
	if err := d.folder(ctx, a, &found); err != nil {
		return found, err
	}
	if d.o.Files != nil {
		d.o.Files(found.Model, found.Folder)
	}
	d.enter(a, phaseLoading)
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	m, err := d.o.Library.Load(ctx, found.Folder, a.want.Flags)
	if err != nil {
		return found, err
	}
	return found, d.load(ctx, a, m)
}

// load gives the Local a model in place of its former one, unless it is wanted otherwise meanwhile. A
// model that the Local does not have leaves the Library.
func (d *Discovery) load(ctx context.Context, a *attempt, m *Loan) error {
	_, err := m.Renderer(ctx, "", false) // not under the lock: Load finds it compiled
	if err != nil {
		err = fmt.Errorf("model %q: %w", a.Model, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	current := d.attempts[a.Model] == a
	if err == nil && current {
		err = d.o.Local.Load(a.Model, m.Model)
	}
	if err != nil || !current {
		m.End()
		return err
	}
	a.held.End()
	a.held = m
	return nil
}

// folder finds the folder of a model's files, or fetches them.
func (d *Discovery) folder(ctx context.Context, a *attempt, found *Found) (err error) {
	root := found.Root
	if root == "" {
		return nowhere{errors.New("its replicas do not report where they loaded it from")}
	}
	if found.Folder, err = d.o.Hub.Find(root); err == nil {
		found.From, found.Commit = FromCache, modelfiles.Commit(found.Folder)
		if filepath.IsAbs(root) || found.Folder == root {
			found.From = FromPath
		}
		return nil
	}
	switch {
	case a.want.Configured && !errors.Is(err, modelfiles.ErrNotFound):
		return err
	case a.want.Configured:
	case !modelfiles.Named(root):
		return nowhere{errors.New("its root is no folder with a tokenizer here, nor a hub's name of the form owner/name")}
	case !d.o.Download():
		return nowhere{fmt.Errorf("%w; tokens.download forbids to fetch it", err)}
	}
	if d.o.Hub == nil {
		return fmt.Errorf("%w: set HF_HOME to a folder that the router can write", err)
	}
	return d.fetch(ctx, a, found)
}

// fetch downloads a model's files. Meanwhile the attempt delays no search.
func (d *Discovery) fetch(ctx context.Context, a *attempt, found *Found) (err error) {
	if !d.takeTurn() {
		return errLater
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.fetching--
		d.searching++
	}()
	d.enter(a, phaseFetching)
	ctx, cancel := context.WithTimeout(ctx, discoverTimeout)
	defer cancel()
	found.Folder, err = d.o.Hub.Fetch(ctx, found.Root)
	if errors.Is(err, modelfiles.ErrNotFound) { // HF_HUB_OFFLINE
		return nowhere{err}
	}
	if err != nil {
		return err
	}
	found.From, found.Commit = FromHub, modelfiles.Commit(found.Folder)
	return nil
}

// takeTurn makes a searching attempt a fetching one, if another may fetch.
func (d *Discovery) takeTurn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fetching == fetchesAtOnce {
		return false
	}
	d.fetching++
	d.searching--
	d.again()
	return true
}

// Found returns the results of the searches, by model.
func (d *Discovery) Found() []Found {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := make([]Found, 0, len(d.attempts))
	for _, name := range slices.Sorted(maps.Keys(d.attempts)) {
		list = append(list, d.attempts[name].Found)
	}
	return list
}

// Busy lists the models whose files are searched, fetched or loaded now, by name.
func (d *Discovery) Busy() []Busy {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []Busy
	for _, name := range slices.Sorted(maps.Keys(d.attempts)) {
		if a := d.attempts[name]; a.phase != "" {
			list = append(list, Busy{name, a.phase, a.since})
		}
	}
	return list
}
