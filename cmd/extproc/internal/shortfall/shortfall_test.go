package shortfall

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/telemetry/metricstest"
	"warmroute/render/testkit/must"
)

// course plays minutes of traffic to one replica and returns when the flag
// changed, in minutes.
type course struct {
	w    *Watch
	now  time.Time
	read Reading

	lookedUp float64 // tokens that the replica counts as looked up for each that is predicted
}

func newCourse() *course {
	return &course{w: New(), now: time.Unix(1_700_000_000, 0), read: Reading{Replica: "10.0.0.1:8000", Joined: 1}, lookedUp: 1}
}

// play looks every 10 s for so many minutes, with tokens predicted and hit per minute.
func (c *course) play(minutes int, predicted, hits float64) (changes []Change) {
	for range minutes * 6 {
		changes = append(changes, c.w.Look(c.now, []Reading{c.read})...)
		c.now = c.now.Add(10 * time.Second)
		c.read.Predicted += predicted / 6
		c.read.Hits += hits / 6
		c.read.Queries += c.lookedUp * predicted / 6
	}
	return append(changes, c.w.Look(c.now, []Reading{c.read})...)
}

func TestAReplicaThatHitsWhatWasPredictedIsFine(t *testing.T) {
	for name, hits := range map[string]float64{"all": 1e5, "most": 7e4, "traffic around us": 5e6} {
		c := newCourse()
		if got := c.play(60, 1e5, hits); len(got) != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		if s := c.w.State("10.0.0.1:8000"); !s.Complete || s.Shortfall > 0.31 || s.Shortfall < 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestCountersOfOtherRequestsProveNothing: a replica that does not count the requests at all,
// or counts others', is not flagged for hits that it does not count.
func TestCountersOfOtherRequestsProveNothing(t *testing.T) {
	c := newCourse()
	c.lookedUp = 0.2
	if got := c.play(60, 1e5, 0); len(got) != 0 {
		t.Errorf("flagged by minutes: %+v", got)
	}
	s := newServed()
	s.lookedUp = 0
	if at := s.send(500, 100*time.Millisecond, 0, time.Second, 0); at != 0 {
		t.Errorf("flagged after %d requests", at)
	}
}

func TestAShortfallIsFlaggedOnceAndTakenBackOnce(t *testing.T) {
	c := newCourse()
	if got := c.play(2, 1e5, 0); len(got) != 0 {
		t.Fatalf("flagged after two windows: %+v", got)
	}
	got := c.play(30, 1e5, 1e4)
	if len(got) != 1 || !got[0].Flagged || got[0].Replica != "10.0.0.1:8000" || got[0].Shortfall < 0.85 {
		t.Fatalf("want one flag: %+v", got)
	}
	if got := c.play(30, 1e5, 1e5); len(got) != 1 || got[0].Flagged {
		t.Fatalf("want it taken back once: %+v", got)
	}
}

// TestOneBadWindowIsNotEnough: a burst of failed requests now and then.
func TestOneBadWindowIsNotEnough(t *testing.T) {
	c := newCourse()
	for range 10 {
		if got := append(c.play(2, 1e5, 0), c.play(2, 1e5, 1e5)...); len(got) != 0 {
			t.Fatalf("flagged: %+v", got)
		}
	}
}

// TestLittleTrafficIsNotJudgedByTheMinute: a window lasts until it has enough predicted tokens.
func TestLittleTrafficIsNotJudgedByTheMinute(t *testing.T) {
	c := newCourse()
	if got := c.play(60, 100, 0); len(got) != 0 || c.w.State("10.0.0.1:8000").Complete {
		t.Errorf("6000 predicted tokens were judged: %+v", got)
	}
	if got := c.play(400, 100, 0); len(got) != 1 || !got[0].Flagged {
		t.Errorf("46000 predicted tokens without a hit: %+v", got)
	}
}

// TestARestartBeginsAnew: counters that fall, a replica that joins again, a replica that
// leaves.
func TestARestartBeginsAnew(t *testing.T) {
	c := newCourse()
	c.play(3, 1e5, 1e5)
	c.read.Hits = 0 // the engine was started again
	if got := c.play(3, 1e5, 1e5); len(got) != 0 {
		t.Errorf("after a restart: %+v", got)
	}
	c.play(5, 1e5, 0)
	if !c.w.State("10.0.0.1:8000").Flagged {
		t.Fatal("not flagged")
	}
	c.read.Joined++
	c.play(1, 1e5, 0)
	if c.w.State("10.0.0.1:8000").Flagged {
		t.Error("a replica that joined anew has the old one's flag")
	}
	c.w.Look(c.now, nil)
	if s := c.w.State("10.0.0.1:8000"); s != (State{}) {
		t.Errorf("remembered after it left: %+v", s)
	}
}

func TestMetrics(t *testing.T) {
	c := newCourse()
	c.play(5, 1e5, 0)
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.w)
	metricstest.Lint(t, reg)
	families := must.Get(reg.Gather())(t)
	for _, f := range families {
		if v := f.Metric[0].GetGauge().GetValue(); v != 1 {
			t.Errorf("%s is %v", f.GetName(), v)
		}
	}
}
