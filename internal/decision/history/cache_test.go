package history

import (
	"container/list"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

var start = time.Unix(1_700_000_000, 0)

// prompt returns a prompt of n marks. Prompts of one family share the first ones.
func prompt(family, own, shared, n int) Prompt {
	p := Prompt{Marks: prefixhash.TextMarks}
	parent := prefixhash.Key(family + 1)
	for i := range n {
		of := family
		if i >= shared {
			of = own
		}
		parent = prefixhash.Link(parent, prefixhash.Content(of*1_000+i))
		p.Keys = append(p.Keys, parent)
	}
	return p
}

// used has a request of p begin and end.
func (c *Cache) used(p Prompt, rest int, now time.Time) { c.End(p, c.Use(p, rest, now), true, now) }

// model is a cache of vLLM's: units of a prompt between two marks are its blocks.
type model struct {
	capacity, tokens int
	idle             *list.List                       // of blocks, the oldest first
	place            map[prefixhash.Key]*list.Element // in idle
	refs             map[prefixhash.Key]int
	size             map[prefixhash.Key]int // of all present
}

type block struct {
	key  prefixhash.Key
	size int
}

func newModel(capacity int) *model {
	return &model{capacity: capacity, idle: list.New(), place: map[prefixhash.Key]*list.Element{}, refs: map[prefixhash.Key]int{}, size: map[prefixhash.Key]int{}}
}

func (m *model) match(p Prompt) (marks int) {
	for marks < len(p.Keys) && m.size[p.Keys[marks]] > 0 {
		marks++
	}
	return marks
}

func (m *model) use(p Prompt) {
	for i, k := range p.Keys {
		if m.size[k] == 0 {
			m.size[k] = p.Marks.End(i+1) - p.Marks.End(i)
			m.tokens += m.size[k]
		}
		if m.refs[k]++; m.refs[k] == 1 {
			if at := m.place[k]; at != nil {
				m.idle.Remove(at)
				delete(m.place, k)
			}
		}
	}
	m.evict()
}

func (m *model) end(p Prompt) {
	for i, k := range slices.Backward(p.Keys) {
		if m.refs[k]--; m.refs[k] == 0 {
			m.place[k] = m.idle.PushBack(block{k, p.Marks.End(i+1) - p.Marks.End(i)})
		}
	}
	m.evict()
}

func (m *model) evict() {
	for m.tokens > m.capacity && m.idle.Len() > 0 {
		b := m.idle.Remove(m.idle.Front()).(block)
		m.tokens -= b.size
		delete(m.size, b.key)
		delete(m.place, b.key)
	}
}

// TestItEvictsAsTheEngine: at every moment of random requests, some of them long, the
// cache has of every prompt what a cache of blocks has that evicts as vLLM does.
func TestItEvictsAsTheEngine(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 1))
		c, m := newCache(), newModel(3000+rng.IntN(30_000))
		c.SetCapacity(m.capacity)
		type open struct {
			p Prompt
			h Hold
		}
		var running []open
		now, most := start, 0
		for step := range 3000 {
			now = now.Add(time.Second / 10)
			if len(running) > 0 && (len(running) > 4 || rng.IntN(2) == 0) {
				i := rng.IntN(len(running))
				o := running[i]
				running = slices.Delete(running, i, i+1)
				c.End(o.p, o.h, true, now)
				m.end(o.p)
			} else {
				p := prompt(rng.IntN(6), 10+rng.IntN(12), 1+rng.IntN(12), 1+rng.IntN(40))
				got, want := c.Match(p, now), p.Marks.End(m.match(p))
				if most = max(most, want); got != want {
					t.Fatalf("seed %d, step %d: %d tokens are cached, the engine has %d", seed, step, got, want)
				}
				running = append(running, open{p, c.Use(p, 0, now)})
				m.use(p)
			}
			if c.tokens != m.tokens {
				t.Fatalf("seed %d, step %d: %d tokens, the engine has %d", seed, step, c.tokens, m.tokens)
			}
			c.agesAgree(t)
		}
		if most == 0 {
			t.Errorf("seed %d: no prompt was ever cached", seed)
		}
	}
}

