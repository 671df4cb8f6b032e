package brain

import (
	"warmroute/internal/decision"
	"warmroute/lab/simulator"
)

// inProcess is a Brain as a policy of the simulator, in one process.
type inProcess struct {
	b      *Brain
	blocks []int64
}

// NewPolicy returns a Brain as a policy of the simulator. o.Replicas and o.Block are
// the simulation's.
func NewPolicy(o Options) (simulator.Policy, error) {
	b, err := New(o)
	if err != nil {
		return nil, err
	}
	p := &inProcess{b: b}
	if o.Groups != OneGroup {
		return grouped{p}, nil
	}
	return p, nil
}

func (p *inProcess) ids(blocks []int32) []int64 {
	p.blocks = p.blocks[:0]
	for _, b := range blocks {
		p.blocks = append(p.blocks, int64(b))
	}
	return p.blocks
}

func (p *inProcess) Route(now float64, r *simulator.Request) int {
	p.b.To(now)
	to := p.b.Route(r.ID, r.Input, p.ids(r.Blocks))
	p.b.follow(r.Blocks, r.Answer)
	return to
}

func (p *inProcess) Routed(now float64, r *simulator.Request) {
	p.b.To(now)
	p.b.Routed(r.ID, r.Replica)
}

func (p *inProcess) First(now float64, r *simulator.Request) {
	p.b.To(now)
	p.b.First(r.ID)
}

func (p *inProcess) Done(now float64, r *simulator.Request) {
	p.b.To(now)
	p.b.Done(r.ID)
	p.b.Counted(r.ID, decision.Counted{Prompt: r.Input, Cached: r.Hit, Answer: r.Output})
}

// Prefill implements simulator.SplitPolicy.
func (p *inProcess) Prefill(_ float64, r *simulator.Request) int { return p.b.Prefill(r.ID) }

// Prefilled implements simulator.SplitPolicy.
func (p *inProcess) Prefilled(now float64, r *simulator.Request) {
	p.b.To(now)
	p.b.Prefilled(r.ID)
}

// Stored and Removed panic at unknown replicas or blocks: the simulator names none.
func (p *inProcess) Stored(now float64, replica int, blocks []int32) {
	p.b.To(now)
	must(p.b.Stored(replica, p.ids(blocks)))
}

func (p *inProcess) Removed(now float64, replica int, blocks []int32) {
	p.b.To(now)
	must(p.b.Removed(replica, p.ids(blocks)))
}

// Kept implements simulator.TierPolicy.
func (p *inProcess) Kept(now float64, replica int, blocks []int32) {
	p.b.To(now)
	must(p.b.Kept(replica, p.ids(blocks)))
}

// Dropped implements simulator.TierPolicy.
func (p *inProcess) Dropped(now float64, replica int, blocks []int32) {
	p.b.To(now)
	must(p.b.Dropped(replica, p.ids(blocks)))
}

func (p *inProcess) Scraped(now float64, pages []simulator.Page) {
	p.b.To(now)
	p.b.Scraped(pages)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
