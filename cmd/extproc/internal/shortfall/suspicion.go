package shortfall

// doubtful is the number of requests whose missed claims raise a suspicion at once, and whose met
// claims end it.
const doubtful = 10

// sum adds up compared requests.
type sum struct {
	requests       int
	heads          int     // by counters: requests with another first block than the ones before them
	answers        int     // requests whose answer's usage was read
	differing      int     // answers that count another number of prompt tokens than the router
	claimed, found float64 // tokens
	asked          float64 // by counters: tokens that the replica has looked up
}

func (s *sum) add(n sum) {
	s.requests, s.heads, s.answers, s.differing = s.requests+n.requests, s.heads+n.heads, s.answers+n.answers, s.differing+n.differing
	s.claimed, s.found, s.asked = s.claimed+n.claimed, s.found+n.found, s.asked+n.asked
}

// counts reports whether the replica's counters show the requests. If it looked up less than leastShare
// of the claimed tokens, they do not, and prove nothing.
func (s *sum) counts() bool { return s.asked >= leastShare*s.claimed }

// cause returns why too little was found.
func (s *sum) cause() Cause {
	switch {
	case s.answers == 0:
		return CauseUnknown
	case 2*s.differing > s.answers:
		return CauseTokens
	}
	return CauseCache
}

// suspicion finds a replica that claims blocks which it does not hold after a few requests, not minutes.
type suspicion struct {
	since  sum     // the comparison that may raise or end it
	missed float64 // leastShare × claimed − found in it
	raised bool
	shown  sum // the comparison that last raised or ended it
}

// take adds requests. Others' hits make up for what is missed, by as much as the credit at most.
func (s *suspicion) take(n sum, credit float64) {
	s.since.add(n)
	s.missed += leastShare*n.claimed - n.found
	if s.raised {
		return
	}
	if s.missed = max(s.missed, -credit); s.missed <= 0 {
		s.since = sum{}
	}
}

// misses reports whether as much was missed as the claims of doubtful requests of mean size.
func (s *suspicion) misses() bool {
	n := s.since.requests
	return n >= doubtful && s.missed >= doubtful*leastShare*s.since.claimed/float64(n)
}

// settle raises the suspicion if raise says so, and ends it if the claims of doubtful requests were met.
// It reports whether that changed it.
func (s *suspicion) settle(raise bool) (changed bool) {
	if s.raised && s.since.requests < doubtful || !s.raised && !raise {
		return false
	}
	if changed = !s.raised || s.missed <= 0; changed {
		s.raised, s.shown = !s.raised, s.since
	}
	s.since, s.missed = sum{}, 0
	return changed
}
