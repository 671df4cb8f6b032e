package peers

import (
	"math"
	"time"

	"warmroute/index"
)

// pace is the rate at which a peer has sent prefill recently.
type pace struct {
	work map[index.Holder]int64 // ns of prefill so far
	rate float64                // s of prefill per second
	at   time.Time
}

// recent is the time over which the rate of a peer is taken.
const recent = 2 * time.Second

// sent records how much work the peer has sent to a holder so far. Work sent before
// its first message does not count for the rate.
func (p *pace) sent(h index.Holder, work int64, now time.Time) {
	before, known := p.work[h]
	p.work[h] = work
	if !known && p.at.IsZero() {
		return
	}
	p.decay(now)
	p.rate += float64(max(0, work-before)) / float64(recent)
}

func (p *pace) decay(now time.Time) {
	if d := now.Sub(p.at); d > 0 {
		p.rate *= math.Exp(-d.Seconds() / recent.Seconds())
		p.at = now
	}
}

// maxEstimate bounds how far the estimate extends beyond the messages. Beyond it,
// peers' unreported work would outweigh the choice of a replica, and spreading
// requests would only lose cache hits: a second of it doubles the mean time to
// first token.
const maxEstimate = 100 * time.Millisecond

// estimateUnreported gives the ledger an estimate of the prefill that peers have
// sent since their last messages: their recent rate, for as long as a message
// takes.
func (m *Machine) estimateUnreported(now time.Time) {
	unheard := 0.0
	for _, p := range m.peers {
		p.pace.decay(now)
		unheard += p.pace.rate * min(p.rtt/2, maxEstimate).Seconds()
	}
	m.o.Ledger.SetUnreported(unheard)
}
