package main

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

// replayer feeds a stream to an index.
type replayer struct {
	s       *stream
	x       *index.Index
	scope   index.Scope
	inc     []uint64
	holders []index.Holder
	batches []index.Batch      // by op; empty for queries
	queries [][]prefixhash.Key // in order
}

// prepare converts ops into batches and keys, with hashes, as the index gets them.
func prepare(s *stream, scheme string) *replayer {
	r := &replayer{s: s, scope: index.Scope{Model: "m", Scheme: scheme, BlockSize: 16}, batches: make([]index.Batch, len(s.ops))}
	root := prefixhash.TokenRoot("m", prefixhash.LoRA{})
	for i := range s.replicas {
		r.holders = append(r.holders, index.Holder{Replica: fmt.Sprintf("10.0.%d.%d:8000", i/256, i%256)})
	}
	for i, o := range s.ops {
		var contents []prefixhash.Content
		hashes := make([]uint64, len(o.blocks))
		for j, k := range o.blocks {
			hashes[j] = engine(k)
			if scheme == index.SchemeTokens && o.kind != remove {
				contents = append(contents, prefixhash.Content(content(k)))
			}
		}
		switch {
		case o.kind == query && contents != nil:
			r.queries = append(r.queries, prefixhash.AppendLinks(nil, root, contents))
		case o.kind == query:
			keys := make([]prefixhash.Key, len(hashes))
			for j, h := range hashes {
				keys[j] = prefixhash.Key(h)
			}
			r.queries = append(r.queries, keys)
		case o.kind == store:
			r.batches[i] = r.batch(o, index.Event{
				Kind: index.Stored, Scope: r.scope, HasParent: o.hasParent, Parent: engine(o.parent), Hashes: hashes, Content: contents})
		default:
			r.batches[i] = r.batch(o, index.Event{Kind: index.Removed, Hashes: hashes})
		}
	}
	return r
}

func (r *replayer) batch(o op, ev index.Event) index.Batch {
	return index.Batch{Holder: r.holders[o.replica], Events: []index.Event{ev}}
}

// fresh starts again with an empty index.
func (r *replayer) fresh() {
	if r.x != nil {
		r.x.Close()
	}
	x := index.New(index.Options{})
	r.x, r.inc = x, r.inc[:0]
	for _, h := range r.holders {
		r.inc = append(r.inc, x.Begin(h))
	}
	for i, o := range r.s.ops {
		r.batches[i].Incarnation = r.inc[o.replica]
	}
}

func (r *replayer) apply(i int) error {
	res, err := r.x.Apply(&r.batches[i])
	if err == nil && res.Dropped+res.Unknown+res.Orphaned > 0 {
		err = fmt.Errorf("operation %d: %+v, want every block known", i, res)
	}
	return err
}

// warm reads the keys into the processor's caches: a request has just computed its keys.
func warm(keys []prefixhash.Key) (sum prefixhash.Key) {
	for _, k := range keys {
		sum += k
	}
	return sum
}

var sink prefixhash.Key //nolint:unused // keeps the compiler from removing the measured code

// interleaved replays all ops in order and prints the checksums.
func (r *replayer) interleaved(name string) error {
	r.fresh()
	var stores, removes []float64
	var lookups []time.Duration
	var found index.Found
	var best, total int64
	queryBlocks, q := 0, 0
	for i, o := range r.s.ops {
		if o.kind == query {
			keys := r.queries[q]
			q++
			sink += warm(keys)
			t := time.Now()
			r.x.Find(&found, r.scope, keys)
			lookups = append(lookups, time.Since(t))
			queryBlocks += len(keys)
			most := int32(0)
			for m := range found.All() {
				most = max(most, m.Blocks)
				total += int64(m.Blocks)
			}
			best += int64(most)
			continue
		}
		t := time.Now()
		if err := r.apply(i); err != nil {
			return err
		}
		per := float64(time.Since(t)) / float64(len(o.blocks))
		if o.kind == remove {
			removes = append(removes, per)
		} else if len(o.blocks) >= 64 {
			stores = append(stores, per)
		}
	}
	mean := trimmedMean(lookups)
	fmt.Printf("%s R=%d replay: store %.1f ns/blk, remove %.1f ns/blk, lookup mean %.0f ns p50 %d p99 %d, %.2f ns per queried block, best=%d total=%d\n",
		name, r.s.replicas, median(stores), median(removes), mean, quantile(lookups, 0.5), quantile(lookups, 0.99),
		mean*float64(len(lookups))/float64(queryBlocks), best, total)
	return nil
}

