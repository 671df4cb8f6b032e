package brain

import (
	"fmt"
	"time"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/lab/simulator"
	"warmroute/prefixhash"
)

// Options configures a Brain.
type Options struct {
	Replicas    int            // required
	Block       int            // tokens per block, required
	Policy      policy.Config  // as in the router's configuration
	FirstTokens bool           // First reports first tokens; else the brain finds them by events
	Groups      Groups         // the KV cache groups that the brain follows
	Seed        uint64         // of ties
	Peers       decision.Peers // other routers; nil = there are none
	Split       bool           // prompts may be computed by other replicas than those that answer
	Prefill     int            // so many of the first replicas only compute prompts
	Source      Source         // where matches come from
	Capacity    int            // tokens of a replica's cache; 0 = not known
	Store       bool           // the replicas' tier below the GPU is one store of all; else it is CPU memory of each
}

// Source says what a brain knows of the replicas' caches.
type Source string

const (
	Events  Source = ""        // the replicas report their blocks
	History Source = "history" // they do not, and prompts are known by their token ids
	Text    Source = "text"    // they do not, and prompts are known as text
)

// Sources are the names of the sources, for command lines.
var Sources = map[string]Source{"events": Events, "history": History, "text": Text}

// model is the served model's id.
const model = "m"

// maxReplicas is the number of replicas that an index has room for.
const maxReplicas = 4096

// forever is longer than any simulation.
const forever = 10 * 365 * 24 * time.Hour

// scrapeEvery is how often the router reads metrics.
const scrapeEvery = time.Second

// Brain is a router without requests. See the package comment.
type Brain struct {
	o            Options
	now          time.Time
	fleet        *fleet.Snapshot
	replicas     []*fleet.Replica
	at           map[string]int // replica by address
	index        *index.Index
	ledger       *load.Ledger
	decider      *decision.Decider
	work         decision.Work
	ask          decision.Ask
	prompt       prompt
	text         []byte
	chain        []prefixhash.Key
	incarnations []uint64                  // incarnation by replica
	parents      map[int64]int64           // block → the block before it in requests; -1 = first block
	open         map[int]decision.Decision // by request id
	tickets      map[int]decision.Decision // of held requests by id; nil: none may be held
	batch        index.Batch
	scraped      time.Time
}

// start is the beginning of virtual time: any time but zero.
var start = time.Unix(1_700_000_000, 0)

// New returns a brain at time 0.
func New(o Options) (*Brain, error) {
	if o.Replicas < 1 || o.Replicas > maxReplicas || o.Block < 1 {
		return nil, fmt.Errorf("policy: %d replicas with blocks of %d tokens: both must be positive, and at most %d replicas", o.Replicas, o.Block, maxReplicas)
	}
	book, err := policy.NewBook(o.Policy)
	if err != nil {
		return nil, err
	}
	b := &Brain{o: o, now: start, at: map[string]int{}, parents: map[int64]int64{}, open: map[int]decision.Decision{}}
	clock := func() time.Time { return b.now }
	b.index = index.New(index.Options{Now: clock, ReplicaTTL: forever, CPUTTL: forever, StorageTTL: forever})
	b.ledger = load.NewLedger(clock)
	for i := range o.Replicas {
		// Addresses that sort like numbers.
		r := &fleet.Replica{
			Addr: fmt.Sprintf("10.0.%d.%d:8000", 100+i/100, 100+i%100), Ready: true, Ranks: []int{0}, Reported: fleet.Reported{BlockSize: o.Block, Models: []fleet.Model{{ID: model, Base: model}}, Events: []fleet.EventSource{{Endpoint: "tcp://virtual"}}},
		}
		if o.Source != Events {
			r.Events, r.NoEvents = nil, true
		}
		r.Blocks = o.Capacity / o.Block
		if o.Split {
			r.Version, r.Transfer = "0", fleet.Transfer{Connector: "simulated"}
		}
		if o.Store {
			r.Store = "simulated"
		}
		if i < o.Prefill {
			r.Role = fleet.RolePrefill
		}
		b.replicas = append(b.replicas, r)
		b.at[r.Addr] = i
		if o.Groups == EveryGroup {
			b.index.SetGroups(r.Addr, &index.GroupSettings{Rule: index.GroupRule032, EagleKnown: true, ReplayKnown: true})
		}
		b.incarnations = append(b.incarnations, b.index.Begin(index.Holder{Replica: r.Addr}))
	}
	b.fleet = fleet.NewSnapshot(b.replicas...)
	b.decider = decision.New(b, b.index, b.ledger, book, decision.Options{Now: clock, Seed: o.Seed, Peers: o.Peers})
	return b, nil
}

