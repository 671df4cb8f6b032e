package history

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// agesAgree fails the test unless the ages count every node of the list that is not evicted.
func (c *Cache) agesAgree(t *testing.T) {
	t.Helper()
	want := ages{width: c.ages.width}
	for n := c.edge; n != &c.ends; n = n.newer {
		*want.of(n.seen) += n.tokens()
	}
	if want.tokens != c.ages.tokens {
		t.Fatalf("ages %v, the list has %v", c.ages.tokens, want.tokens)
	}
}

// TestAgesReachAnyTime: whether prompts come within milliseconds or after days, the ages count
// the nodes of the list, in time slots that tell them apart.
func TestAgesReachAnyTime(t *testing.T) {
	for _, learned := range []bool{false, true} {
		rng := rand.New(rand.NewPCG(1, 9))
		c, now := newCache(), start
		if !learned {
			c.SetCapacity(20_000)
		}
		c.capacity = 20_000
		for range 3000 {
			now = now.Add(time.Duration(rng.ExpFloat64() * float64(time.Second) * []float64{1e-3, 1, 1e5}[rng.IntN(3)]))
			c.used(prompt(rng.IntN(6), 10+rng.IntN(12), 1+rng.IntN(12), 1+rng.IntN(40)), rng.IntN(300), now)
			c.agesAgree(t)
			if wide := (c.clock - c.edge.seen) >> c.ages.width; wide >= slots || c.ages.width > leastSlot && wide < 2 {
				t.Fatalf("%d slots from the oldest use to the latest", wide)
			}
		}
	}
}

// TestWorth: nothing that is used again is evicted while there is room, or of a cache full of what
// nobody asked for lately; more with each prompt, from the moment at which it is sent, more for a
// longer request, and all where everything in the cache was just used.
func TestWorth(t *testing.T) {
	c, again := newCache(), 10*time.Second
	if _, known := c.Worth(640, start, again); known {
		t.Error("a cache of no known size has a worth")
	}
	c.SetCapacity(20_000)
	worth := func(now time.Time) float64 {
		share, known := c.Worth(640, now, again)
		if !known {
			t.Error("the size is named")
		}
		return share
	}
	now := start
	c.used(prompt(1, 1, 0, 10), 0, now)
	if w := worth(now); w != 0 {
		t.Errorf("%g where there is room", w)
	}
	if w, _ := c.Worth(20_000, now, again); w <= 0 || w >= 1 {
		t.Errorf("%g for a request for which the room is too small", w)
	}
	for i := range 40 { // 640 tokens each, one a minute
		now = now.Add(time.Minute)
		c.used(prompt(2, 10+i, 0, 10), 0, now)
	}
	now = now.Add(time.Minute)
	if w := worth(now); w != 0 {
		t.Errorf("%g of what nobody has asked for for half an hour", w)
	}
	last := 0.0
	for i := range 40 {
		c.used(prompt(3, 100+i, 0, 10), 0, now)
		if w := worth(now); w < last {
			t.Errorf("%g, and %g after one more prompt", last, w)
		} else {
			last = w
		}
	}
	if last < 0.99 {
		t.Errorf("%g of a cache that is full of what was just sent", last)
	}
	if w := worth(now.Add(time.Hour)); w > 0 {
		t.Errorf("%g an hour later", w)
	}
}

// room returns the times of Room, to a microsecond.
func room(c *Cache, tokens int) [2]float64 {
	wait, own := c.Room(tokens)
	return [2]float64{math.Round(wait*1e6) / 1e6, math.Round(own*1e6) / 1e6}
}

// TestRoom: a request waits for the room that answers leave as they end, of which its own tokens
// take some, and not where there is
// room, or where nobody tells how large the cache is or how long answers take.
func TestRoom(t *testing.T) {
	c, p, q := newCache(), prompt(1, 1, 0, 1), prompt(2, 2, 0, 1)
	mark := p.Marks.End(1)
	h := c.Use(p, 8_000-mark, start)
	if c.Read(Page{Answers: 10, Seconds: 100}); room(c, 1<<30) != [2]float64{} {
		t.Error("the size of the cache is not known")
	}
	c.SetCapacity(20_000)
	g := c.Use(q, 8_000-mark, start)
	for _, tt := range []struct {
		tokens int
		want   [2]float64
	}{{4_000, [2]float64{}}, {5_600, [2]float64{1, 1}}, {20_000, [2]float64{10, 10}}} {
		if got := room(c, tt.tokens); got != tt.want {
			t.Errorf("%d tokens wait %g s, want %g", tt.tokens, got, tt.want)
		}
	}
	c.Use(prompt(3, 3, 0, 1), 16_000-mark, start) // a full cache has no more answers that end than it has room for
	if got, want := room(c, 10_000), ([2]float64{10 * 22_000. / 20_000, 10 * 10_000. / 20_000}); got != want {
		t.Errorf("behind others: %g s, want %g", got, want)
	}
	c.End(p, h, true, start)
	c.End(q, g, true, start)
	if got := room(c, 4_000); got != [2]float64{} {
		t.Errorf("after answers have ended: %g s", got)
	}
}

// TestRoomOfYoungAnswers: what a page says is in use counts, and a quarter of what the answers are
// expected to add; for later requests all of it. A page without usage says nothing.
func TestRoomOfYoungAnswers(t *testing.T) {
	c, p := newCache(), prompt(1, 1, 0, 1)
	c.SetCapacity(20_000)
	c.Use(p, 16_000-p.Marks.End(1), start)
	for _, tt := range []struct {
		usage float64
		want  [2]float64
	}{
		{0, [2]float64{10 * 4_000. / 16_000, 10 * 4_000. / 16_000}},
		{0.4, [2]float64{0, 10 * 4_000. / 16_000}},                    // 8,000 and a quarter of 8,000
		{0.7, [2]float64{10 * 2_500. / 16_000, 10 * 4_000. / 16_000}}, // 14,000 and a quarter of 2,000
		{0.9, [2]float64{10 * 6_000. / 18_000, 10 * 6_000. / 18_000}}, // more than was sent
	} {
		c.Read(Page{Answers: 10, Seconds: 100, Usage: tt.usage})
		if got := room(c, 8_000); math.Abs(got[0]-tt.want[0]) > 1e-5 || math.Abs(got[1]-tt.want[1]) > 1e-5 {
			t.Errorf("usage %g: %g s, want %g", tt.usage, got, tt.want)
		}
	}
	if used, _ := c.Used(); math.Abs(used-18_000) > 1 || math.Abs(c.Share(used)-0.9) > 1e-3 || c.Share(1e9) != 1 || newCache().Share(1) != 0 {
		t.Errorf("%g tokens are in use, %g of the cache", used, c.Share(used))
	}
}
