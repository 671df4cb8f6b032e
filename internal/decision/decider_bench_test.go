package decision

import (
	"fmt"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// given is a prompt whose keys are there already.
type given struct {
	chained
	chain []prefixhash.Key
}

func (g *given) AppendKeys(dst []prefixhash.Key, _ *index.Scope, _ int) []prefixhash.Key {
	return append(dst, g.chain...)
}

// crowded is 64 replicas that all have the first 64 blocks of a prompt of 768,
// every fourth a quarter of it and four of them everything, each with requests
// in flight. Space has a price.
func crowded(t testing.TB, space float64) (*rig, *given) {
	var reps []*fleet.Replica
	for i := range 64 {
		c := replica(i + 1)
		c.Addr = fmt.Sprintf("10.0.1.%d:8000", 100+i)
		c.BlockSize, c.Blocks = blockSize, 25_000
		c.Load = []fleet.Load{{Running: 3, Waiting: 1, At: time.Unix(1, 0)}}
		reps = append(reps, c)
	}
	r := newRig(t, policy.Config{Overrides: policy.Overrides{TTFT: policy.Constants{"space": &space}}}, reps...)
	p := prompt(1, 0, 768)
	for i, rep := range reps {
		part := p
		switch {
		case i%16 == 5:
		case i%4 == 1:
			part.blocks = p.blocks[:192]
		default:
			part.blocks = p.blocks[:64]
		}
		r.stored(rep.Addr, part)
	}
	for i := range 256 {
		r.ask(prompt(2, i, 20))
	}
	return r, &given{p, p.keys()}
}

// rankOnly is a decision up to its ranked list: nothing is charged.
func rankOnly(d *Decider, a *Ask, w *Work) {
	w.Record.Reset()
	mv, _ := d.Find(a.Model, a.Tenant)
	set := d.Settings(mv)
	w.clear(len(mv.holders))
	d.match(a, mv, w)
	w.gather(a, mv)
	d.ledger.Lock()
	w.weigh(mv, set, d.now().UnixNano())
	w.ranked = set.Pick(w.ranked[:0], d.o.Ranked, policy.Request{Input: w.Record.Tokens}, w.cands, w.scores)
	d.ledger.Unlock()
}

func TestRankingAllocatesNothing(t *testing.T) {
	r, p := crowded(t, 0)
	a, w := &Ask{Model: "m", Prompts: p}, new(Work)
	rankOnly(r.decider, a, w)
	if w.matched[5].gpu() != 768*blockSize || w.matched[1].gpu() != 192*blockSize || w.matched[0].gpu() != 64*blockSize {
		t.Fatalf("matches %+v", w.matched[:6])
	}
	if n := testing.AllocsPerRun(100, func() { rankOnly(r.decider, a, w) }); n != 0 {
		t.Errorf("ranking allocates %v times", n)
	}
	for range 1000 {
		r.decider.Decide(a, w).Reservation.Release()
	}
	// A whole decision makes the reservation and the header's value.
	if n := testing.AllocsPerRun(100, func() { r.decider.Decide(a, w).Reservation.Release() }); n > 2 {
		t.Errorf("a decision allocates %v times", n)
	}
}

func BenchmarkRank64Replicas768Blocks(b *testing.B) {
	r, p := crowded(b, 0)
	a, w := &Ask{Model: "m", Prompts: p}, new(Work)
	b.ReportAllocs()
	for b.Loop() {
		rankOnly(r.decider, a, w)
	}
}

func BenchmarkDecide64Replicas768Blocks(b *testing.B) {
	for _, space := range []float64{0, 1} {
		b.Run(fmt.Sprintf("space=%g", space), func(b *testing.B) {
			r, p := crowded(b, space)
			a, w := &Ask{Model: "m", Prompts: p}, new(Work)
			b.ReportAllocs()
			for b.Loop() {
				r.decider.Decide(a, w).Reservation.Release()
			}
		})
	}
}

// BenchmarkReference is a fixed amount of work, 1,000 dependent multiplications,
// to tell machines apart.
func BenchmarkReference(b *testing.B) {
	x := uint64(1)
	for b.Loop() {
		for range 1000 {
			x = (x ^ x>>31) * 0xBF58476D1CE4E5B9
		}
	}
	if x == 0 {
		b.Fatal("never")
	}
}
