package load

import (
	"math"
	"sync/atomic"

	"warmroute/internal/learned"
)

const (
	// paceShare is the weight of a new first-token time in the learned speed: about the
	// last twenty decide, as many as a busy replica has in seconds.
	paceShare = 0.05
	// pacePrior is the modelled prefill, in seconds, with which the first guess of a
	// replica's speed counts.
	pacePrior = 1
	// paceLeast is the shortest modelled prefill, in seconds, from which a speed is
	// learned: shorter ones measure the engine's step time.
	paceLeast = 0.02
	// paceJump bounds the distance of a single first-token time from the expected
	// one: an evicted prompt, or a full KV cache, does not show the replica's speed.
	paceJump = 3
	// paceForget is the half-life, in nanoseconds, of the difference between a
	// replica's speed and the others': a slow replica without requests is tried again.
	paceForget = 60e9
	// stepTime is the time of an engine step besides the prefill in it, in seconds on
	// a replica of speed 1: weights, scheduling, a few decodes. Without it a replica
	// with only short prompts would look slow, and get no others.
	stepTime = 0.01
	// alike is the factor by which a replica's speed must differ from the median of all
	// before it counts as its own: its recent requests cause differences up to this
	// factor.
	alike = 1.4
	// paceMost bounds the speed: a CPU is a few thousand times slower
	// than an H100.
	paceMost = 1e4
)

// pace learns how the first-token times of one replica compare with the model. Long
// prefills count more than short ones, which are mostly the engine's step time. One goroutine at a time may observe: ingest
// if the replica publishes events, otherwise the decision.
type pace struct {
	learned  learned.Ratio // actual over modelled first-token time
	last     atomic.Int64  // Unix ns of the last seen first token itself
	reported int64         // Unix ns when its event arrived
	lag      atomicFloat   // s between a first token and its event
}

// Speed returns the actual over the modelled first-token time; 0 while nothing is
// known.
func (p *pace) Speed() float64 {
	if p.learned.Whole() == 0 {
		return 0
	}
	return learned.Near(p.learned.Of(0, 0), 1, paceMost)
}

// SpeedAmong returns the speed that a decision uses: the median of the holders until this
// one's own clearly differs from it. A single replica does not move the median.
func (p *pace) SpeedAmong(own, median float64, now int64) float64 {
	if own == 0 || own < median*alike && own > median/alike {
		return median
	}
	if idle := now - p.last.Load(); idle > paceForget/8 {
		return median * math.Pow(own/median, math.Exp2(-float64(idle)/paceForget))
	}
	return own
}

// Median returns the median of v, the lower one of two, and reorders v, which is not empty.
func Median(v []float64) float64 {
	k := (len(v) - 1) / 2
	for from, to := 0, len(v)-1; from < to; {
		pivot, i, j := v[k], from, to
		for i <= j {
			for v[i] < pivot {
				i++
			}
			for v[j] > pivot {
				j--
			}
			if i <= j {
				v[i], v[j] = v[j], v[i]
				i, j = i+1, j-1
			}
		}
		if j < k {
			from = i
		}
		if k < i {
			to = j
		}
	}
	return v[k]
}

// observe learns from a first token that became known at now. The engine worked on the
// request since it was sent, or since the previous first token.
func (p *pace) observe(t *Terms, now int64) {
	model := float64(t.Model)/1e9 + stepTime
	expected := model * t.guess()
	if float64(now-p.reported)/1e9 > idleGap*(expected+longStep*t.guess()) {
		p.learnLag(float64(now-t.Sent)/1e9 - expected)
	}
	p.reported = now
	now -= int64(p.Lag() * 1e9)
	since := max(t.Sent, p.last.Load())
	if now <= since {
		return
	}
	p.last.Store(now)
	if model < paceLeast+stepTime {
		return
	}
	p.learn(learned.Near(float64(now-since)/1e9, expected, paceJump), model, t.guess())
}

// seen records a first token that became known at now, and shows no speed.
func (p *pace) seen(now int64) {
	p.reported = now
	p.last.Store(max(p.last.Load(), now-int64(p.Lag()*1e9)))
}

const (
	// idleGap bounds when the engine had nothing else to do: the time between a
	// request's report and the report before is at least this factor times its expected
	// prefill and a long step.
	idleGap = 1.5
	// longStep is the usual time of the other work in a step with a request's prefill,
	// in seconds on a replica of speed 1: half a batch of 8192 tokens. With a whole
	// batch, busy replicas would have too few requests to learn from.
	longStep = 0.15
	// lagDown and lagUp make the lag follow the lowest delays: an event with a longer
	// delay had more to compute than expected. One request raises the lag by at most
	// lagUp of itself and lagLeast.
	lagDown = 0.3
	lagUp   = 0.2
	// lagLeast and lagMost bound the lag, in seconds: a shorter lag is within an engine
	// step and changes nothing, and an event after a longer one is no use.
	lagLeast = 0.2
	lagMost  = 5
)

// Lag returns how many seconds after a first token its event arrives; 0 if that is
// less than an engine step.
func (p *pace) Lag() float64 {
	if late := p.lag.Load(); late >= lagLeast {
		return late
	}
	return 0
}

// learnLag learns the delay of events from a request that the engine started at once:
// the seconds between its expected first token and its event.
func (p *pace) learnLag(after float64) {
	by := after - p.lag.Load()
	if by < 0 {
		by *= lagDown
	} else {
		by = lagUp * min(by, p.lag.Load()+lagLeast)
	}
	p.lag.Store(max(0, min(lagMost, p.lag.Load()+by)))
}

func (p *pace) learn(actual, model, guess float64) {
	if p.learned.Whole() == 0 {
		p.learned.Add(guess*pacePrior, pacePrior, paceShare)
	}
	p.learned.Add(actual, model, paceShare)
}

// atomicFloat is a float64 that may be read while one goroutine writes it.
type atomicFloat struct{ bits atomic.Uint64 }

func (f *atomicFloat) Load() float64   { return math.Float64frombits(f.bits.Load()) }
func (f *atomicFloat) Store(v float64) { f.bits.Store(math.Float64bits(v)) }
