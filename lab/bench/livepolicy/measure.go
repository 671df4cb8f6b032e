package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/simulator"
	"warmroute/lab/stage"
)

// pass is one policy at one load, in time and in the simulation.
type pass struct {
	policy   string
	load     float64
	ttft     []time.Duration
	failed   int
	err      error // of a failed request
	busy     float64
	replicas []testenv.Counters
	sim      simulator.Result
}

// mean time to first token in seconds.
func (p *pass) mean() float64 {
	var sum time.Duration
	for _, d := range p.ttft {
		sum += d
	}
	return sum.Seconds() / float64(max(1, len(p.ttft)))
}

// measurement is the whole comparison: for each load a pass of every policy, the
// baseline's first.
type measurement struct {
	full   float64 // requests per second that the baseline sustains
	busy   float64 // share of busy processors during the calibration
	passes [][]*pass
}

// measure calibrates, plays every pass and simulates each.
func measure(ctx context.Context, dir string, o options, log io.Writer) (*measurement, error) {
	st := &stage.Stage{Dir: dir, Fleet: o.fleet}
	if err := st.Build(ctx); err != nil {
		return nil, err
	}
	m := &measurement{}
	var err error
	if err = m.calibrate(ctx, st, o); err != nil {
		return nil, err
	}
	fmt.Fprintf(log, "%s sustains %.1f requests/s, machine %.0f %% busy\n", contenders[0].name, m.full, 100*m.busy)
	for _, load := range loads {
		rate := load * m.full
		t := makeTrace(max(2, int(rate*o.pass.Seconds())), o.seed)
		var passes []*pass
		for _, c := range contenders {
			p, err := play(ctx, st, c, t, rate)
			if err != nil {
				return nil, fmt.Errorf("%s at %.0f %%: %w", c.name, 100*load, err)
			}
			if p.sim, err = simulate(o.fleet, c, t, rate, o.seed); err != nil {
				return nil, err
			}
			p.load = load
			fmt.Fprintf(log, "%.0f %%, %s: mean %.3f s, machine %.0f %% busy; simulated %.3f s\n", 100*load, c.name, p.mean(), 100*p.busy, p.sim.Mean)
			passes = append(passes, p)
		}
		m.passes = append(m.passes, passes)
	}
	return m, nil
}

// queued is the number of requests per replica that the calibration keeps in flight: more
// than fit its cache, so that chance leaves no replica idle.
const queued = 32

// fewest is a low estimate of the average number of blocks that a request leaves to
// compute (the trace's requests have 46 blocks, of which the baseline finds a fifth
// cached). It gives the calibration so many requests that they never run out.
const fewest = 8

// calibrate finds the baseline's throughput with every replica's queue filled.
func (m *measurement) calibrate(ctx context.Context, st *stage.Stage, o options) error {
	run, err := st.Start(ctx, "calibration", nil)
	if err != nil {
		return err
	}
	defer run.Close()
	blocks := o.calibrate.Seconds() * float64(o.fleet.Replicas) * o.fleet.PrefillRate / float64(o.fleet.BlockSize)
	c, err := newClient(run.URL, o.fleet, makeTrace(max(2, int(blocks/fewest)), o.seed))
	if err != nil {
		return err
	}
	var seen *outcome
	if m.busy, err = busyWhile(func() { m.full, seen = c.closed(ctx, queued*o.fleet.Replicas, o.calibrate) }); err != nil {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case seen.failed > 0:
		return fmt.Errorf("calibration: %d requests failed, one with: %w", seen.failed, seen.err)
	case m.full == 0:
		return fmt.Errorf("calibration: no request ended in the last three quarters of %v", o.calibrate)
	}
	return nil
}

// play plays the trace once, on processes of its own.
func play(ctx context.Context, st *stage.Stage, c contender, t *simulator.Trace, rate float64) (*pass, error) {
	var router *stage.Router
	if c.kind != "" {
		router = &stage.Router{Policy: c.settings(st.Fleet.PrefillRate)}
	}
	run, err := st.Start(ctx, fmt.Sprintf("%s-%.0f", c.name, rate), router)
	if err != nil {
		return nil, err
	}
	defer run.Close()
	player, err := newClient(run.URL, st.Fleet, t)
	if err != nil {
		return nil, err
	}
	var seen *outcome
	busy, err := busyWhile(func() { seen = player.open(ctx, t, rate) })
	if err != nil {
		return nil, err
	}
	p := &pass{policy: c.name, ttft: seen.ttft, failed: seen.failed, err: seen.err, busy: busy}
	for _, addr := range run.Replicas {
		counted, err := testenv.Count(ctx, addr)
		if err != nil {
			return nil, err
		}
		p.replicas = append(p.replicas, counted)
	}
	return p, ctx.Err()
}
