package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/internal/openai"
)

// Endpoint is a server that answers questions.
type Endpoint struct {
	// URL is the server's base, "http://10.0.0.7:8000".
	URL string
	// Version is the answer of its /version; "" when it is not known.
	Version string
	// Render: its /render routes answer.
	Render bool
	// MaxLen is the model's context there in tokens; 0: not known.
	MaxLen int
	// Busy is the server's load: its requests running and waiting.
	Busy float64
}

// Defaults of RemoteOptions.
const (
	// DefaultBudget is how long a request may wait: well below the prefill a
	// hit saves, and above /render's 1–10 ms for prompts of a few thousand tokens.
	DefaultBudget = 50 * time.Millisecond
	// DefaultTimeout limits a question, beyond its request's budget: an answer
	// that comes too late for the request still reaches the cache, for the
	// conversation's next try.
	DefaultTimeout = 2 * time.Second
	// DefaultFlights bounds questions under way: a fleet that answers slowly
	// must not get more questions the slower it gets.
	DefaultFlights = 64
	// DefaultCacheBytes holds about 16 million ids: 4,000 prompts of 4,000 tokens.
	DefaultCacheBytes = 64 << 20
	// DefaultCacheTTL bounds how long a template's date, or a template that was
	// replaced with its server, lives on.
	DefaultCacheTTL = 5 * time.Minute
	// refusalTTL is short: a 4xx may be a replica's configuration, soon mended.
	refusalTTL = 30 * time.Second
	// maxAnswer bounds an answer's size in bytes: 10 million ids.
	maxAnswer = 64 << 20
)

// RemoteOptions configure a Remote; zero values mean the defaults.
type RemoteOptions struct {
	// Endpoints lists the servers that may get a question about a request now:
	// only those that may serve it, because the question contains its text.
	Endpoints  func(Served) []Endpoint
	Client     *http.Client
	Budget     time.Duration
	Timeout    time.Duration
	Flights    int
	CacheBytes int
	CacheTTL   time.Duration
	Now        func() time.Time
}

// Remote requests token ids from replicas. It is safe for concurrent use; Close
// waits for the questions that are under way.
type Remote struct {
	o       RemoteOptions
	client  atomic.Pointer[http.Client]
	budget  atomic.Int64 // nanoseconds
	keys    keyer
	cache   *cache
	slots   chan struct{}
	turn    atomic.Uint64
	paces   paces
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	flights map[key]*flight
	closed  bool
}

// flight is one question under way; its result may be read once done is closed.
type flight struct {
	done   chan struct{}
	result Result
	err    error
}

// NewRemote returns a Remote.
func NewRemote(o RemoteOptions) *Remote {
	if o.Client == nil {
		o.Client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16, IdleConnTimeout: time.Minute}}
	}
	o.Budget = either(o.Budget, DefaultBudget)
	o.Timeout = either(o.Timeout, DefaultTimeout)
	o.Flights = either(o.Flights, DefaultFlights)
	o.CacheBytes = either(o.CacheBytes, DefaultCacheBytes)
	o.CacheTTL = either(o.CacheTTL, DefaultCacheTTL)
	if o.Now == nil {
		o.Now = time.Now
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Remote{o: o, keys: newKeyer(), cache: newCache(o.CacheBytes, o.CacheTTL), slots: make(chan struct{}, o.Flights),
		ctx: ctx, cancel: cancel, flights: map[key]*flight{}}
	r.client.Store(o.Client)
	r.budget.Store(int64(o.Budget))
	return r
}

// Set makes later questions use client, nil for the same as before, and wait at
// most budget.
func (r *Remote) Set(client *http.Client, budget time.Duration) {
	if client != nil {
		r.client.Swap(client).CloseIdleConnections()
	}
	r.budget.Store(int64(either(budget, DefaultBudget)))
}

func either[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// Close stops new questions and waits for those under way.
func (r *Remote) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}