// memory replays the events alone and prints live bytes for each distinct block.
func (r *replayer) memory(name string) error {
	if r.x != nil {
		r.x.Close()
		r.x = nil
	}
	before := heap()
	r.fresh()
	blocks, t := 0, time.Now()
	for i, o := range r.s.ops {
		if o.kind != query {
			if err := r.apply(i); err != nil {
				return err
			}
			blocks += len(o.blocks)
		}
	}
	took := time.Since(t)
	r.x.Sweep() // as Run does every minute
	after := heap()
	distinct := 0
	for _, blocks := range r.x.Scopes() {
		distinct += blocks
	}
	live := after - before + int64(index.OffHeap())
	fmt.Printf("%s R=%d events: %.1f ns/blk over %d blocks; live %d bytes (Go heap %d), %d distinct blocks, %.1f bytes each\n",
		name, r.s.replicas, float64(took)/float64(blocks), blocks, live, after-before, distinct, float64(live)/float64(distinct))
	return nil
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// pass looks up every query once, from any start.
func (r *replayer) pass(from int, stop *atomic.Bool) []time.Duration {
	lat := make([]time.Duration, 0, len(r.queries))
	var found index.Found
	var sum prefixhash.Key
	for i := range r.queries {
		if stop != nil && stop.Load() {
			break
		}
		keys := r.queries[(from+i)%len(r.queries)]
		sum += warm(keys)
		t := time.Now()
		r.x.Find(&found, r.scope, keys)
		lat = append(lat, time.Since(t))
	}
	if sum == 1 {
		fmt.Println()
	}
	return lat
}

// readers prints the times of lookups on the final state: of one reader, of two at once,
// and during writes at full speed.
func (r *replayer) readers(name string) error {
	r.pass(0, nil)
	one := r.pass(0, nil)
	var two []time.Duration
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range 2 {
		wg.Go(func() {
			l := r.pass(k*len(r.queries)/2, nil)
			mu.Lock()
			defer mu.Unlock()
			two = append(two, l...)
		})
	}
	wg.Wait()
	fmt.Printf("%s R=%d final: one reader mean %.0f p50 %d p99 %d; two readers mean %.0f p50 %d p99 %d ns\n", name, r.s.replicas,
		trimmedMean(one), quantile(one, 0.5), quantile(one, 0.99), trimmedMean(two), quantile(two, 0.5), quantile(two, 0.99))
	r.fresh()
	var stop atomic.Bool
	var failed error
	wg.Go(func() {
		defer stop.Store(true)
		for i, o := range r.s.ops {
			if o.kind != query {
				if failed = r.apply(i); failed != nil {
					return
				}
			}
		}
	})
	var beside []time.Duration
	for !stop.Load() {
		beside = append(beside, r.pass(0, &stop)...)
	}
	wg.Wait()
	fmt.Printf("%s R=%d beside a writer: %d lookups, mean %.0f p50 %d p99 %d ns\n", name, r.s.replicas,
		len(beside), trimmedMean(beside), quantile(beside, 0.5), quantile(beside, 0.99))
	t := time.Now()
	r.x.Remove(r.holders[r.s.replicas/2].Replica)
	gone := time.Since(t)
	r.x.Sweep()
	fmt.Printf("%s R=%d remove a replica: %v until lookups see it, %v to sweep\n", name, r.s.replicas, gone, time.Since(t)-gone)
	return failed
}
