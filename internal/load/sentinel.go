package load

import "sync/atomic"

const (
	// sentinelSlots bounds the sentinels of one holder: vLLM's default max_num_seqs.
	// Further requests have their first token when it is due.
	sentinelSlots = 256
	// sentinelWindow is the number of neighbouring slots that a sentinel may use: with
	// three quarters of the slots taken, one in ten finds none free.
	sentinelWindow = 8
)

// sentinels is a small hash table of charges by the content of the block whose
// event follows their first token. Requests put charges in and take them out,
// ingest looks them up; no call waits.
type sentinels struct {
	waiting atomic.Int32 // charges in slots, at most a few too many
	latest  atomic.Int64 // highest Charge.seq whose first token was seen
	slots   [sentinelSlots]atomic.Pointer[Charge]
}

func sentinelSlot(content uint64) uint64 { return content * 0x9E3779B97F4A7C15 >> 32 }

// watch puts c into a slot by its sentinel. It returns false if there is no free slot.
func (s *sentinels) watch(c *Charge) bool {
	at := sentinelSlot(c.terms.Sentinel)
	for i := range uint64(sentinelWindow) {
		if s.slots[(at+i)%sentinelSlots].CompareAndSwap(nil, c) {
			s.waiting.Add(1)
			return true
		}
	}
	return false
}

// unwatch takes c out of its slot.
func (s *sentinels) unwatch(c *Charge) {
	if c.terms.Sentinel == 0 {
		return
	}
	at := sentinelSlot(c.terms.Sentinel)
	for i := range uint64(sentinelWindow) {
		if s.slots[(at+i)%sentinelSlots].CompareAndSwap(c, nil) {
			s.waiting.Add(-1)
		}
	}
}

// stored records a block stored at now: it shows the first token of every request that
// waits for it.
func (a *Account) stored(content uint64, now int64) {
	s := &a.sentinels
	at := sentinelSlot(content)
	for i := range uint64(sentinelWindow) {
		c := s.slots[(at+i)%sentinelSlots].Load()
		if c == nil || c.terms.Sentinel != content || !c.FirstToken() && !(c.terms.Leg && c.first.Load() == 0) {
			continue
		}
		s.unwatch(c)
		if c.terms.Leg {
			c.Unload()
		}
		if p := c.terms.From; p != nil { // the KV cache has arrived, the first token is a step away
			c.arrived.Store(now)
			if from := p.first.Load(); from != 0 {
				a.handover.observe(&c.terms, from-int64(p.account.Lag()*1e9), now-int64(a.Lag()*1e9))
			}
			continue
		}
		c.first.Store(now)
		if c.terms.Loading > 0 { // the time of a load says nothing about the speed of prefill
			a.pace.seen(now)
			a.observeLoad(c, a.pace.last.Load())
		} else {
			a.pace.observe(&c.terms, now)
		}
		raise(&s.latest, c.seq)
	}
}

// Sentinels returns the number of first tokens that events will report.
func (a *Account) Sentinels() (n int) {
	for i := range a.sentinels.slots {
		if a.sentinels.slots[i].Load() != nil {
			n++
		}
	}
	return n
}