func TestAnswersTakeRoom(t *testing.T) {
	c := newCache()
	c.SetCapacity(2000)
	a, b := prompt(1, 1, 0, 10), prompt(2, 2, 0, 10) // 640 tokens each
	c.used(a, 500, start)
	c.used(b, 500, start) // 2,280 tokens: the first answer goes first
	if n := c.Match(a, start); n != 640 || c.tokens != 2000 {
		t.Errorf("%d tokens of the first prompt, of %d in all", n, c.tokens)
	}
	c.used(prompt(3, 3, 0, 2), 400, start) // 528 more: the rest of that answer, then the prompt's end
	if n := c.Match(a, start); n == 0 || n == 640 || c.tokens > 2000 {
		t.Errorf("%d tokens of the first prompt, of %d in all", n, c.tokens)
	}
	for range 50 {
		c.used(b, 300, start)
	}
	if n := c.Match(b, start); n != 640 || c.tokens > 2000 {
		t.Errorf("50 answers to one prompt leave %d tokens of it, of %d in all", n, c.tokens)
	}
}

// TestRunningRequestsKeepTheirPrompts, and what was not computed is not kept.
func TestRunningRequestsKeepTheirPrompts(t *testing.T) {
	c := newCache()
	c.SetCapacity(1000)
	a, more := prompt(1, 1, 0, 10), prompt(1, 1, 0, 14)
	hold := c.Use(a, 0, start)
	for i := range 20 {
		c.used(prompt(2, 5+i, 0, 10), 0, start)
	}
	if n := c.Match(a, start); n != 640 {
		t.Errorf("%d tokens of a running request's prompt", n)
	}
	next := c.Use(more, 0, start)
	if n := c.Match(more, start); n != 896 {
		t.Errorf("%d tokens of the next turn's", n)
	}
	c.End(more, next, false, start)
	if n := c.Match(more, start); n != 640 {
		t.Errorf("%d tokens after it was refused", n)
	}
	c.End(a, hold, true, start)
	for i := range 3 {
		c.used(prompt(3, 50+i, 0, 12), 0, start)
	}
	if n := c.Match(a, start); n != 0 {
		t.Errorf("%d tokens after others took its room", n)
	}
}

func TestARestartForgets(t *testing.T) {
	var h History
	at := index.Holder{Replica: "10.0.0.1:8000"}
	c, p := h.Of(at), prompt(1, 1, 0, 10)
	if h.Clear(at.Replica) {
		t.Error("an empty cache had something")
	}
	hold := c.Use(p, 100, start)
	if !h.Clear(at.Replica) || c.Match(p, start) != 0 {
		t.Error("the cache outlives the replica")
	}
	c.used(p, 50, start)
	c.End(p, hold, true, start) // of the life before
	if n := c.Match(p, start); n != 640 || c.tokens != 690 {
		t.Errorf("%d tokens of the prompt, %d in all", n, c.tokens)
	}
	if !h.Drop(at.Replica, start) || h.Of(at) == c {
		t.Error("the cache stays after the replica has left")
	}
}

// TestRefusedPromptsTakeNoRoom: what a refused request alone has used is gone, and its room is free,
// also where it was evicted meanwhile; in use, or in a later life of the cache, it stays.
func TestRefusedPromptsTakeNoRoom(t *testing.T) {
	p, longer := prompt(1, 1, 0, 4), prompt(1, 1, 0, 10)
	for name, tt := range map[string]struct {
		after func(c *Cache, h Hold)
		want  int
	}{
		"ended":       {func(c *Cache, h Hold) { c.End(longer, h, true, start) }, p.Marks.End(4)},
		"evicted":     {func(c *Cache, h Hold) { c.End(longer, h, true, start); c.SetCapacity(p.Marks.End(4)) }, p.Marks.End(4)},
		"in use":      {func(*Cache, Hold) {}, p.Marks.End(10) + 50},
		"a new cache": {func(c *Cache, _ Hold) { c.Clear(); c.used(p, 0, start); c.used(longer, 0, start) }, p.Marks.End(10)},
	} {
		c := newCache()
		c.used(p, 0, start)
		h := c.Use(longer, 50, start)
		tt.after(c, h)
		c.Refused(h)
		c.Refused(h)
		if c.tokens != tt.want || c.evicted.Load() != 0 {
			t.Errorf("%s: %d tokens, %d evicted, want %d", name, c.tokens, c.evicted.Load(), tt.want)
		}
		c.used(longer, 0, start)
		if c.Match(p, start) != p.Marks.End(4) {
			t.Errorf("%s: what it had before is gone", name)
		}
	}
}

