package history

import (
	"cmp"

	"warmroute/internal/learned"
	"warmroute/prefixhash"
)

// DefaultCapacity is the capacity of a cache of which nothing is known, in tokens: that of
// an 8B model on a GPU of 80 GB.
const DefaultCapacity = 400_000

// The bounds of a learned capacity, in tokens.
const (
	leastCapacity = 4_096
	mostCapacity  = 1 << 30
)

// The steps by which a capacity is learned, as a share of it.
const (
	firstStep    = 0.15
	leastStep    = 0.01
	stepsShorter = 0.75 // after a change of direction
	stepsLonger  = 1.2  // after three in one direction
)

// learner learns the capacity of a cache that nobody names, by what replicas count as cached:
// it rises if a replica still has what the model has evicted, and falls if it lacks what the
// model has kept. With the true capacity both are rare, and as frequent as each other.
type learner struct {
	step float64
	same int // steps in the direction of the last one, below 0 if it was down
}

func newLearner() *learner { return &learner{step: firstStep} }

// next returns the capacity after a sign that it is larger or smaller.
func (l *learner) next(capacity int, up bool) int {
	switch {
	case up && l.same < 0, !up && l.same > 0:
		l.step, l.same = max(l.step*stepsShorter, leastStep), 0
	case l.same > 2 || l.same < -2:
		l.step = min(l.step*stepsLonger, firstStep)
	}
	if up {
		l.same++
		return min(int(float64(capacity)*(1+l.step)), mostCapacity)
	}
	l.same--
	return max(int(float64(capacity)/(1+l.step)), leastCapacity)
}

// Telling reports whether the answer to a use shows something of the capacity.
func (c *Cache) Telling(h Hold) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.learner != nil && h.had > 0
}

// Used is a use of a cache whose answer may come.
type Used struct {
	Hold   Hold
	Marks  *prefixhash.Marks // of the prompt
	Tokens int               // of the prompt, by the router's count
	Most   int               // of the prompt and the answer: the model's context; 0 = not known
}

// mostContext is the context of a model that does not tell it.
const mostContext = 1 << 20

// Counted is what a replica says of an answer, in its own tokens.
type Counted struct {
	Prompt int
	Cached int // of these; below 0: it does not say
	Answer int // 0 = not known
}

// Answered learns from what the replica has counted for a request with one prompt. No count is
// believed beyond what the model's context and the cache have room for.
func (c *Cache) Answered(u *Used, n Counted) {
	if n.Prompt <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	scale := float64(u.Tokens) / float64(n.Prompt)
	if n.Answer > 0 {
		room := max(0, min(cmp.Or(u.Most, mostContext), c.capacity)-u.Tokens)
		c.answer.mean.Add(min(float64(n.Answer)*scale, float64(room)), 1, answerShare)
	}
	if c.learner == nil || u.Hold.life != c.life || n.Cached < 0 {
		return
	}
	kept, had := float64(u.Marks.End(int(u.Hold.kept))), float64(u.Marks.End(int(u.Hold.had)))
	switch cached := float64(n.Cached) * scale; {
	case had > kept && cached > (kept+had)/2:
		c.capacity = c.learner.next(c.capacity, true)
	case kept > 0 && cached < kept*3/4:
		c.capacity = c.learner.next(c.capacity, false)
	default:
		return
	}
	c.evict()
}

// assumedAnswer is the length of an answer in tokens while none is known.
const assumedAnswer = 256

// answers is how long answers are.
type answers struct {
	mean    learned.Ratio // tokens of each
	seconds learned.Ratio // from the first token of each to its last
	counted Page          // the latest
}

// Page is what a holder's metrics say of its answers, since its start, and of its cache.
type Page struct {
	Answers, Tokens, Seconds float64 // that have ended; of these; between their first tokens and their last
	Usage                    float64 // share of the cache that requests in flight use
	Waiting                  float64 // requests that do not use it yet
}

// Read learns from a new page of the holder's metrics. However long it says answers are, half of
// the cache is left for prompts.
func (c *Cache) Read(p Page) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &c.answer
	if n := p.Answers - a.counted.Answers; n > 0 {
		share := min(1, n*answerShare)
		if tokens := p.Tokens - a.counted.Tokens; tokens >= 0 {
			a.mean.Add(min(tokens, n*float64(c.capacity/2)), n, share)
		}
		if seconds := p.Seconds - a.counted.Seconds; seconds >= 0 {
			a.seconds.Add(seconds, n, share)
		}
	}
	a.counted = p
	running := float64(c.running.Load())
	each := running / max(1, float64(c.open))
	unseen := p.Usage*float64(c.capacity) + p.Waiting*each - running
	if p.Usage == 0 { // it is not known
		unseen = max(0, unseen)
	}
	c.unseen.Store(int64(unseen))
}

// answerShare is the weight of a new answer in the mean length: the latest 64 decide.
const answerShare = 1. / 64

// Answer returns the tokens that an answer is expected to have.
func (c *Cache) Answer() int { return int(c.answer.mean.Of(assumedAnswer, 0)) }
