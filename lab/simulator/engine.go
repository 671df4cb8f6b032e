package simulator

// engine is one replica: its scheduler's batches, and the time that they take.
type engine struct {
	Scheduler
	hw       *Hardware
	slow     float64 // factor on the time of its steps
	stepEnd  float64
	busy     bool
	computed int64   // tokens prefilled so far
	busyTime float64 // s
	answers  int     // that have ended
	tokens   int     // of these
	seconds  float64 // that they took from their first token on
}

// begin forms a batch at now, if the engine has work.
func (e *engine) begin(now float64) {
	var b Batch
	if b, e.busy = e.Begin(); !e.busy {
		return
	}
	hw := e.hw
	e.computed += int64(b.Prompt)
	seconds := hw.Step + max(hw.Weights, hw.PrefillToken*float64(b.Prompt+b.Answers)) + hw.PrefillPair*b.Pairs + hw.DecodeToken*b.Context + hw.Sequence*float64(b.Running)
	seconds *= e.slow
	e.busyTime += seconds
	e.stepEnd = now + seconds
}

// wait returns the time that a new request waits, for oracles alone.
func (e *engine) wait(d *dense, now float64) float64 {
	w := e.slow * d.ahead()
	if e.busy {
		w += e.stepEnd - now
	}
	return w
}
