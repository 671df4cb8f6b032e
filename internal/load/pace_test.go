package load

import (
	"math"
	"testing"
	"time"
)

// serve has one request after the other found the engine idle, each with half a
// second of modelled prefill that takes so many times longer, and whose news are
// late by so much.
func (r *rig) serve(n int, slower float64, late time.Duration) {
	for i := range n {
		c := r.put(one, Terms{Model: 5e8, Expected: 5e8, Sentinel: uint64(100 + i)})
		r.wait(time.Duration(slower*0.51*1e9) + late)
		r.stored(one, uint64(100+i))
		c.Release()
		r.wait(time.Minute)
	}
}

func TestSpeedIsLearned(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	if a.Speed() != 0 || a.Lag() != 0 {
		t.Fatalf("speed %g, lag %g before anything is known", a.Speed(), a.Lag())
	}
	// One request as it was expected: the prior and it agree.
	c := r.put(one, Terms{Model: 5e8, Expected: 1e9, Sentinel: 7}) // charged with speed 2
	r.wait(1020 * time.Millisecond)
	r.stored(one, 7)
	c.Release()
	if !near(a.Speed(), 2) {
		t.Errorf("speed %g, want the 2 that the request was charged with", a.Speed())
	}
	// A request that took three times as long counts by its share and its length.
	r.wait(time.Minute)
	model := (1-paceShare)*pacePrior + 0.51
	actual := 2 * model
	c = r.put(one, Terms{Model: 5e8, Expected: 5e8, Sentinel: 8})
	r.wait(1020 * time.Millisecond)
	r.Of(one).pace.reported = r.nanos() // so that it teaches nothing of the lag
	r.stored(one, 8)
	c.Release()
	actual = (1-paceShare)*actual + 1.02
	model = (1-paceShare)*model + 0.51
	if !near(a.Speed(), actual/model) {
		t.Errorf("speed %g, want %g", a.Speed(), actual/model)
	}
}

// TestSpeedIsBounded: a single request says at most three times more or less than
// was expected, a short one nothing, and the sum of all stays within bounds.
func TestSpeedIsBounded(t *testing.T) {
	for _, tt := range []struct {
		model, took float64 // s
		want        float64 // actual counted, 0 = nothing is learned
	}{
		{0.49, 0.5, 0.5}, {0.49, 1.5, 1.5}, {0.49, 1.6, 1.5}, {0.49, 1. / 6, 1. / 6}, {0.49, 0.1, 0.5 / 3},
		{0.02, 0.03, 0.03}, {0.0199, 0.03, 0},
	} {
		var p pace
		p.reported = 1e9 // the news before: it was at work
		p.last.Store(1e9)
		terms := Terms{Sent: 1e9, Model: int64(tt.model * 1e9), Expected: int64(tt.model * 1e9)}
		p.reported = terms.Sent + int64(tt.took*1e9)
		p.observe(&terms, terms.Sent+int64(tt.took*1e9))
		if tt.want == 0 {
			if p.Speed() != 0 {
				t.Errorf("%+v: learned %g", tt, p.Speed())
			}
			continue
		}
		const prior = (1 - paceShare) * pacePrior
		want := (prior + tt.want) / (prior + tt.model + stepTime)
		if math.Abs(p.Speed()-want) > 1e-6 {
			t.Errorf("%+v: speed %g, want %g", tt, p.Speed(), want)
		}
	}
	for _, tt := range []struct{ actual, want float64 }{{2e4, paceMost}, {3, 3}, {1e-9, 1 / paceMost}} {
		var p pace
		if p.learned.Add(tt.actual, 1, paceShare); p.Speed() != tt.want {
			t.Errorf("%g s for 1: speed %g, want %g", tt.actual, p.Speed(), tt.want)
		}
	}
}