// Close frees the brain's memory.
func (b *Brain) Close() { b.index.Close() }

// Snapshot returns the fleet, for the decider.
func (b *Brain) Snapshot() *fleet.Snapshot { return b.fleet }

// To sets the clock to t seconds. It never goes back.
func (b *Brain) To(t float64) {
	if next := start.Add(time.Duration(t * 1e9)); next.After(b.now) {
		b.now = next
	}
}

// Route returns the replica for a request; -1 = no hint, Held = it waits. blocks are chained
// ids; the last block may be partial.
func (b *Brain) Route(id, input int, blocks []int64) int {
	parent := int64(-1)
	b.prompt.keys = b.prompt.keys[:0]
	for _, block := range blocks {
		if _, ok := b.parents[block]; !ok {
			b.parents[block] = parent
		}
		parent = block
		b.prompt.keys = append(b.prompt.keys, key(block))
	}
	b.prompt.input, b.prompt.last = input, 0
	if b.o.Groups != OneGroup || b.o.Source == History {
		b.prompt.chain(b.o.Block)
	}
	b.ask = decision.Ask{Model: model, Prompts: &b.prompt, MaySplit: b.o.Split, MayHold: b.tickets != nil, Ticket: b.tickets[id].Held}
	if b.o.Source == Text {
		b.readText(input, blocks)
	}
	d := b.decider.Decide(&b.ask, &b.work)
	if d.Held != nil {
		b.tickets[id] = d
		return Held
	}
	delete(b.tickets, id)
	if d.Reservation == nil {
		return -1
	}
	if b.o.Source != Events {
		d.Seq = uint64(id) + 1
		b.decider.Await(&d, "", &b.work)
	}
	b.open[id] = d
	return b.at[d.First()]
}

// Prefill returns the replica that computes the prompt of a request that another one
// answers; -1 = there is none.
func (b *Brain) Prefill(id int) int {
	d, ok := b.open[id]
	if !ok || d.Split == nil {
		return -1
	}
	return b.at[d.Split.Prefill]
}

// Prefilled records that it has.
func (b *Brain) Prefilled(id int) {
	if d, ok := b.open[id]; ok && d.Split != nil {
		d.Split.Done(0)
	}
}

// follow records the blocks of an answer, which come after those of its prompt.
func (b *Brain) follow(prompt, answer []int32) {
	parent := int64(-1)
	if n := len(prompt); n > 0 {
		parent = int64(prompt[n-1])
	}
	for _, block := range answer {
		if _, ok := b.parents[int64(block)]; !ok {
			b.parents[int64(block)] = parent
		}
		parent = int64(block)
	}
}

// Routed records the replica that really got a request.
func (b *Brain) Routed(id, replica int) {
	if d, ok := b.open[id]; ok && replica >= 0 && replica < len(b.replicas) {
		b.decider.Served(&d, b.replicas[replica].Addr)
	}
}

// First records that a request's first token came.
func (b *Brain) First(id int) {
	if d, ok := b.open[id]; ok && b.o.FirstTokens {
		d.Reservation.FirstToken()
	}
}

// Done records that a request ended well.
func (b *Brain) Done(id int) {
	if d, ok := b.open[id]; ok {
		d.Reservation.Answered(200)
		d.Reservation.Ended(true)
		d.Reservation.Release()
		delete(b.open, id)
	}
}

// Counted records what the replica says of the answer to a request that is done.
func (b *Brain) Counted(id int, n decision.Counted) {
	if b.o.Source != Events {
		b.decider.Answered(uint64(id)+1, "", n, true, false)
	}
}

