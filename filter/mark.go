package filter

import "sync/atomic"

const (
	// markSlots is how many first tokens of one KV cache can be waited for at a
	// time: vLLM's default max_num_seqs. Requests beyond that go by their
	// expected time.
	markSlots = 256
	// markWindow is how many neighbouring slots a mark may use: with three
	// quarters of the slots taken, one in ten finds none free.
	markWindow = 8
)

// marks is a small hash table of charges by the content of the block that will
// tell of their first token. Requests put charges in and take them out, ingest
// looks them up; nobody waits.
type marks struct {
	marked atomic.Int32 // charges in slots, at most a few too many
	latest atomic.Int64 // highest charge.seq whose first token was seen
	slots  [markSlots]atomic.Pointer[charge]
}

func markSlot(mark uint64) uint64 { return mark * 0x9E3779B97F4A7C15 >> 32 }

// watch waits for c's mark, false when there is no room.
func (m *marks) watch(c *charge) bool {
	at := markSlot(c.mark)
	for i := range uint64(markWindow) {
		if m.slots[(at+i)%markSlots].CompareAndSwap(nil, c) {
			m.marked.Add(1)
			return true
		}
	}
	return false
}

// unwatch ends the wait for c.
func (m *marks) unwatch(c *charge) {
	if c.mark == 0 {
		return
	}
	at := markSlot(c.mark)
	for i := range uint64(markWindow) {
		if m.slots[(at+i)%markSlots].CompareAndSwap(c, nil) {
			m.marked.Add(-1)
		}
	}
}

// stored takes notice of a block that was stored at now: it is the first token
// of every request waiting for it.
func (l *Load) stored(mark uint64, now int64) {
	at := markSlot(mark)
	for i := range uint64(markWindow) {
		c := l.slots[(at+i)%markSlots].Load()
		if c == nil || c.mark != mark || !c.first() {
			continue
		}
		l.unwatch(c)
		l.observe(c, now)
		for seen := l.latest.Load(); c.seq > seen && !l.latest.CompareAndSwap(seen, c.seq); {
			seen = l.latest.Load()
		}
	}
}