// Tokens implements Source. It waits at most the budget.
func (r *Remote) Tokens(ctx context.Context, req *openai.Request, served Served) (Result, error) {
	k := r.keys.key(req, served)
	if result, err, ok := r.cache.get(k, r.o.Now()); ok {
		return result, err
	}
	f, err := r.flight(k, req, served)
	if f == nil {
		return Result{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(r.budget.Load()))
	defer cancel()
	select {
	case <-f.done:
		return f.result, f.err
	case <-ctx.Done():
		return Result{}, ErrNone
	}
}

// flight joins the question k, or starts it. nil: too many are under way, there is
// no endpoint, or none that can answer in time, according to the error.
func (r *Remote) flight(k key, req *openai.Request, served Served) (*flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.flights[k]; f != nil || r.closed {
		return f, ErrNone
	}
	ask, err := r.asker(req, served.Model, r.o.Endpoints(served), time.Duration(r.budget.Load()))
	if ask == nil {
		return nil, err
	}
	select {
	case r.slots <- struct{}{}:
	default:
		return nil, ErrNone
	}
	f := &flight{done: make(chan struct{})}
	r.flights[k] = f
	r.running.Add(1)
	go func() {
		defer r.running.Done()
		ctx, cancel := context.WithTimeout(r.ctx, r.o.Timeout)
		defer cancel()
		f.result, f.err = ask(ctx)
		var refused *RefusedError
		switch {
		case f.err == nil:
			r.cache.put(k, f.result, nil, r.o.Now(), r.cache.ttl)
		case errors.As(f.err, &refused):
			r.cache.put(k, Result{}, f.err, r.o.Now(), refusalTTL)
		}
		// Removed before it is done: a later request finds the cache, or starts a
		// new question.
		r.mu.Lock()
		delete(r.flights, k)
		r.mu.Unlock()
		<-r.slots
		close(f.done)
	}()
	return f, nil
}

// asker prepares the questions while the caller still lends the body. nil: there
// is no endpoint, or none that answers within the budget (0: no limit).
func (r *Remote) asker(req *openai.Request, model string, endpoints []Endpoint, budget time.Duration) (func(context.Context) (Result, error), error) {
	if len(endpoints) == 0 {
		return nil, ErrNone
	}
	first := int(r.turn.Add(1) % uint64(len(endpoints)))
	if slices.ContainsFunc(endpoints, func(e Endpoint) bool { return e.Render }) {
		size := len(req.Body())
		if req.Multimodal { // what an image takes does not go by its bytes
			size = 0
		}
		e, ok := r.paces.choose(endpoints, size, budget, r.o.Now(), first)
		if !ok {
			return nil, ErrTooSlow
		}
		q, route, multimodal := renderQuestion(req), req.Route, req.Multimodal
		return func(ctx context.Context) (Result, error) {
			start := r.o.Now()
			r.paces.begin(e.URL)
			body, err := r.post(ctx, e, q)
			r.paces.end(e.URL, size, r.o.Now().Sub(start), r.o.Now(), err)
			if err != nil {
				return Result{}, err
			}
			prompts, err := parseRender(route, body, multimodal)
			return Result{Prompts: prompts, Source: FromRender}, err
		}, nil
	}
	e, list := endpoints[first], tokenizeQuestions(req, model)
	if list == nil {
		return nil, ErrNone
	}
	return func(ctx context.Context) (Result, error) {
		result := Result{Source: FromTokenize}
		for _, q := range list {
			body, err := r.post(ctx, e, q)
			if err != nil {
				return Result{}, err
			}
			p, err := parseTokenize(body)
			if err != nil {
				return Result{}, err
			}
			result.Prompts = append(result.Prompts, p)
		}
		return result, nil
	}, nil
}

// Ask sends the questions to one of the endpoints without budget, cache or
// sharing, for verification. It may take as long as ctx allows.
func (r *Remote) Ask(ctx context.Context, req *openai.Request, model string, endpoints []Endpoint) (Result, error) {
	ask, err := r.asker(req, model, endpoints, 0)
	if ask == nil {
		return Result{}, err
	}
	return ask(ctx)
}

// RefusedError is a 4xx: the server will not serve the request either, or does
// not have the route.
type RefusedError struct{ Status int }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("tokens: the replica refused the request with status %d", e.Status)
}

// Is makes a refusal match ErrNone: there are no ids.
func (e *RefusedError) Is(target error) bool { return target == ErrNone }

func (r *Remote) post(ctx context.Context, e Endpoint, q question) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("tokens: %s: %w", e.URL, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Load().Do(req)
	if err != nil {
		return nil, fmt.Errorf("tokens: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	switch {
	case err != nil:
		return nil, fmt.Errorf("tokens: %s%s: %w", e.URL, q.path, err)
	case resp.StatusCode >= 400 && resp.StatusCode < 500:
		return nil, &RefusedError{Status: resp.StatusCode}
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("tokens: %s%s answered %s", e.URL, q.path, resp.Status)
	}
	return body, nil
}
