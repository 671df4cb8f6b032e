package simulator

// Tier is what replicas have below their GPUs: CPU memory of their own, or one store that all
// of them read. A replica copies the blocks that it computes there, at no cost, and loads what
// a prompt finds there behind its blocks on the GPU, one request after the other, while it
// computes for others.
type Tier struct {
	Capacity int     // tokens for each replica; 0 = there is no tier
	Token    float64 // s to load a token, on each replica
	Shared   bool    // it is one store of all replicas, of their capacity together
}

// KVBytes are the bytes of a token's KV cache: Llama 3.1 8B in bf16.
const KVBytes = 128 << 10

// tier is the tier of one replica.
type tier struct {
	o      *Tier
	pool   *pool
	now    *float64
	free   float64 // when the loads that have begun are done
	loaded float64 // tokens
}

// newTier returns the tier of a replica, nil if it has none. store is that of all replicas.
func newTier(o *Tier, store *pool, blocks, block int) *tier {
	if o.Capacity == 0 {
		return nil
	}
	t := &tier{o: o, pool: store}
	if store == nil {
		t.pool = newPool(blocks, block, o.Capacity)
	}
	return t
}

// find returns how many blocks behind the first cached ones the tier has.
func (t *tier) find(blocks []int32, cached int) int {
	n := t.pool.match(blocks[cached:])
	for i := cached + n - 1; i >= 0; i-- {
		if t.pool.present[blocks[i]] {
			t.pool.touch(blocks[i : i+1])
		}
	}
	return n
}

// load begins to load tokens, and returns when they are there.
func (t *tier) load(tokens int) float64 {
	took := float64(tokens) * t.o.Token
	t.free = max(t.free, *t.now) + took
	t.loaded += float64(tokens)
	return t.free
}

// nextLoad returns the time before at when an idle engine can go on, because a load is done,
// and the engine; -1 if there is none.
func (s *Sim) nextLoad(at float64) (wake float64, which int) {
	wake, which = at, -1
	if s.c.Tier.Capacity == 0 {
		return wake, which
	}
	for i, e := range s.engines {
		d, ok := e.Scheduler.(*dense)
		if !ok || e.busy {
			continue
		}
		if ready := d.Ready(); ready < wake {
			wake, which = ready, i
		}
	}
	return max(wake, s.now), which
}
