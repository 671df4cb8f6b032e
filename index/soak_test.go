package index

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/race"
)

// After its content has come and gone many times, an index takes at most a tenth more
// memory than a new one that was filled with the final content. WARMROUTE_SOAK_BLOCKS
// sets how many blocks are stored and removed; the full size is 50,000,000 over 500,000
// live ones.
func TestSoakKeepsNoMemory(t *testing.T) {
	events := 1_000_000
	if testing.Short() || race.Enabled {
		events = 100_000
	}
	if text := os.Getenv("WARMROUTE_SOAK_BLOCKS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10_000 {
			t.Fatalf("WARMROUTE_SOAK_BLOCKS is %q, want a number of at least 10,000", text)
		}
		events = n
	}
	live := min(500_000, events/20)
	x := New(Options{})
	defer x.Close()
	churnPrompts(t, x, events, live)
	x.Sweep()
	y := New(Options{})
	defer y.Close()
	if res := y.Restore(x.Snapshot()); res.Dropped != 0 {
		t.Fatalf("restoring: %+v", res)
	}
	used, fresh := x.counts(), y.counts()
	if used.Blocks != fresh.Blocks || used.Hashes != fresh.Hashes {
		t.Fatalf("%d blocks and %d hashes, restored %d and %d", used.Blocks, used.Hashes, fresh.Blocks, fresh.Hashes)
	}
	t.Logf("%d blocks of %d stored: %d bytes after, %d fresh (%.2f)", used.Blocks, events, used.Bytes, fresh.Bytes, float64(used.Bytes)/float64(fresh.Bytes))
	if float64(used.Bytes) > 1.1*float64(fresh.Bytes) {
		t.Errorf("%d bytes for %d blocks, want at most a tenth more than the %d of a fresh index", used.Bytes, used.Blocks, fresh.Bytes)
	}
}

// churnPrompts stores prompts and removes the oldest, leaf first.
func churnPrompts(t *testing.T, x *Index, events, live int) {
	t.Helper()
	rng := rand.New(rand.NewPCG(5, 5))
	const replicas = 8
	s := Scope{Model: "m", Scheme: SchemeTokens, BlockSize: 16}
	type prompt struct{ hashes []uint64 }
	var queues [replicas][]prompt
	var held [replicas]int
	b := make([]Batch, replicas)
	for r := range replicas {
		h := Holder{Replica: "r" + strconv.Itoa(r)}
		b[r] = Batch{Holder: h, Incarnation: x.Begin(h)}
	}
	end := time.Now().Add(20 * time.Minute)
	for stored := 0; stored < events; {
		r := rng.IntN(replicas)
		ev := Event{Kind: Stored, Scope: s}
		for range 16 + rng.IntN(112) {
			v := rng.Uint64()
			ev.Hashes = append(ev.Hashes, v|1)
			ev.Content = append(ev.Content, prefixhash.Content(v))
		}
		stored += len(ev.Hashes)
		b[r].Events = []Event{ev}
		queues[r] = append(queues[r], prompt{ev.Hashes})
		held[r] += len(ev.Hashes)
		for held[r] > live/replicas {
			old := slices.Clone(queues[r][0].hashes)
			queues[r] = queues[r][1:]
			held[r] -= len(old)
			slices.Reverse(old)
			b[r].Events = append(b[r].Events, Event{Kind: Removed, Hashes: old})
		}
		if res, err := x.Apply(&b[r]); err != nil || res.Dropped+res.Unknown > 0 {
			t.Fatalf("%+v, %v", res, err)
		}
		if time.Now().After(end) {
			t.Fatalf("only %d blocks in 20 minutes", stored)
		}
	}
}
