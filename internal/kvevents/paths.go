package kvevents

import (
	"time"

	"warmroute/internal/bound"
)

const (
	// maxLoads bounds the loads of adapters that are kept of a publisher.
	maxLoads = 4096
	// asksEachSecond bounds the questions that a publisher's events can cause.
	asksEachSecond = 8
)

// paths finds where the adapters of events were loaded from, which no event says. The replica is
// asked whenever its events show that an adapter was loaded.
type paths struct {
	of    func(name string, ask bool) string // nil: paths are not known
	loads map[string]uint64                  // the newest lora_id by adapter
	asked bound.Rate
}

// resolve adds the paths to a batch's adapters. history says that the batch may be older than the
// last load.
func (p *paths) resolve(b *Batch, now time.Time, history bool) {
	if p.of == nil {
		return
	}
	for i := range b.Events {
		e := &b.Events[i]
		if !e.LoRA.Set {
			continue
		}
		last, known := p.loads[e.LoRA.Name]
		fresh := !known || e.ID > last
		if fresh {
			if known && history {
				b.strange("an adapter that was loaded again before the router followed it, ", []byte(e.LoRA.Name))
			}
			if p.loads == nil || len(p.loads) >= maxLoads {
				p.loads = map[string]uint64{}
			}
			p.loads[e.LoRA.Name] = e.ID
		}
		e.LoRA.Path = p.of(e.LoRA.Name, fresh && p.asked.Take(now, time.Second/asksEachSecond, asksEachSecond))
	}
}
