package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/render/testkit/must"
)

// node is one publisher and the true contents of its cache. Its driver is one goroutine;
// faults are decided under the publisher's own lock.
type node struct {
	holder  index.Holder
	pub     *kvtest.Publisher
	o       kvtest.Options
	prompts *prompts
	truth   *record
	rng     *rand.Rand
	lossy   bool // history can be lost for good: the index may know less, never more
	tally   tally
}

// tally counts a publisher's actions and faults.
type tally struct {
	published, dropped, held, lost int // batches; live copies that never came, came late, and are not replayed either
	cutOff, restarts, resets       int
}

func (t *tally) add(o tally) {
	t.published, t.dropped, t.held, t.lost = t.published+o.published, t.dropped+o.dropped, t.held+o.held, t.lost+o.lost
	t.cutOff, t.restarts, t.resets = t.cutOff+o.cutOff, t.restarts+o.restarts, t.resets+o.resets
}

// nodeOptions are the eight publishers: both wire generations, hashes as
// numbers and bytes, whole history, too little of it, and none at all.
var nodeOptions = []struct {
	kvtest.Options
	lossy bool
}{
	{Options: kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Maps}}},
	{Options: kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Maps, Bytes: true}}},
	{Options: kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Arrays}, OldReplies: true}},
	{Options: kvtest.Options{Encoding: kvtest.Encoding{Generation: kvtest.Arrays, Bytes: true}, OldReplies: true}},
	{Options: kvtest.Options{Topic: "kv@cache"}},
	{Options: kvtest.Options{BufferSteps: 4}, lossy: true},
	{Options: kvtest.Options{BufferSteps: 32, Encoding: kvtest.Encoding{Generation: kvtest.Maps}}, lossy: true},
	{Options: kvtest.Options{NoReplay: true}, lossy: true},
}

// newNode starts a publisher that is driven to so many steps at most, each of
// one batch: so many are its whole history.
func newNode(t *testing.T, i int, seed uint64, p *prompts, steps int) *node {
	t.Helper()
	o := nodeOptions[i]
	if !o.lossy {
		o.BufferSteps = steps
	}
	pub := must.Get(kvtest.Start(o.Options))(t)
	t.Cleanup(pub.Close)
	return &node{
		holder: index.Holder{Replica: fmt.Sprintf("10.0.0.%d:8000", i+1)}, pub: pub, o: o.Options, prompts: p,
		truth: newRecord(), rng: rand.New(rand.NewPCG(seed, uint64(i))), lossy: o.lossy,
	}
}

func (n *node) source() source {
	return source{n.holder, n.pub.Endpoint(), n.pub.ReplayEndpoint(), n.o.Topic}
}

// faulty makes the publisher lose and delay live copies, or ends that.
func (n *node) faulty(on bool, seed uint64) {
	if !on {
		n.pub.Fault(nil)
		return
	}
	rng := rand.New(rand.NewPCG(seed, 99))
	n.pub.Fault(func(uint64) kvtest.Fate {
		switch p := rng.IntN(1000); {
		case p < 50:
			n.tally.dropped++
			return kvtest.Drop
		case p < 70:
			n.tally.held++
			return kvtest.Hold
		case p < 73 && n.lossy:
			n.tally.lost++
			return kvtest.Lose
		}
		return kvtest.Deliver
	})
}

// step does one thing that a replica does, or one that befalls it.
func (n *node) step() {
	switch p := n.rng.IntN(1000); {
	case p < 4:
		n.pub.Disconnect()
		n.tally.cutOff++
	case p < 6 && !n.o.NoReplay: // without replay a new process whose sequence fits cannot be distinguished from the old
		n.pub.Restart()
		n.tally.restarts++
		n.truth.clear(time.Now())
	case p < 9:
		n.reset()
	case p < 350:
		n.evict()
	default:
		n.extend(&n.prompts.chains[n.rng.IntN(chains)])
	}
}

// publish is the only way to the publisher: one batch.
func (n *node) publish(events ...kvtest.Event) {
	n.pub.Publish(events...)
	n.tally.published++
}

// reset clears the cache: the event travels with the batch of the next request.
func (n *node) reset() {
	n.truth.clear(time.Now())
	n.tally.resets++
	n.publish(append([]kvtest.Event{{Kind: kvtest.Cleared}}, n.stored(&n.prompts.chains[n.rng.IntN(chains)])...)...)
}

// extend serves a prompt: the first blocks missing are stored.
func (n *node) extend(c *chain) {
	if events := n.stored(c); events != nil {
		n.publish(events...)
	}
}

func (n *node) stored(c *chain) []kvtest.Event {
	from := 0
	for from < chainLen && n.truth.holds(c.hashes[from]) {
		from++
	}
	to := from
	for most := from + 1 + n.rng.IntN(chainLen); to < min(most, chainLen) && !n.truth.holds(c.hashes[to]); {
		to++
	}
	if from == to {
		return nil
	}
	e := kvtest.Event{Kind: kvtest.Stored, Hashes: c.hashes[from:to], Tokens: c.tokens[from*blockSize : to*blockSize], BlockSize: blockSize}
	if from > 0 {
		e.Parent = &c.hashes[from-1]
	}
	n.truth.store(e.Hashes...)
	return []kvtest.Event{e}
}

// evict removes a few blocks as vLLM does: the last ones of prompts.
func (n *node) evict() {
	var out []uint64
	first := n.rng.IntN(chains)
	for most := 1 + n.rng.IntN(3); len(out) < most; {
		h, ok := n.last(first)
		if !ok {
			break
		}
		n.truth.remove(time.Now(), h)
		out = append(out, h)
	}
	if len(out) > 0 {
		n.publish(kvtest.Event{Kind: kvtest.Removed, Hashes: out})
	}
}

// last returns the last block of a chain, or of one after it, that no block of another stands
// behind.
func (n *node) last(from int) (hash uint64, ok bool) {
	for i := range chains {
		hashes := n.prompts.chains[(from+i)%chains].hashes
		at := 0
		for at < chainLen && n.truth.holds(hashes[at]) {
			at++
		}
		if at > 0 && !slices.ContainsFunc(n.prompts.chains[:], func(c chain) bool {
			return at < chainLen && c.hashes[at-1] == hashes[at-1] && n.truth.holds(c.hashes[at])
		}) {
			return hashes[at-1], true
		}
	}
	return 0, false
}

// nudge publishes one more batch, in any state of the cache.
func (n *node) nudge() {
	if len(n.truth.all()) > 0 {
		n.evict()
		return
	}
	n.extend(&n.prompts.chains[0])
}
