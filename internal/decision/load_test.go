package decision

import (
	"fmt"
	"math"
	"testing"
	"time"

	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/prefixhash"
)

func TestTheHistogramCalibratesWhereThereAreNoEvents(t *testing.T) {
	rep := replica(1)
	rep.Events = nil
	r := newRig(t, policy.Config{}, rep)
	sum, count := 0.0, 0.0
	for range 100 {
		for range 5 {
			w := new(Work)
			text := []prefixhash.Key{prefixhash.Key(count + 1)}
			d := r.decider.Decide(&Ask{Model: "m", Text: text, TextTokens: 1000}, w)
			r.wait(200 * time.Millisecond)
			sum, count = sum+3*w.Record.Candidates[0].State.Pending+3*0.0355, count+1 // three times slower than modelled
			d.Reservation.Answered(200)
			d.Reservation.Release()
		}
		c := *rep
		c.Load = []fleet.Load{{At: r.now, Times: fleet.Times{TTFT: fleet.Spent{Seconds: sum, Requests: count}}}}
		r.fleet.Set(&c)
	}
	learned := r.account(rep.Addr).Speed()
	if learned < 2.2 || learned > 3.5 {
		t.Errorf("learned speed %g, the replica is three times slower than modelled", learned)
	}
	stranger := replica(2) // an unknown one: it counts like the idle ones
	stranger.Events = nil
	r.fleet.Set(rep, stranger)
	w := new(Work)
	r.decider.Decide(&Ask{Model: "m", Text: []prefixhash.Key{1}, TextTokens: 1000, Dry: true}, w)
	if got := candidate(t, &w.Record, stranger.Addr).Speed; math.Abs(got-learned) > 1e-9 {
		t.Errorf("a new replica counts with speed %g, want %g", got, learned)
	}
}

// TestNoReplicaSetsTheSpeedOfOthers: whatever first-token times one replica counts, another one
// that has shown none is taken to be as fast as most.
func TestNoReplicaSetsTheSpeedOfOthers(t *testing.T) {
	for name, lie := range map[string]float64{"in no time": 1e-9, "never": 1e9} {
		r := newRig(t, policy.Config{}, replicas(4)...)
		for i, seconds := range []float64{1, lie, 1} { // of first tokens that are expected in 1 s
			a := r.account(fmt.Sprintf("10.0.0.%d:8000", i+1))
			for n := range 60 {
				var c load.Charge
				r.wait(time.Second)
				r.ledger.Lock()
				c.Put(a, load.Terms{})
				c.Noted(1, 1, 0)
				a.Scrape(fleet.Load{At: r.now, Times: fleet.Times{TTFT: fleet.Spent{Seconds: seconds * float64(n+1), Requests: float64(n + 1)}}}, false)
				r.ledger.Unlock()
				c.Release()
			}
		}
		_, rec := r.ask(prompt(1, 0, 10))
		if got := candidate(t, rec, "10.0.0.4:8000").Speed; got < 0.7 || got > 1.4 {
			t.Errorf("%s: a new replica counts with speed %g", name, got)
		}
	}
}

func TestLoadedAdaptersAreNearer(t *testing.T) {
	lora := prefixhash.LoRA{Name: "sql", Set: true}
	var reps []*fleet.Replica
	for i := range 3 {
		c := *replica(i + 1)
		c.Models = []fleet.Model{{ID: "sql", Base: "m", LoRA: lora}}
		c.Load = []fleet.Load{{MaxLoRAs: 2, At: time.Unix(1, 0)}}
		reps = append(reps, &c)
	}
	reps[0].Load[0].LoRAs = []string{"de", "fr"}
	reps[1].Load[0].LoRAs = []string{"de"}
	reps[2].Load[0].LoRAs = []string{"de", "sql"}
	r := newRig(t, policy.Config{}, reps...)
	w := new(Work)
	d := r.decider.Decide(&Ask{Model: "sql", Prompts: prompt(1, 0, 50)}, w)
	if d.Chosen != "10.0.0.3:8000,10.0.0.2:8000,10.0.0.1:8000" {
		t.Errorf("order %s: want loaded, a free slot, full", d.Chosen)
	}
}
