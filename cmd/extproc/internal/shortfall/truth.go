package shortfall

// Answer is one answered request, with what the replica that served it counted.
type Answer struct {
	Replica  string
	Known    bool // the answer's usage has the numbers below
	Reported int  // cached prompt tokens, as the replica's events reported them when the request was sent
	Prompt   int  // prompt tokens, as the router counted
	Counted  int  // prompt tokens, as the replica counted
	Cached   int  // of these, tokens found in its cache
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

// truths compares answers one by one: no request is in flight, and no other traffic is in
// the numbers. A replica can write what it wants into its answers, as into its counters, and
// changes its own flag alone.
type truths struct {
	answers  int     // with or without usage
	compared int     // with usage, of prompts with reported tokens
	since    sum     // the comparison that may raise or end the flag
	missed   float64 // Share × reported − found tokens in it
	raised   bool
	shown    sum // the comparison that last raised or ended the flag

	window sum  // since the Watch's window began
	full   bool // the last complete window had enough answers to decide it
}

// sum adds up answers with usage.
type sum struct {
	answers, differing int     // differing prompts have another number of tokens on the replica
	reported, found    float64 // tokens
}

func (s *sum) add(a *Answer) {
	s.answers++
	s.reported += float64(a.Reported)
	s.found += float64(a.found())
	if a.Prompt != a.Counted {
		s.differing++
	}
}

func (s *sum) cause() Cause {
	switch {
	case s.answers == 0:
		return CauseUnknown
	case 2*s.differing > s.answers:
		return CauseTokens
	}
	return CauseCache
}

// found returns the reported tokens that the replica found. Others that it found make up
// for nothing.
func (a *Answer) found() int { return min(a.Cached, a.Reported) }

// enough reports whether answers, not counters, show the state of the replica.
func (t *truths) enough() bool { return t.raised || t.full || t.window.answers >= doubtful }

// curious reports whether every answer's usage is wanted: the replica is new, or seems to
// lack blocks that it reports.
func (t *truths) curious() bool {
	return t.compared < doubtful && t.answers < unread || t.missed > 0 || t.raised
}

// take compares one answer. It reports whether the flag changed.
func (t *truths) take(a *Answer, share float64) (changed bool) {
	t.answers++
	if !a.Known || a.Reported <= 0 {
		return false
	}
	t.compared++
	t.window.add(a)
	t.since.add(a)
	t.missed += share*float64(a.Reported) - float64(a.found())
	was, ended := t.raised, false
	if t.raised {
		ended = t.since.answers >= doubtful
		t.raised = !ended || t.missed > 0
	} else {
		t.raised = t.since.answers >= doubtful && t.missed >= doubtful*share*t.since.reported/float64(t.since.answers)
		ended = t.raised || t.missed <= 0
	}
	if t.raised != was {
		t.shown = t.since
	}
	if ended {
		t.since, t.missed = sum{}, 0
	}
	return t.raised != was
}

// Answered compares an answer with the replica's events, and returns the flag if it
// changed. A request that another replica served than the predicted one is no comparison.
func (w *Watch) Answered(a Answer) (Change, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.replicas[a.Replica]
	if k == nil {
		return Change{}, false
	}
	k.asked.Store(0)
	if k.silent.Add(1); a.Known {
		k.silent.Store(0)
	}
	if k.truth.take(&a, w.o.Share) {
		k.State.Predicted, k.State.Hits, k.Cause = k.truth.shown.reported, k.truth.shown.found, k.truth.shown.cause()
	}
	return Change{a.Replica, k.State}, k.settle()
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