// TestAQueueIsNoSlowness: the engine worked on a request since the first token
// before it, not since it was sent.
func TestAQueueIsNoSlowness(t *testing.T) {
	r := newRig(t)
	terms := Terms{Model: 5e8, Expected: 5e8}
	for i := range 8 {
		terms.Sentinel = uint64(i + 1)
		r.put(one, terms)
	}
	for i := range 8 {
		r.wait(510 * time.Millisecond)
		r.stored(one, uint64(i+1))
	}
	if s, of := r.Of(one).Speed(), r.state(one).Speed; !near(s, 1) || of != s {
		t.Errorf("speed %g with a queue, want 1; the state has %g", s, of)
	}
	r.put(one, Terms{Model: 5e8, Expected: 5e8, Sentinel: 99})
	before := r.Of(one).Speed()
	r.stored(one, 99) // at the time of the news before it
	if s := r.Of(one).Speed(); !near(s, before) {
		t.Errorf("speed %g: two first tokens at once say nothing", s)
	}
}

// TestSpeedAmong: a replica is taken for as fast as the others until it is clear
// that it is not, and again when it was idle for long.
func TestSpeedAmong(t *testing.T) {
	r := newRig(t)
	a := r.Of(one)
	a.pace.last.Store(r.nanos())
	for _, tt := range []struct {
		own, mean float64
		idle      time.Duration
		want      float64
	}{
		{0, 2, 0, 2}, {2, 2, 0, 2}, {2.8, 2, 0, 2.8}, {2.79, 2, 0, 2}, {2 / 1.4, 2, 0, 2 / 1.4}, {1.43, 2, 0, 2},
		{8, 2, paceForget / 8, 8}, {8, 2, paceForget, 4}, {0.5, 2, paceForget, 1}, {8, 2, 2 * paceForget, 2 * math.Sqrt2},
	} {
		if got := a.SpeedAmong(tt.own, tt.mean, r.nanos()+int64(tt.idle)); !near(got, tt.want) {
			t.Errorf("%+v: counted with %g", tt, got)
		}
	}
}

// TestLag: reports that come late every time are learned as such, reports within
// an engine step are not, and one late request is not believed at once.
func TestLag(t *testing.T) {
	for _, tt := range []struct {
		late        time.Duration
		least, most float64
	}{{0, 0, 0}, {150 * time.Millisecond, 0, 0}, {time.Second, 0.98, 1.02}, {8 * time.Second, lagMost, lagMost}} {
		r := newRig(t)
		r.serve(80, 1, tt.late)
		if got := r.Of(one).Lag(); got < tt.least || got > tt.most {
			t.Errorf("%v late: learned %g s", tt.late, got)
		}
	}
	var p pace
	for i, want := range []float64{0.04, 0.088, 0.1456} { // lagUp of itself and lagLeast more each time
		if p.learnLag(10); !near(p.lag.Load(), want) {
			t.Errorf("late request %d: %g s, want %g", i+1, p.lag.Load(), want)
		}
	}
	p.lag.Store(1)
	if p.learnLag(0.5); !near(p.lag.Load(), 0.85) {
		t.Errorf("half a second sooner: %g s", p.lag.Load())
	}
	if p.lag.Store(lagLeast); p.Lag() != lagLeast {
		t.Errorf("lag %g at the bound", p.Lag())
	}
	if p.lag.Store(0.1); p.Lag() != 0 {
		t.Errorf("lag %g within a step", p.Lag())
	}
	if p.learnLag(-9); p.lag.Load() != 0 {
		t.Errorf("lag %g: news come before nothing", p.lag.Load())
	}
}

// TestABusyEngineTeachesNoLag: only a request that the engine took up at once
// shows how late the news of it are.
func TestABusyEngineTeachesNoLag(t *testing.T) {
	const expected = 0.51
	gap := idleGap * (2*expected + 2*longStep) // s since the news before, at speed 2
	for _, tt := range []struct {
		since float64
		learn bool
	}{{gap - 0.001, false}, {gap + 0.001, true}} {
		var p pace
		terms := Terms{Sent: 1, Model: 5e8, Expected: 10e8}
		now := int64(10e9)
		p.reported = now - int64(tt.since*1e9)
		p.observe(&terms, now)
		if learned := p.lag.Load() > 0; learned != tt.learn || p.reported != now {
			t.Errorf("%g s after the news before: learned %v, heard at %d", tt.since, learned, p.reported)
		}
	}
}
