package decision

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

var start = time.Unix(1_700_000_000, 0)

func TestReadingDrainsNothingAndResetDoes(t *testing.T) {
	g := NewPressure()
	g.Raise("m", start)
	for range 3 {
		if !g.Of("m", start).Raised || !g.All(start)[0].Raised {
			t.Fatal("reading has drained it")
		}
	}
	if s := g.Of("other", start); s.Raised || len(g.All(start)) != 1 {
		t.Errorf("another model's: %+v, kept %+v", s, g.All(start))
	}
	g.Reset("m")
	g.Reset("never raised")
	if s := g.Of("m", start); s.Raised || s.Total != 1 {
		t.Errorf("after a reset: %+v", s)
	}
	g.Raise("m", start)
	if !g.Of("m", start).Raised {
		t.Error("not raised again after a reset")
	}
}

func TestALateOccurrenceIsNotAForeignOne(t *testing.T) {
	g := NewPressure()
	g.Raise("m", start.Add(time.Minute))
	g.Raise("m", start) // the clock of another goroutine was read before
	if s := g.Of("m", start.Add(time.Minute)); s.Recent != 2 {
		t.Errorf("%+v", s)
	}
}

func TestConcurrentUse(t *testing.T) {
	g := NewPressure()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			for k := range 100 {
				g.Raise("m", start.Add(time.Duration(i+k)*time.Millisecond))
				g.All(start)
			}
		})
	}
	wg.Wait()
	if s := g.Of("m", start); s.Total != 6400 {
		t.Errorf("%+v", s)
	}
}

// TestRaisingWaitsForNobody: not for a scrape, not for models that are added.
func TestRaisingWaitsForNobody(t *testing.T) {
	g := NewPressure()
	g.Raise("m", start)
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := testing.AllocsPerRun(100, func() { g.Raise("m", start) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := g.Of("m", start); s.Recent != 102 || s.Total != 102 { // AllocsPerRun calls once more
		t.Errorf("%+v", s)
	}
}

// TestCountsAreThoseOfAList: the same as keeping every occurrence, rounded to
// parts of the window.
func TestCountsAreThoseOfAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	g := NewPressure()
	var seconds []int64 // parts of the window
	now := start
	for range 5000 {
		now = now.Add(time.Duration(rng.ExpFloat64() * float64(2*time.Second)))
		if rng.IntN(500) == 0 {
			g.Reset("m")
			seconds = nil
		}
		if rng.IntN(100) == 0 {
			now = now.Add(time.Duration(rng.IntN(90)) * time.Second)
		}
		for range rng.IntN(4) {
			g.Raise("m", now)
			seconds = append(seconds, now.Unix())
		}
		want := 0
		for _, at := range seconds {
			if at > now.Unix()-parts {
				want++
			}
		}
		if s := g.Of("m", now); s.Recent != want {
			t.Fatalf("%d occurrences within a minute, want %d", s.Recent, want)
		}
	}
}
