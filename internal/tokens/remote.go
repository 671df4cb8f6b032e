package tokens

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/internal/bound"
	"warmroute/internal/intake"
	"warmroute/render"
	"warmroute/render/openai"
)

// Endpoint is a server that answers questions.
type Endpoint struct {
	// URL is the server's base, "http://10.0.0.7:8000".
	URL string
	// Version is the answer of its /version, or "sglang 0.5.23"; "" when it is not known.
	Version string
	// Render reports whether its /render routes answer.
	Render bool
	// MaxLen is the model's context there in tokens; 0: not known.
	MaxLen int
	// Busy is the server's load: its running and waiting requests.
	Busy float64
}

// Defaults of RemoteOptions.
const (
	// DefaultBudget is the longest wait of a request: well below the prefill that a hit
	// saves, and above /render's 1–10 ms for prompts of a few thousand tokens.
	DefaultBudget = 50 * time.Millisecond
	// DefaultTimeout limits a question, beyond its request's budget: an answer that is too
	// late for the request still reaches the cache, for the conversation's next try.
	DefaultTimeout = 2 * time.Second
	// DefaultFlights bounds questions under way: a fleet must not get more questions the
	// slower it answers.
	DefaultFlights = 64
	// DefaultCacheBytes holds about 16 million ids: 4,000 prompts of 4,000 tokens.
	DefaultCacheBytes = 64 << 20
	// DefaultCacheTTL bounds how long the cache keeps a template's date, or a template
	// that was replaced with its server.
	DefaultCacheTTL = 5 * time.Minute
	// refusalTTL is short: a 4xx may be a replica's configuration, soon mended.
	refusalTTL = 30 * time.Second
	// An answer may have answerBytes and answerPerByte for each byte of the body: an id
	// takes 8 bytes, and some releases send the ids twice. Answers about images may have
	// maxAnswer, the most of any: older releases put the tensors in.
	answerBytes   = 4 << 20
	answerPerByte = 32
	maxAnswer     = 64 << 20
)

// Outcomes of a question, as a metric's label.
const (
	questionAnswered    = "answered"
	questionRefused     = "refused"     // a 4xx
	questionFailed      = "failed"      // a 5xx
	questionLate        = "late"        // not in time
	questionInvalid     = "invalid"     // no token ids
	questionTooLong     = "too_long"    // more bytes than ids take
	questionUnreachable = "unreachable" // no answer
	questionCrowded     = "crowded"     // intake.Most is used up
)

// errBroken is matched by the errors of answers for which the replica alone is to blame.
var errBroken = errors.New("the answer is broken")

var (
	errInvalid = fmt.Errorf("no token ids: %w", errBroken)
	errTooLong = fmt.Errorf("more bytes than token ids take: %w", errBroken)
)

// RemoteOptions configure a Remote; zero values mean the defaults.
type RemoteOptions struct {
	// Endpoints lists the servers that may get a question about a request now: only
	// replicas that may be named for it, because the question contains its text.
	Endpoints  func(Served) []Endpoint
	Client     *http.Client
	Budget     time.Duration
	Timeout    time.Duration
	Flights    int
	CacheBytes int
	CacheTTL   time.Duration
	// CompareEvery is the pause between comparisons of replicas' ids; negative: none.
	CompareEvery time.Duration
	Now          func() time.Time
	Answers      *intake.Budget // of all that are being read
	// Questioned, when set, is called with the outcome of each question.
	Questioned func(outcome string)
}

