package brain

import (
	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/lab/simulator"
	"warmroute/prefixhash"
)

// Groups selects the KV cache groups that a Brain follows.
type Groups uint8

const (
	OneGroup   Groups = iota // the replicas have one, of full attention; events come as Stored and Removed
	EveryGroup               // all groups, as the router does
	FullGroup                // full attention alone, as a router without groups does
)

// grouped is a judged Brain whose replicas have several groups.
type grouped struct{ *inProcess }

// Changed implements simulator.GroupPolicy.
func (p grouped) Changed(now float64, replica int, changes []simulator.Change) {
	p.b.To(now)
	must(p.b.Changed(replica, changes))
}

// Changed applies the changes that a replica's KV cache groups published, as one batch.
// Events of full attention have the places of blocks; events of other groups have hashes
// alone, like vLLM's events that leave blocks out.
func (b *Brain) Changed(replica int, changes []simulator.Change) error {
	b.batch.Events = b.batch.Events[:0]
	for i := range changes {
		c := &changes[i]
		if b.o.Groups == EveryGroup || c.Full() {
			b.batch.Events = append(b.batch.Events, b.event(c))
		}
	}
	return b.apply(replica)
}

func (b *Brain) event(c *simulator.Change) index.Event {
	e := index.Event{
		Kind: index.Stored, HasParent: c.HasParent, Parent: uint64(key(int64(c.Parent))), Tokens: c.Tokens,
		Scope: index.Scope{Model: model, Scheme: kvevents.SchemeEngine, BlockSize: b.o.Block},
	}
	if b.o.Groups == EveryGroup {
		e.Spec, e.Window, e.Scope.Group = c.Kind, c.Window, c.Group
	}
	for _, block := range c.Blocks {
		e.Hashes = append(e.Hashes, uint64(key(int64(block))))
	}
	switch {
	case c.Removed:
		e.Kind = index.Removed
	case c.Full():
		e.Scope.Scheme = index.SchemeTokens
		for _, name := range e.Hashes {
			e.Content = append(e.Content, prefixhash.Content(name))
		}
	}
	return e
}