// tier is the tier below the replicas' GPUs.
func (b *Brain) tier() index.Tier {
	if b.o.Store {
		return index.TierStorage
	}
	return index.TierCPU
}

// Stored records that a replica published blocks as stored. An event of vLLM has the
// blocks of one request; the caller does not say which blocks share one, so each block
// becomes an event of its own.
func (b *Brain) Stored(replica int, blocks []int64) error {
	if b.o.Source != Events {
		return nil
	}
	return b.stored(replica, index.TierGPU, blocks)
}

// Kept records that a replica published blocks as copied to its tier below the GPU.
func (b *Brain) Kept(replica int, blocks []int64) error { return b.stored(replica, b.tier(), blocks) }

// Dropped records that blocks were evicted from a replica's tier below the GPU. One store of
// all replicas has lost them for all.
func (b *Brain) Dropped(replica int, blocks []int64) error {
	if !b.o.Store {
		return b.removed(replica, b.tier(), blocks)
	}
	for i := range b.replicas {
		if err := b.removed(i, b.tier(), blocks); err != nil {
			return err
		}
	}
	return nil
}

func (b *Brain) stored(replica int, tier index.Tier, blocks []int64) error {
	b.batch.Events = b.batch.Events[:0]
	engine := make([]uint64, len(blocks))
	scope := index.Scope{Model: model, Scheme: index.SchemeTokens, BlockSize: b.o.Block}
	for i, block := range blocks {
		engine[i] = uint64(key(block))
		parent, known := b.parents[block]
		if !known {
			return fmt.Errorf("block %d was stored before any request had it", block)
		}
		e := index.Event{Kind: index.Stored, Tier: tier, Scope: scope, Hashes: engine[i : i+1]}
		if parent >= 0 {
			e.HasParent, e.Parent = true, uint64(key(parent))
		}
		b.batch.Events = append(b.batch.Events, e)
	}
	return b.apply(replica)
}

// Removed records that a replica published blocks as removed.
func (b *Brain) Removed(replica int, blocks []int64) error {
	if b.o.Source != Events {
		return nil
	}
	return b.removed(replica, index.TierGPU, blocks)
}

func (b *Brain) removed(replica int, tier index.Tier, blocks []int64) error {
	engine := make([]uint64, len(blocks))
	for i, block := range blocks {
		engine[i] = uint64(key(block))
	}
	b.batch.Events = append(b.batch.Events[:0], index.Event{Kind: index.Removed, Tier: tier, Hashes: engine})
	return b.apply(replica)
}

func (b *Brain) apply(replica int) error {
	if replica < 0 || replica >= len(b.replicas) {
		return fmt.Errorf("there is no replica %d", replica)
	}
	b.batch.Holder = index.Holder{Replica: b.replicas[replica].Addr}
	b.batch.Incarnation = b.incarnations[replica]
	if _, err := b.index.Apply(&b.batch); err != nil {
		return err
	}
	b.ledger.Applied(&b.batch)
	return nil
}

// Scraped sets every replica's metrics, at most once a second.
func (b *Brain) Scraped(pages []simulator.Page) {
	if b.now.Sub(b.scraped) < scrapeEvery {
		return
	}
	b.scraped = b.now
	next := make([]*fleet.Replica, len(b.replicas))
	for i, r := range b.replicas {
		c := *r
		c.Load = []fleet.Load{{Running: float64(pages[i].Running), Waiting: float64(pages[i].Waiting), KVUsage: pages[i].KVUsage, At: b.now}}
		c.Load[0].Answers = fleet.Answers{Count: pages[i].Answers, Tokens: pages[i].AnswerTokens}
		c.Load[0].Decode = fleet.Spent{Requests: pages[i].Answers, Seconds: pages[i].AnswerSeconds}
		next[i] = &c
	}
	b.replicas, b.fleet = next, fleet.NewSnapshot(next...)
}

// key returns the index key of a block id: an odd factor spreads small numbers, and no key
// is 0.
func key(block int64) prefixhash.Key {
	return prefixhash.Key(uint64(block+1) * 0x9E3779B97F4A7C15)
}
