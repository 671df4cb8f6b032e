package kvevents

import (
	"cmp"
	"log/slog"
	"time"

	"warmroute/index"
	"warmroute/internal/problems"
	"warmroute/prefixhash"
)

// Sink takes decoded events. *index.Index is one. Apply must not keep the batch or anything
// in it. Apply's index.ErrIncarnation means that the Sink let the holder go (it was silent
// for too long): the Subscriber begins it again, so stop the Subscriber of a replica before
// removing it for good.
type Sink interface {
	// Begin removes h's blocks and starts a new incarnation.
	Begin(h index.Holder) (incarnation uint64)
	// Apply applies one batch.
	Apply(b *index.Batch) (index.Result, error)
}

// Options configure a Subscriber.
type Options struct {
	Replica string // "ip:port", the holder's name
	Rank    int    // data-parallel rank behind Endpoint

	Endpoint       string // the publisher's PUB socket, tcp://host:port or ipc://path
	ReplayEndpoint string // its ROUTER socket; "" = none: a hole then costs all known blocks
	Topic          string // subscription prefix; "" = all

	Tenant string // "" is the shared tenant
	Model  string // the base model's canonical name
	Scheme string // index.SchemeTokens (the default), or an engine's own: see IsEngineScheme
	// Adapter reads the events of the publisher's engine. Default VLLM().
	Adapter Adapter
	// AdapterPath, when set, returns where the replica has loaded an adapter from, "" if that is
	// unknown. With ask it should ask the replica; it may wait for the answer, not for long.
	AdapterPath func(name string, ask bool) string
	// Full means that the replica announces blocks again that it already holds (vLLM's
	// kv_cache_report_mode full): they do not count as second copies.
	Full bool

	// Hashes are the chains that the publisher may compute, the likeliest first; its events
	// show which. Unit is its prefix_match_unit, 0 when not given; with Presume, the first
	// of Hashes is assumed until disproved.
	Hashes  []*prefixhash.VLLM
	Unit    int
	Presume bool

	// ProbeEvery is the time between replays of last+1, which are requested because a lost
	// last batch leaves no gap. Default 30 s.
	ProbeEvery time.Duration
	// ProbeQuiet is the time after the last event at which one more such probe is made:
	// after a burst a lost batch would stay unseen. Default 1 s.
	ProbeQuiet time.Duration
	// ReplayPatience is how long a replay may be silent before it counts as
	// failed; live events wait that long. Default 3 s: the publisher serves
	// replays between two batches.
	ReplayPatience time.Duration
	// ReplayWithin is how long a replay may take. A replay that takes longer, or brings
	// more than 262,144 batches, counts as one without an end: all known blocks are
	// dropped, and the live events go on. Default 2 min.
	ReplayWithin time.Duration
	// RetryAfter is the wait before a failed connection or replay is tried again. It
	// doubles up to 5 s while no connection lasts. Default 200 ms: long enough for a busy
	// publisher (vLLM's looks for replays every 0.1 s), short enough to find a restarted
	// one within a fraction of a second.
	RetryAfter time.Duration
	// DrainWithin bounds the time for which Run, when its context ends, still applies
	// received batches. 0 = it drops them, for a Sink that ends too.
	DrainWithin time.Duration

	// Resume, when set, is the place up to which the Sink holds this publisher's batches
	// already, under Resume.Incarnation. The publisher must confirm within ResumeWithin
	// (default 10 s) that it published the batch before that place, and give the batches
	// since; otherwise the Sink drops its blocks and history comes again. Ignored without a
	// replay endpoint.
	Resume       *index.Cursor
	ResumeWithin time.Duration

	// Empty means that the publisher has discarded its cache and not told of it yet: what the
	// first replay brings is gone.
	Empty bool

	// Room bounds the bytes of events in memory, for all subscribers that share it.
	// Default: one of its own.
	Room *Room

	Now func() time.Time // default index.Now
	Log *slog.Logger     // default: none. Never given token ids, salts or payloads.
	// Observe, when set, is called with every batch before it is applied, in order. The
	// batch is valid during the call only and holds token ids.
	Observe func(seq uint64, b *Batch)
	// Forgot, when set, is called after a Begin that dropped the holder's blocks, with the
	// cause.
	Forgot func(why index.Loss)
	// Following, when set, is called at the start of Run and whenever the publisher begins or
	// ceases to be connected, in order.
	Following func(connected bool)
}

func (o *Options) validate() error {
	var p problems.List
	p.Refuse(o.Replica == "", "replica", "must not be empty")
	p.Refuse(o.Rank < 0, "rank", "%d is negative", o.Rank)
	p.Refuse(o.Model == "", "model", "must not be empty")
	p.Add("", CheckEndpoint(o.Endpoint))
	if o.ReplayEndpoint != "" {
		p.Add("replay ", CheckEndpoint(o.ReplayEndpoint))
	}
	p.Refuse(o.Scheme != index.SchemeTokens && !IsEngineScheme(o.Scheme), "scheme", "%q is none of %s, %s and %s:NAME", o.Scheme, index.SchemeTokens, SchemeEngine, SchemeEngine)
	return p.Err()
}

func (o *Options) defaults() {
	if o.Adapter == nil {
		o.Adapter = VLLM()
	}
	o.ProbeEvery = cmp.Or(max(o.ProbeEvery, 0), 30*time.Second)
	o.ProbeQuiet = cmp.Or(max(o.ProbeQuiet, 0), time.Second)
	o.ReplayPatience = cmp.Or(max(o.ReplayPatience, 0), 3*time.Second)
	o.ReplayWithin = cmp.Or(max(o.ReplayWithin, 0), 2*time.Minute)
	o.RetryAfter = cmp.Or(max(o.RetryAfter, 0), 200*time.Millisecond)
	o.ResumeWithin = cmp.Or(max(o.ResumeWithin, 0), 10*time.Second)
	o.Scheme = cmp.Or(o.Scheme, index.SchemeTokens)
	if o.Room == nil {
		o.Room = NewRoom()
	}
	if o.Now == nil {
		o.Now = index.Now
	}
	if o.Following == nil {
		o.Following = func(bool) {}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
}
