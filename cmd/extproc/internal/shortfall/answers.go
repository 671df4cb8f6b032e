package shortfall

import "slices"

// Answer is one answered request, with what the replica that served it counted.
type Answer struct {
	Replica  string
	Head     uint64 // the key of the prompt's first block; 0 = not known
	Known    bool   // the answer's usage has the numbers below
	Reported int    // cached prompt tokens, as the replica's events reported them when the request was sent
	Prompt   int    // prompt tokens, as the router counted
	Counted  int    // prompt tokens, as the replica counted
	Cached   int    // of these, tokens found in its cache
}

// Cause says why a replica hits less than its events report.
type Cause string

// The causes.
const (
	CauseUnknown Cause = ""       // only counters were compared
	CauseTokens  Cause = "tokens" // most prompts have another number of tokens on the replica than in the router
	CauseCache   Cause = "cache"  // most prompts are equally long, so the replica's cache differs from its events
)

// unread is the number of answers after which a replica without usage in them is not new
// any more.
const unread = 100

// answers compares answers one by one: no request is in flight, and no other traffic is in
// the numbers. A replica can write what it wants into its answers, as into its counters, and
// changes its own flag alone.
type answers struct {
	suspicion
	taken    int // with or without usage
	compared int // with usage, of prompts with reported tokens
	heads    [mostHeads]head
	nextHead int
	row      int // head.missed of the last answer

	window sum  // since the Watch's window began
	full   bool // the last complete window had enough answers to decide it
}

// mostHeads is the number of first blocks whose prompts are told apart.
const mostHeads = 16

// head is a first block, with what the last answers to its prompts have shown.
type head struct {
	key    uint64
	missed int // answers in a row that have found too little
}

// vote records what an answer shows of the prompts with its first block, and returns it.
func (t *answers) vote(key uint64, short bool) (missed int) {
	if key == 0 {
		return 0
	}
	i := slices.IndexFunc(t.heads[:], func(h head) bool { return h.key == key })
	if i < 0 {
		i, t.nextHead = t.nextHead, (t.nextHead+1)%mostHeads
		t.heads[i] = head{key: key}
	}
	if !short {
		t.heads[i].missed = 0
	} else {
		t.heads[i].missed++
	}
	return t.heads[i].missed
}

// widespread reports whether the prompts of more first blocks find too little than enough: those
// of one alone may be made to, by a client who constructs prompts whose keys collide.
func (t *answers) widespread() bool {
	short, known := 0, 0
	for i := range t.heads {
		if t.heads[i].key != 0 {
			known++
		}
		if t.heads[i].missed > 0 {
			short++
		}
	}
	return known == 0 || 2*short > known
}

// enough reports whether answers, not counters, show the state of the replica.
func (t *answers) enough() bool { return t.raised || t.full || t.window.requests >= doubtful }

// curious reports whether every answer's usage is wanted: the replica is new, or seems to
// lack blocks that it reports.
func (t *answers) curious() bool {
	return t.compared < doubtful && t.taken < unread || t.missed > 0 || t.raised
}

// take compares one answer. It reports whether the flag changed. While the flag is raised, an
// answer to a prompt without reported tokens counts if some were found: what was reported of it may
// have been disproved.
func (t *answers) take(a *Answer) (changed bool) {
	t.taken++
	if !a.Known || a.Reported <= 0 && !(t.raised && a.Cached > 0) {
		return false
	}
	t.compared++
	n := sum{requests: 1, answers: 1, claimed: float64(a.Reported), found: float64(min(a.Cached, a.Reported))} // others that it found make up for nothing
	if a.Prompt != a.Counted {
		n.differing = 1
	}
	t.window.add(n)
	t.suspicion.take(n, 0)
	t.row = t.vote(a.Head, n.found < leastShare*n.claimed)
	return t.settle(t.misses() && t.widespread())
}

// Answered compares an answer with the replica's events, and returns the flag if it
// changed. A request that another replica served than the predicted one is no comparison.
// disproved says that the blocks which this answer has not found are to be taken for absent: the
// replica is flagged, or as many prompts in a row with the same first block have shown it.
func (w *Watch) Answered(a Answer) (_ Change, changed, disproved bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.replicas[a.Replica]
	if k == nil {
		return Change{}, false, false
	}
	k.asked.Store(0)
	if k.silent.Add(1); a.Known {
		k.silent.Store(0)
	}
	k.answers.row = 0
	if k.answers.take(&a) {
		k.show(&k.answers.suspicion)
	}
	changed = k.settle()
	return Change{a.Replica, k.State}, changed, k.Flagged || k.answers.row >= doubtful
}

// unanswered is the number of requests in a row for whose usage Curious asks without an
// answer. Envoy may report to another router, or not at all.
const unanswered = 1000

// Curious reports whether the usage of the answer to a request is wanted, whatever the share
// of requests is: the replica, "" for none, is new or suspect, or the answer is telling: it
// shows settings of the replica, unless its answers have no usage. Curious waits for nobody.
func (w *Watch) Curious(name string, telling bool) bool {
	if name == "" {
		return false
	}
	all := w.known.Load()
	if all == nil || (*all)[name] == nil {
		return true // it has joined since the last look
	}
	k := (*all)[name]
	telling = telling && k.silent.Load() < unread
	return (telling || k.curious.Load()) && k.asked.Add(1) <= unanswered
}
