package vllmsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Sim is one simulated replica.
type Sim struct {
	o        Options
	adapters map[string]*adapter
	http     net.Listener
	ranks    []*rank
	started  time.Time

	faults   atomic.Pointer[Faults]
	load     atomic.Int64  // generation requests in progress, as in GET /load
	answered atomic.Uint64 // generation requests begun
	turn     atomic.Uint64 // round robin among equally loaded ranks
	ran      atomic.Bool

	id        string // of its engines, in the connector's messages
	side      side
	refusedMu sync.Mutex
	refused   map[string]int // requests with kv_transfer_params that another replica refused, by its reason

	loraMu   sync.Mutex
	loraSeen map[string]time.Time // label sets of vllm:lora_requests_info
}

// rank is one data-parallel rank: an engine and, with events on, its publisher.
type rank struct {
	*engine
	events *eventQueue // nil: no events
	w      wire
}

// New checks o and binds its addresses, so that Addr, EventEndpoint and ReplayEndpoint
// return them before Run. The caller closes a Sim that it does not run.
func New(o Options) (*Sim, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	s := &Sim{o: o, adapters: map[string]*adapter{}, loraSeen: map[string]time.Time{}, refused: map[string]int{},
		id: fmt.Sprintf("%016x", rand.Uint64()), side: newSide()}
	s.SetFaults(o.Faults)
	for i, l := range o.LoRAs {
		s.adapters[l.Name] = &adapter{LoRA: l, id: i + 1}
	}
	var err error
	if s.http, err = net.Listen("tcp", o.Listen); err != nil {
		return nil, fmt.Errorf("vllmsim: %w", err)
	}
	for r := range o.DataParallel {
		if err := s.addRank(r); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

func (s *Sim) addRank(r int) error {
	k := &rank{w: wireOf(s.o, r)}
	publish := func([]event) {}
	if s.o.Events != "" {
		pub, err := listenRank(s.o.Events, r)
		if err != nil {
			return err
		}
		var replay net.Listener
		if s.o.Replay != "" {
			if replay, err = listenRank(s.o.Replay, r); err != nil {
				return errors.Join(err, pub.Close())
			}
		}
		k.events = newEventQueue(s.o, pub, replay, &s.faults)
		publish = func(events []event) {
			k.events.publish(k.w.append(nil, float64(time.Now().UnixNano())/1e9, events))
		}
	}
	k.engine = newEngine(r, s.o, publish)
	k.id, k.side, k.faults = s.id, s.side, &s.faults
	s.ranks = append(s.ranks, k)
	return nil
}

func listenRank(addr string, rank int) (net.Listener, error) {
	addr, err := rankAddr(addr, rank)
	if err != nil {
		return nil, fmt.Errorf("vllmsim: %w", err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("vllmsim: rank %d: %w", rank, err)
	}
	return l, nil
}

// Close frees the addresses of a Sim that is not run.
func (s *Sim) Close() error {
	for _, k := range s.ranks {
		if k.events != nil {
			k.events.Close()
		}
	}
	return s.http.Close()
}

// drainTimeout is the time that Run gives requests to finish after its context ends.
// vLLM's server gives them none by default; a demo should not cut its own.
const drainTimeout = time.Second

// Run serves until ctx ends, then lets requests finish for a second, and returns when
// every goroutine that it started has ended. A caller calls it at most once.
func (s *Sim) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return errors.New("vllmsim: Run was called before")
	}
	s.started = time.Now()
	// Engines and publishers outlive the server, so that requests can finish.
	inner, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	for _, k := range s.ranks {
		wg.Go(func() { k.run(inner) })
		if k.events != nil {
			wg.Go(func() { k.events.run(inner) })
		}
	}
	requests, cancel := context.WithCancel(inner)
	api := s.handler()
	if s.o.Front != nil {
		api = s.o.Front(api)
	}
	srv := &http.Server{
		Handler:           api,
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: time.Minute, // a stand-in on a test bed: the limit only prevents leaks
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.http) }()

	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		grace, done := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		if srv.Shutdown(grace) != nil {
			cancel()
			_ = srv.Close()
		}
		done()
		err = <-served
	}
	cancel()
	stop()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("vllmsim: %w", err)
}

// SetFaults replaces the faults in force.
func (s *Sim) SetFaults(f Faults) { s.faults.Store(&f) }

// Addr returns the HTTP address, "host:port".
func (s *Sim) Addr() string { return s.http.Addr().String() }

// EventEndpoint returns the address at which rank publishes, "tcp://host:port", or "" if
// it does not.
func (s *Sim) EventEndpoint(rank int) string {
	if p := s.ranks[rank].events; p != nil {
		return p.Endpoint()
	}
	return ""
}

// ReplayEndpoint returns the address at which rank replays, "tcp://host:port", or "".
func (s *Sim) ReplayEndpoint(rank int) string {
	if p := s.ranks[rank].events; p != nil {
		return p.ReplayEndpoint()
	}
	return ""
}

// Held returns the hashes of the blocks that rank has cached in a group, in the form of
// events (their last 8 bytes as an integer), in no order.
func (s *Sim) Held(rank, group int) []uint64 {
	e := s.ranks[rank].engine
	e.mu.Lock()
	defer e.mu.Unlock()
	out := make([]uint64, 0, len(e.pool.byHash))
	for k := range e.pool.byHash {
		if k.group == group {
			out = append(out, k.hash.low())
		}
	}
	return out
}

// Find returns the number of prompt tokens that rank would find cached now.
func (s *Sim) Find(rank int, prompt []uint32) int {
	e := s.ranks[rank].engine
	e.mu.Lock()
	defer e.mu.Unlock()
	q := &sequence{prompt: len(prompt), tokens: prompt}
	q.hashBlocks(e.hasher, e.unit)
	return e.lookup(q, len(prompt)-1).tokens
}

// Cache is the counters of one rank since it started, in tokens.
type Cache struct {
	Queries, Hits int // tokens that it looked up in the prefix cache, and found
	Computed      int // prompt tokens that it computed
	Generated     int
}

// Cache returns the counters of rank.
func (s *Sim) Cache(rank int) Cache {
	e := s.ranks[rank].engine
	e.mu.Lock()
	defer e.mu.Unlock()
	t := &e.stats
	return Cache{Queries: t.queries, Hits: t.hits, Computed: t.promptTokens - t.promptHits, Generated: t.outputs}
}

// ResetPrefixCache empties the prefix cache of every rank, as POST /reset_prefix_cache
// does. It reports whether every rank could.
func (s *Sim) ResetPrefixCache() bool {
	ok := true
	for _, k := range s.ranks {
		ok = k.reset() && ok
	}
	return ok
}

// Published returns the number of batches that rank has published, which is the sequence
// number of the next one.
func (s *Sim) Published(rank int) uint64 {
	p := s.ranks[rank].events
	if p == nil {
		return 0
	}
	return p.Seq()
}
