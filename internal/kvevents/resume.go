package kvevents

import "warmroute/index"

// resume continues from a place that an earlier sequencer reached: all batches before next
// are applied, and the last of them has this digest. The publisher has to confirm it in its
// first answer.
func (s *sequencer) resume(next, digest uint64, complete bool) {
	s.next, s.based, s.complete, s.clean, s.trial = next, true, complete, false, true
	last := &s.recent[(next-1)%recentSize]
	last.seq, last.sum, last.set = next-1, digest, true
}

// giveUpTrial drops the resumed batches that the publisher has never confirmed. It requests
// history at the next chance.
func (s *sequencer) giveUpTrial() {
	if !s.trial {
		return
	}
	s.forget(index.LossBegun)
	s.based, s.complete, s.owed = false, false, true
	clear(s.recent[:])
	s.ask = nil
	s.drain()
}

// place returns the place from which another sequencer could resume.
func (s *sequencer) place() (next, digest uint64, ok bool) {
	if !s.based || s.next == 0 || s.trial {
		return 0, 0, false
	}
	last := &s.recent[(s.next-1)%recentSize]
	return s.next, last.sum, last.set && last.seq == s.next-1
}
