package feed

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/index/indexpb"
	"warmroute/internal/fleet"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/testenv/rpc"
	"warmroute/render/testkit/must"
)

// serve offers the harness's index to peers.
func (h *harness) serve() indexpb.CacheIndexClient {
	h.t.Helper()
	s := indexrpc.New(h.index, indexrpc.Options{Cursors: h.feed.Cursors})
	return indexpb.NewCacheIndexClient(rpc.Dial(h.t, func(ctx context.Context, l net.Listener) error { return s.Serve(ctx, l) }))
}

// fetch takes over from a peer and returns how many blocks came.
func (h *harness) fetch(from indexpb.CacheIndexClient) int {
	h.t.Helper()
	cursors, res, err := indexrpc.Fetch(h.t.Context(), from, h.index)
	must.Do(h.t, err)
	h.feed.Resume(cursors)
	return res.Stored
}

// contents lists the holders' blocks, as "holder tier hash is key ×copies".
func (h *harness) contents() []string {
	all := map[string]bool{}
	for e := range h.index.Snapshot() {
		all[fmt.Sprintf("%s/%d tier %d %x is %x ×%d", e.Holder.Replica, e.Holder.Rank, e.Tier, e.Hash, e.Key, 1+e.Extra)] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// follows: every subscription has caught up with its publisher's history; later
// batches come live if the publisher has heard of it, too.
func (h *harness) follows() bool {
	return !slices.ContainsFunc(h.feed.Status(), func(r Replica) bool {
		return slices.ContainsFunc(r.Ranks, func(k Rank) bool { return !k.Connected || !k.Status.Synced })
	})
}

// heard waits until a publisher has its subscriber: a replay answers before that,
// and batches published in between are lost once the short buffer is full.
func heard(t *testing.T, publishers ...*kvtest.Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, p := range publishers {
		must.Do(t, p.WaitSubscribers(ctx, 1))
	}
}

// publisher is a replica whose events the test writes.
func publisher(t *testing.T, addr string, o kvtest.Options) (*kvtest.Publisher, *fleet.Replica) {
	t.Helper()
	p := must.Get(kvtest.Start(o))(t)
	t.Cleanup(p.Close)
	return p, &fleet.Replica{Addr: addr, Ready: true, Reported: fleet.Reported{BlockSize: 2, Models: []fleet.Model{{ID: "m", Base: "m"}}, Events: []fleet.EventSource{{Endpoint: p.Endpoint(), ReplayEndpoint: p.ReplayEndpoint()}}}, Ranks: []int{0}}
}

// prompt is n blocks whose hashes begin at first.
func prompt(first uint64, n int) kvtest.Event {
	e := kvtest.Event{Kind: kvtest.Stored, BlockSize: 2}
	for i := range n {
		e.Hashes = append(e.Hashes, first+uint64(i))
		e.Tokens = append(e.Tokens, uint32(first), uint32(i))
	}
	return e
}

func removal(hashes ...uint64) kvtest.Event {
	return kvtest.Event{Kind: kvtest.Removed, Hashes: hashes}
}

// TestARestartedRouterTakesOver blocks that no replay buffer has any more, and no
// stale block: of a replica that went on, a replica that began a new life, a
// replica that lost its replay buffer, a silent replica, and a replica that is
// gone.
func TestARestartedRouterTakesOver(t *testing.T) {
	old := newHarness(t)
	short := kvtest.Options{BufferSteps: 3}
	wentOn, r1 := publisher(t, "10.0.0.1:8000", short)
	anew, r2 := publisher(t, "10.0.0.2:8000", short)
	lost, r3 := publisher(t, "10.0.0.3:8000", short)
	mute, r4 := publisher(t, "10.0.0.4:8000", short)
	_, r5 := publisher(t, "10.0.0.5:8000", short)
	replicas := []*fleet.Replica{r1, r2, r3, r4, r5}
	publishers := []*kvtest.Publisher{wentOn, anew, lost, mute}
	for _, r := range replicas {
		old.feed.Join(r)
	}
	old.until("the first router follows all", old.follows)
	heard(t, publishers...)
	for _, p := range publishers {
		for i := range uint64(10) {
			p.Publish(prompt(100*(i+1), 4))
		}
		p.Publish(prompt(100, 4)) // second copies
	}
	for _, r := range replicas[:4] {
		old.until("the first router knows all", func() bool { return old.holdings(r.Addr) == 40 && second(old.contents(), r.Addr) == 4 })
	}
	old.until("all places are known", func() bool { return len(old.feed.Cursors()) == 4 })

	peer := old.serve()
	next := another(t)
	next.feed.o.SyncTimeout = time.Hour
	if n := next.fetch(peer); n != 160 {
		t.Fatalf("%d blocks came", n)
	}
	if got, want := next.contents(), old.contents(); !slices.Equal(got, want) {
		t.Fatalf("restored\n%v\nof\n%v", got, want)
	}

	// The gap.
	wentOn.Publish(removal(203, 202, 100), prompt(2000, 2))
	anew.Restart()
	anew.Publish(prompt(3000, 3))
	for i := range uint64(4) {
		lost.Publish(removal(300 + i)) // one more than its buffer keeps
	}
	mute.Mute(true)
	for _, r := range replicas[:3] {
		next.feed.Join(r)
	}
	next.until("the replica that went on is caught up with", func() bool {
		return next.holdings(r1.Addr) == 40 && slices.Equal(of(next.contents(), r1.Addr), of(old.contents(), r1.Addr))
	})
	next.until("only the new life's blocks are known", func() bool { return next.holdings(r2.Addr) == 3 })
	next.until("what was lost costs all, but leaves nothing stale", func() bool { return next.holdings(r3.Addr) == 0 })
	hasty := another(t) // the others shall not be confirmed too late
	hasty.feed.o.SyncTimeout = time.Second
	hasty.fetch(peer)
	hasty.feed.Join(r4)
	hasty.until("what nobody confirms is forgotten", func() bool { return hasty.holdings(r4.Addr) == 0 })
	wentOn.Publish(removal(100))
	next.until("the second copy was counted: without it, three blocks go behind the first", func() bool { return next.holdings(r1.Addr) == 36 })
}

// second counts a replica's blocks of which it holds two copies.
func second(lines []string, addr string) (n int) {
	for _, l := range of(lines, addr) {
		if strings.HasSuffix(l, "×2") {
			n++
		}
	}
	return n
}

// of is the lines about one replica.
func of(lines []string, addr string) (out []string) {
	for _, l := range lines {
		if strings.HasPrefix(l, addr) {
			out = append(out, l)
		}
	}
	return out
}

// TestWhatNobodyTakesOverIsForgotten: a replica that left between the snapshot
// and the start, and one whose events are now read in another way.
func TestWhatNobodyTakesOverIsForgotten(t *testing.T) {
	old := newHarness(t)
	_, left := publisher(t, "10.0.0.1:8000", kvtest.Options{})
	other, renamed := publisher(t, "10.0.0.2:8000", kvtest.Options{BufferSteps: 1})
	gone, _ := publisher(t, "", kvtest.Options{})
	left.Events[0].Endpoint, left.Events[0].ReplayEndpoint = gone.Endpoint(), gone.ReplayEndpoint()
	for _, r := range []*fleet.Replica{left, renamed} {
		old.feed.Join(r)
	}
	old.until("the first router follows both", old.follows)
	heard(t, gone, other)
	for _, p := range []*kvtest.Publisher{gone, other} {
		p.Publish(prompt(100, 4))
		p.Publish(prompt(200, 4))
	}
	old.until("all is known", func() bool {
		return old.holdings(left.Addr) == 8 && old.holdings(renamed.Addr) == 8 && len(old.feed.Cursors()) == 2
	})
	next := another(t)
	next.feed.o.SyncTimeout = 200 * time.Millisecond
	cursors, _, err := indexrpc.Fetch(t.Context(), old.serve(), next.index)
	if err != nil || next.holdings(left.Addr) != 8 || next.holdings(renamed.Addr) != 8 {
		t.Fatal("not restored", err)
	}
	next.feed.Resume(cursors)
	again := *renamed
	again.Tenant = "now somebody's own"
	next.feed.Join(&again)
	next.until("the renamed one begins anew", func() bool { return next.holdings(renamed.Addr) == 4 })
	next.until("the one that left is forgotten", func() bool { return next.holdings(left.Addr) == 0 })
}

// TestTakingOverDuringIngest: the snapshot is read while blocks come and go; in
// the end both routers know the same, and nothing is left when all is removed.
func TestTakingOverDuringIngest(t *testing.T) {
	old := newHarness(t)
	p, r := publisher(t, "10.0.0.1:8000", kvtest.Options{})
	old.feed.Join(r)
	client := old.serve()
	rng := rand.New(rand.NewPCG(1, 2))
	copies := map[uint64]int{}
	churn := func(n int) {
		for range n {
			first := uint64(1+rng.IntN(300)) * 100
			switch {
			case rng.IntN(3) > 0:
				p.Publish(prompt(first, 4))
				for i := range uint64(4) {
					copies[first+i]++
				}
			default:
				for i := uint64(4); i > 0; i-- {
					if copies[first+i-1] > 0 {
						p.Publish(removal(first + i - 1))
						copies[first+i-1]--
					}
				}
			}
		}
	}
	churn(2000)
	old.until("there is a place", func() bool { return len(old.feed.Cursors()) == 1 && old.holdings(r.Addr) > 400 })
	var busy sync.WaitGroup
	busy.Go(func() { churn(3000) })
	next := another(t)
	if next.fetch(client) == 0 {
		t.Error("nothing was restored")
	}
	next.feed.Join(r)
	busy.Wait()
	held := 0
	for _, n := range copies {
		held += min(n, 1)
	}
	for name, h := range map[string]*harness{"the first": old, "the restarted": next} {
		h.until(name+" router has begun", func() bool {
			st := h.feed.Status()
			return len(st) == 1 && st[0].Synced && st[0].Ranks[0].HasSeq
		})
		h.catchUp(p)
	}
	if got := old.holdings(r.Addr); got != held {
		t.Fatalf("the first router has %d blocks of %d", got, held)
	}
	// Copies may be undercounted, never over: nothing outlives its last removal.
	if got := next.holdings(r.Addr); got > held || got < held*9/10 {
		t.Errorf("the restarted router has %d blocks of %d", got, held)
	}
	for hash, n := range copies {
		for range n {
			p.Publish(removal(hash))
		}
	}
	next.catchUp(p)
	if got := next.contents(); len(got) != 0 {
		t.Errorf("%d left, %.3v …", len(got), got)
	}
}

// catchUp waits until the newest batch is applied. Publish returns each batch's sequence,
// so a batch that says nothing has the newest.
func (h *harness) catchUp(p *kvtest.Publisher) {
	h.t.Helper()
	seq := p.Publish()
	h.until("the newest batch is applied", func() bool { return h.feed.Status()[0].Ranks[0].LastSeq >= seq })
}
