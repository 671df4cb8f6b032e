package hybrid

import (
	"fmt"
	"maps"
	"slices"

	"warmroute/lab/simulator"
	"warmroute/lab/vllmsim"
)

// Model is a kind of model by its KV cache groups.
type Model struct {
	Groups []vllmsim.Group
	Full   float64 // share of the layers that attend to all tokens before
}

// Models maps the names of models in simulations to them. A block has simulator.Block
// tokens, so a window has two blocks.
var Models = map[string]Model{
	// Gemma 3 12B: 40 layers with windows of 1024 tokens, 8 of full attention.
	"gemma3": {groups(vllmsim.Group{Kind: vllmsim.SlidingWindow, Window: 1024}, 5), 1. / 6},
	// Qwen3-Next: 36 layers with Mamba states, 12 of full attention.
	"qwen3-next": {groups(vllmsim.Group{Kind: vllmsim.Mamba}, 3), 1. / 4},
}

func groups(g vllmsim.Group, n int) (all []vllmsim.Group) {
	for range n {
		all = append(all, g)
	}
	return append(all, vllmsim.Group{Kind: vllmsim.FullAttention})
}

// Hardware returns h for the model: only its layers of full attention read all of the
// context. Size and memory stay h's.
func (m Model) Hardware(h simulator.Hardware) simulator.Hardware {
	h.PrefillPair *= m.Full
	h.DecodeToken *= m.Full
	return h
}

// Replica is one engine of a simulation.
type Replica struct {
	s      *vllmsim.Stepper
	open   map[int]*simulator.Request
	copies map[int32]int // of full attention's blocks, in its cache
}

// New returns a replica of the model with the batches and the memory of h.
// Each group takes an equal share of the layers' memory, as in vLLM. New panics if h has no
// room for the model.
func (m Model) New(h simulator.Hardware) *Replica {
	blocks := h.Capacity / simulator.Block * len(m.Groups)
	s, err := vllmsim.NewStepper(vllmsim.Options{
		BlockSize: simulator.Block, Groups: m.Groups, Blocks: blocks, MaxModelLen: h.Capacity / simulator.Block * simulator.Block / 2,
		MaxRunning: h.Sequences, MaxBatchedTokens: h.Budget,
	})
	if err != nil {
		panic(err)
	}
	return &Replica{s: s, open: map[int]*simulator.Request{}, copies: map[int32]int{}}
}

// Enqueue implements simulator.Scheduler. It panics at a prompt for which no replica has
// room.
func (r *Replica) Enqueue(q *simulator.Request) {
	var names []uint64
	for _, b := range q.Blocks[:min(len(q.Blocks), q.Input/simulator.Block)] {
		names = append(names, uint64(b))
	}
	if err := r.s.Submit(q.ID, q.Input, q.Output, names); err != nil {
		panic(fmt.Sprintf("hybrid: %v", err))
	}
	r.open[q.ID] = q
}

// Begin implements simulator.Scheduler.
func (r *Replica) Begin() (simulator.Batch, bool) {
	b, any := r.s.Begin()
	return simulator.Batch(b), any
}

// End implements simulator.Scheduler.
func (r *Replica) End() (e simulator.Ended) {
	res := r.s.End()
	for i := range res.Changes {
		c := &res.Changes[i]
		to := simulator.Change{Group: c.Group, Kind: string(c.Kind), Window: c.Window, Removed: c.Removed, HasParent: c.HasParent, Parent: int32(c.Parent), Tokens: c.Tokens}
		for _, b := range c.Blocks {
			to.Blocks = append(to.Blocks, int32(b))
		}
		e.Changes = append(e.Changes, to)
	}
	e.Stored, e.Removed = r.full(e.Changes)
	for _, a := range res.First {
		q := r.open[a.ID]
		q.Hit = a.Hit
		e.First = append(e.First, q)
	}
	for _, a := range res.Done {
		e.Done = append(e.Done, r.open[a.ID])
		delete(r.open, a.ID)
	}
	return e
}

// full returns the blocks that full attention stored and removed, as a cache with one copy
// of each block would.
func (r *Replica) full(changes []simulator.Change) (stored, removed []int32) {
	was := map[int32]bool{}
	for i := range changes {
		c := &changes[i]
		if !c.Full() {
			continue
		}
		for _, b := range c.Blocks {
			if _, seen := was[b]; !seen {
				was[b] = r.copies[b] > 0
			}
			if c.Removed {
				r.copies[b]--
			} else {
				r.copies[b]++
			}
		}
	}
	for _, b := range slices.Sorted(maps.Keys(was)) {
		switch has := r.copies[b] > 0; {
		case has && !was[b]:
			stored = append(stored, b)
		case !has && was[b]:
			removed = append(removed, b)
			delete(r.copies, b)
		}
	}
	return stored, removed
}

// Load implements simulator.Scheduler.
func (r *Replica) Load() simulator.Page {
	waiting, running, usage := r.s.Load()
	return simulator.Page{Waiting: waiting, Running: running, KVUsage: usage}
}