func TestUsesAreForgottenAfterADay(t *testing.T) {
	c, p := newCache(), prompt(1, 1, 0, 10)
	c.used(p, 0, start)
	for after, want := range map[time.Duration]int{longest: 640, longest + 2*time.Second: 0} {
		if n := c.Match(p, start.Add(after)); n != want {
			t.Errorf("%d tokens after %v, want %d", n, after, want)
		}
	}
}

// TestVisits: the requests of other routers keep their prompts until their end is
// reported, or for a bounded time and number.
func TestVisits(t *testing.T) {
	c, a := newCache(), prompt(1, 1, 0, 10)
	c.SetCapacity(1000)
	fill := func(now time.Time) {
		for i := range 20 {
			c.used(prompt(2, 5+i, 0, 10), 0, now)
		}
	}
	last, ends := a.Keys[len(a.Keys)-1], 0
	end := func(time.Time) { ends++ }
	c.Arrived("r", a, 0, start, end)
	if fill(start); c.Match(a, start) != 640 {
		t.Error("a running request's prompt is gone")
	}
	c.Left("r", last, true, start)
	if fill(start); c.Match(a, start) != 0 || ends != 1 {
		t.Errorf("its prompt stays after its end, which is told %d times", ends)
	}
	c.Left("r", last, true, start)
	c.Arrived("r", a, 0, start, end)
	c.Left("r", last, false, start)
	if c.Match(a, start) != 0 {
		t.Error("what was refused is kept")
	}
	c.Arrived("r", a, 0, start, end)
	later := start.Add(longestVisit + time.Second)
	c.Arrived("r", prompt(3, 3, 0, 1), 0, later, end)
	if fill(later); c.Match(a, later) != 0 {
		t.Error("a request whose end was never reported is kept for ever")
	}
	for i := range 3 * mostVisits {
		c.Arrived("r", prompt(4, 1000+i, 0, 1), 0, later, end)
	}
	if n := len(c.inFlight); n > mostVisits || ends != 4+2*mostVisits {
		t.Errorf("%d visits, %d have ended", n, ends)
	}
}

// TestVisitsOfTheGone: the requests of a router that is gone, and all at a holder that is, end once.
func TestVisitsOfTheGone(t *testing.T) {
	h := new(History)
	at := index.Holder{Replica: "10.0.0.1:1"}
	c := h.Of(at)
	c.SetCapacity(100_000)
	ends := map[string]int{}
	arrive := func(from string, family int) {
		c.Arrived(from, prompt(family, family, 0, 10), 1000, start, func(time.Time) { ends[from]++ })
	}
	arrive("a", 1)
	arrive("b", 2)
	arrive("a", 3)
	if now, _ := c.Used(); now != 3*(640+1000) {
		t.Fatalf("%g tokens are in use", now)
	}
	h.Gone("a", start)
	h.Gone("a", start)
	if now, _ := c.Used(); now != 640+1000 || ends["a"] != 2 || ends["b"] != 0 {
		t.Errorf("one of two routers is gone: %g tokens are in use, requests of %v have ended", now, ends)
	}
	h.Drop(at.Replica, start)
	arrive("c", 4) // by a view that still has the holder
	if len(c.inFlight) != 0 || ends["b"] != 1 || ends["c"] != 1 {
		t.Errorf("the holder is gone: %d are in flight, requests of %v have ended", len(c.inFlight), ends)
	}
}

// TestMemory: prompts of 48 KB that share a twelfth take at most 1 % of their text.
func TestMemory(t *testing.T) {
	const n, bytes = 2000, 48 << 10
	c := newCache()
	c.SetCapacity(1 << 40)
	marks := prefixhash.TextMarks.Within(bytes / prefixhash.TextToken)
	before := heap()
	for i := range n {
		c.used(prompt(i%10, 100+i, marks/4, marks), 300, start)
	}
	used := heap() - before
	perPrompt := float64(used) / n
	t.Logf("%d marks, %.0f bytes for a prompt of %d: %.2f %%", marks, perPrompt, bytes, 100*perPrompt/bytes)
	if perPrompt > 0.01*bytes {
		t.Errorf("%.0f bytes for a prompt of %d", perPrompt, bytes)
	}
	runtime.KeepAlive(c)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