// Remote requests token ids from replicas. It is safe for concurrent use; Close waits for
// the questions under way.
type Remote struct {
	o       RemoteOptions
	client  atomic.Pointer[http.Client]
	budget  atomic.Int64 // nanoseconds
	keys    keyer
	cache   *cache
	slots   bound.Pool // questions under way
	turn    atomic.Uint64
	paces   paces
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	flights  map[key]*flight
	compared map[compared]*comparison
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
	o.Budget = cmp.Or(o.Budget, DefaultBudget)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Flights = cmp.Or(o.Flights, DefaultFlights)
	o.CacheBytes = cmp.Or(o.CacheBytes, DefaultCacheBytes)
	o.CacheTTL = cmp.Or(o.CacheTTL, DefaultCacheTTL)
	o.CompareEvery = cmp.Or(o.CompareEvery, DefaultCompareEvery)
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Answers == nil {
		o.Answers = new(intake.Budget)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Remote{o: o, keys: newKeyer(), cache: newCache(o.CacheBytes),
		ctx: ctx, cancel: cancel, flights: map[key]*flight{}, compared: map[compared]*comparison{}}
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
	r.budget.Store(int64(cmp.Or(budget, DefaultBudget)))
}

// Close stops new questions and waits for the ones under way.
func (r *Remote) Close() {
	r.mu.Lock()
	r.cancel()
	r.mu.Unlock()
	r.running.Wait()
}

// Tokens implements Source. It waits at most the budget.
func (r *Remote) Tokens(ctx context.Context, req *openai.Request, served Served) (Result, error) {
	k := r.keys.key(req, served)
	if result, err, ok := r.cache.get(k, r.o.Now()); ok {
		return result, err
	}
	f := r.underWay(k)
	if f == nil {
		likely := ""
		if served.Likely != nil {
			likely = served.Likely() // not under the lock: it reads the text
		}
		var err error
		if f, err = r.flight(k, req, served, likely); f == nil {
			return Result{}, err
		}
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

// underWay returns the question k; nil: it is not under way.
func (r *Remote) underWay(k key) *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.flights[k]
}

// flight joins the question k, or starts it. It returns nil and an error if too many are
// under way, or if no endpoint exists or none can answer in time.
func (r *Remote) flight(k key, req *openai.Request, served Served, likely string) (*flight, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.flights[k]; f != nil || r.ctx.Err() != nil {
		return f, ErrNone
	}
	r.compareWhenDue(compared{served.Model, served.Tenant})
	ask, err := r.asker(req, served.Model, peers(r.o.Endpoints(served)), likely, time.Duration(r.budget.Load()))
	if ask == nil {
		return nil, err
	}
	if !r.slots.Take(1, int64(r.o.Flights)) {
		return nil, ErrNone
	}
	f := &flight{done: make(chan struct{})}
	r.flights[k] = f
	r.running.Go(func() {
		ctx, cancel := context.WithTimeout(r.ctx, r.o.Timeout)
		defer cancel()
		f.result, f.err = ask(ctx)
		var refused *RefusedError
		switch {
		case f.err == nil:
			r.cache.put(k, f.result, nil, r.o.Now(), r.o.CacheTTL)
		case errors.As(f.err, &refused):
			r.cache.put(k, Result{}, f.err, r.o.Now(), refusalTTL)
		}
		// Removed before it is done: a later request finds the cache, or starts a
		// new question.
		r.mu.Lock()
		delete(r.flights, k)
		r.mu.Unlock()
		r.slots.Give(1)
		close(f.done)
	})
	return f, nil
}

// asks sends questions that are prepared, and returns the ids of a request.
type asks func(context.Context) (Result, error)

// asker prepares the questions while the caller still lends the body, for the endpoint with the
// address likely or, if that cannot answer, another one. It returns nil and an error if no endpoint
// exists, or none answers within the budget (0: no limit).
func (r *Remote) asker(req *openai.Request, model string, endpoints []Endpoint, likely string, budget time.Duration) (asks, error) {
	if len(endpoints) == 0 {
		return nil, ErrNone
	}
	endpoints = ruling(endpoints)
	from := start{at: slices.IndexFunc(endpoints, func(e Endpoint) bool { return address(e.URL) == likely })}
	if from.own = from.at >= 0; !from.own {
		from.at = int(r.turn.Add(1) % uint64(len(endpoints)))
	}
	size := len(req.Body())
	if req.Multimodal { // the time of an image does not follow from its bytes
		size = 0
	}
	e, err := r.paces.choose(endpoints, size, budget, r.o.Now(), from)
	if err != nil {
		return nil, err
	}
	list, parse, source := tokenizeQuestions(req, model, render.IsSGLang(e.Version)), parseTokenize, FromTokenize
	if e.Render {
		list, parse, source = []question{renderQuestion(req, size)}, parseRender(req.Route, req.Multimodal), FromRender
	}
	if list == nil {
		return nil, ErrNone
	}
	return func(ctx context.Context) (Result, error) {
		result := Result{Source: source, by: e.URL}
		for _, q := range list {
			err := r.ask(ctx, e, q, func(body []byte) error {
				prompts, err := parse(body)
				result.Prompts = append(result.Prompts, prompts...)
				return err
			})
			if err != nil {
				return Result{by: e.URL}, err
			}
		}
		return result, nil
	}, nil
}

// ask sends one question and has its answer parsed. The replica's pace and the counts of
// outcomes learn from it.
func (r *Remote) ask(ctx context.Context, e Endpoint, q question, parse func([]byte) error) error {
	start := r.o.Now()
	r.paces.begin(e.URL)
	err := r.post(ctx, e, q, parse)
	r.paces.end(e.URL, q.size, r.o.Now().Sub(start), r.o.Now(), err)
	if r.o.Questioned != nil && !errors.Is(err, context.Canceled) {
		r.o.Questioned(outcome(err))
	}
	return err
}

// outcome returns the metric's label of a question's error.
func outcome(err error) string {
	var refused *RefusedError
	var failed *failedError
	switch {
	case err == nil || errors.Is(err, ErrNone) && !errors.As(err, &refused):
		return questionAnswered
	case errors.As(err, &refused):
		return questionRefused
	case errors.As(err, &failed):
		return questionFailed
	case errors.Is(err, context.DeadlineExceeded):
		return questionLate
	case errors.Is(err, errInvalid):
		return questionInvalid
	case errors.Is(err, errTooLong):
		return questionTooLong
	case errors.Is(err, intake.ErrCrowded):
		return questionCrowded
	}
	return questionUnreachable
}

// Ask sends the questions to one of the endpoints without budget, cache or
// sharing, for verification. It may take as long as ctx allows.
func (r *Remote) Ask(ctx context.Context, req *openai.Request, model string, endpoints []Endpoint) (Result, error) {
	ask, err := r.asker(req, model, endpoints, "", 0)
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

// failedError is a status that is neither 200 nor a refusal. A request's body may be its
// cause.
type failedError struct{ url, status string }

func (e *failedError) Error() string { return fmt.Sprintf("tokens: %s answered %s", e.url, e.status) }

// post sends a question. It reads the answer within its limit and parses it, unless the
// status is an error's.
func (r *Remote) post(ctx context.Context, e Endpoint, q question, parse func([]byte) error) error {
	url := e.URL + q.path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(q.body))
	if err != nil {
		return fmt.Errorf("tokens: %s: %w", e.URL, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := r.client.Load().Do(req)
	if err != nil {
		return fmt.Errorf("tokens: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, mostExplained) // the connection is used again
		if resp.StatusCode >= 400 && resp.StatusCode < 500 {
			return &RefusedError{Status: resp.StatusCode}
		}
		return &failedError{url, resp.Status}
	}
	body, err := r.o.Answers.Read(resp.Body, q.answerLimit())
	switch {
	case err == nil:
		err = parse(body)
		r.o.Answers.Return(body)
	case errors.Is(err, intake.ErrTooLong):
		err = errTooLong
	}
	if err != nil {
		return fmt.Errorf("tokens: %s: %w", url, err)
	}
	return nil
}

// mostExplained bounds the bytes of an error's text.
const mostExplained = 64 << 10
