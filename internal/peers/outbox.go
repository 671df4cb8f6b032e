package peers

import (
	"encoding/json"
	"sync"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
)

const (
	// waitingPrefixes and waitingKeys bound the prefixes that wait while no message can
	// be sent. Further ones are dropped, so peers may miss a match.
	waitingPrefixes = 4096
	waitingKeys     = 1 << 18
)

// Outbox holds the prefixes of requests until the next message. Its methods
// hold a lock for as long as a copy takes; it is never held while a message is
// written.
type Outbox struct {
	ready chan struct{} // has a token while there is something to send

	mu      sync.Mutex
	waiting outgoing
	dropped uint64
	full    bool // the next message is a full one
	resets  map[string]uint64
	changed []byte // the settings that were changed at run time, in JSON; nil: none were
}

// outgoing are prefixes and the memory of their keys.
type outgoing struct {
	prefixes []decision.Prefix
	keys     []prefixhash.Key
}

// NewOutbox returns an empty outbox.
func NewOutbox() *Outbox {
	return &Outbox{ready: make(chan struct{}, 1), resets: map[string]uint64{}}
}

// Ready has something to receive while there is something to send.
func (o *Outbox) Ready() <-chan struct{} { return o.ready }

// Notify makes Ready ready. It never blocks.
func (o *Outbox) Notify() {
	select {
	case o.ready <- struct{}{}:
	default:
	}
}

// Send implements decision.Peers.
func (o *Outbox) Send(p decision.Prefix) {
	o.mu.Lock()
	w := &o.waiting
	if len(w.prefixes) >= waitingPrefixes || len(w.keys)+len(p.Keys) > waitingKeys {
		o.dropped++
	} else {
		from := len(w.keys)
		w.keys = append(w.keys, p.Keys...)
		p.Keys = w.keys[from:len(w.keys):len(w.keys)]
		w.prefixes = append(w.prefixes, p)
	}
	o.mu.Unlock()
	o.Notify()
}

// PolicyChanged sends settings that were changed here at run time.
func (o *Outbox) PolicyChanged(c policy.Config) {
	config, _ := json.Marshal(c) // numbers without a JSON form were refused before
	o.mu.Lock()
	o.changed, o.full = config, true
	o.mu.Unlock()
	o.Notify()
}

// PressureReset sends a reset of a model's pressure.
func (o *Outbox) PressureReset(model string) {
	o.mu.Lock()
	o.resets[model]++
	o.full = true
	o.mu.Unlock()
	o.Notify()
}

// take returns the waiting prefixes. The memory of spare takes their place.
func (o *Outbox) take(spare outgoing) (waiting outgoing, full bool, changed []byte) {
	clear(spare.prefixes)
	spare.prefixes, spare.keys = spare.prefixes[:0], spare.keys[:0]
	o.mu.Lock()
	defer o.mu.Unlock()
	waiting, o.waiting = o.waiting, spare
	full, changed = o.full, o.changed
	o.full, o.changed = false, nil
	return waiting, full, changed
}

// resetsOf returns how often a model's pressure was reset here.
func (o *Outbox) resetsOf(model string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.resets[model]
}

// Dropped returns the number of prefixes that were not sent because the queue was full.
func (o *Outbox) Dropped() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.dropped
}
