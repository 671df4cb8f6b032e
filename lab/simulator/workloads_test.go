package simulator

import (
	"math"
	"slices"
	"testing"
)

// TestTalksGoOn: a prompt begins with the one before it in its session and that one's answer,
// and the answer's blocks are named where the next prompt has them.
func TestTalksGoOn(t *testing.T) {
	for _, name := range []string{"code", "agents"} {
		c := Workloads[name](0.1)[0]
		tr := c.Trace(1)
		last, going, cut := map[int]*Request{}, 0, 0
		for i := range tr.Requests {
			r := &tr.Requests[i]
			if len(r.Blocks) != r.Input/talkBlock {
				t.Fatalf("%s: %d blocks for %d tokens", name, len(r.Blocks), r.Input)
			}
			if l := last[r.Session]; l != nil && r.Input > l.Input {
				going++
				whole := slices.Concat(l.Blocks, l.Answer)
				if want := (l.Input + l.Output) / talkBlock; len(whole) != want || !slices.Equal(whole, r.Blocks[:want]) {
					t.Fatalf("%s: a prompt does not go on from the %d blocks before it", name, want)
				}
			} else if l != nil {
				cut++
			}
			last[r.Session] = r
		}
		if going < len(tr.Requests)/2 || name == "code" && cut > 0 {
			t.Errorf("%s: %d of %d requests go on, %d are cut", name, going, len(tr.Requests), cut)
		}
	}
}

// TestWorkloadsAreWhatTheySay: the means that are published.
func TestWorkloadsAreWhatTheySay(t *testing.T) {
	mean := func(name string, of func(r *Request) int) (sum float64) {
		tr := Workloads[name](1)[0].Trace(1)
		for i := range tr.Requests {
			sum += float64(of(&tr.Requests[i])) / float64(len(tr.Requests))
		}
		return sum
	}
	input, output := func(r *Request) int { return r.Input }, func(r *Request) int { return r.Output }
	for what, got := range map[string][2]float64{
		"b2b prompts":       {mean("b2b", input), 7200},
		"b2b answers":       {mean("b2b", output), 1000},
		"reasoning prompts": {mean("reasoning", input), 1250},
		"reasoning answers": {mean("reasoning", output), 8000},
		"zipf prompts":      {mean("zipf", input), 4500},
		"agents' prompts":   {mean("agents", input), 90_000},
		"agents' answers":   {mean("agents", output), 440},
	} {
		if math.Abs(got[0]/got[1]-1) > 0.1 {
			t.Errorf("%s: mean %.0f, want %.0f", what, got[0], got[1])
		}
	}
}

// TestSessionsFollowTheirAnswers: a request comes when the answer before it is there and its
// pause is over, and so many sessions are open.
func TestSessionsFollowTheirAnswers(t *testing.T) {
	c := Workloads["code"](0.1)[0]
	tr := c.Trace(1)
	s := New(Config{Replicas: 10, Hardware: c.Hardware, Policy: Rivals["least"], Sessions: 20}, tr, 1)
	all := slices.Clone(s.requests)
	s.Run()
	last, open := map[int]*Request{}, map[float64]int{}
	for _, r := range all {
		if l := last[r.Session]; l != nil && math.Abs(r.At-l.Done-r.Think) > 1e-9 {
			t.Fatalf("request %d came at %g, the answer before it at %g, its pause is %g", r.ID, r.At, l.Done, r.Think)
		}
		last[r.Session] = r
		open[r.At]++
		open[r.Done]--
	}
	n, most := 0, 0
	for _, at := range slices.Sorted(func(yield func(float64) bool) {
		for at := range open {
			if !yield(at) {
				return
			}
		}
	}) {
		n += open[at]
		most = max(most, n)
	}
	if most > 20 || most < 15 {
		t.Errorf("up to %d requests in flight, of 20 sessions", most)
	}
}

// TestRivalsOfToday holds the new ones to what their code says, on two replicas.
func TestRivalsOfToday(t *testing.T) {
	cached := []int32{0, 1, 2, 3, 4}
	r := func() *Request { return &Request{Input: 5 * Block, Output: 1, Blocks: slices.Clone(cached)} }
	for _, c := range []struct {
		policy    string
		match     int    // blocks that replica 1 has
		uncached  [2]int // tokens
		inFlight  [2]int
		want      int
		objection string
	}{
		{"llm-d-tokens", 4, [2]int{0, 286_704}, [2]int{0, 9}, 1, "0.8 are cached, and the gate is not passed"},
		{"llm-d-tokens", 4, [2]int{0, 286_705}, [2]int{0, 9}, 0, "the gate is passed"},
		{"llm-d-tokens", 3, [2]int{0, 2000}, [2]int{0, 0}, 0, "less than 0.8 is cached: least tokens"},
		{"llm-d-tokens", 3, [2]int{0, 1000}, [2]int{0, 0}, 1, "less than 0.8 is cached: least tokens"},
		{"llm-d-requests", 3, [2]int{0, 0}, [2]int{1, 2}, 0, "fewest requests"},
		{"llm-d-requests", 5, [2]int{0, 0}, [2]int{1, 2}, 1, "cached"},
		{"lmetric", 4, [2]int{0, 0}, [2]int{0, 5}, 0, "2560 x 1 against 512 x 6"},
		{"lmetric", 4, [2]int{0, 0}, [2]int{0, 3}, 1, "2560 x 1 against 512 x 4"},
		{"vllm-router", 1, [2]int{0, 9_000_000}, [2]int{0, 500}, 1, "the longest match, whatever the load"},
		{"vllm-router", 0, [2]int{0, 0}, [2]int{3, 2}, 1, "the shortest queue"},
	} {
		s := &Sim{c: Config{Replicas: 2, Hardware: H100()}, block: Block, rng: New(Config{Replicas: 2, Hardware: H100(), Policy: Rivals["p2c"]}, Unique(2, 1), 1).rng}
		s.router = newState(2, 8)
		copy(s.router.uncached, c.uncached[:])
		copy(s.router.inFlight, c.inFlight[:])
		s.router.apply(&event{replica: 1, Ended: Ended{Stored: cached[:c.match]}})
		if got := Rivals[c.policy](s).Route(0, r()); got != c.want {
			t.Errorf("%s with %d blocks on replica 1, %v tokens and %v requests in flight: replica %d (%s)", c.policy, c.match, c.uncached, c.inFlight, got, c.objection)
		}
	}
}

// TestRaysTree: a match of a tenth of the prompt is enough, the shortest queue of those that
// have it, and else the smallest tree.
func TestRaysTree(t *testing.T) {
	s := &Sim{c: Config{Replicas: 2}, block: Block, rng: New(Config{Replicas: 2, Hardware: H100(), Policy: Rivals["p2c"]}, Unique(2, 1), 1).rng}
	s.router = newState(2, 64)
	p := ray(s)
	long := make([]int32, 10)
	for i := range long {
		long[i] = int32(i)
	}
	p.Routed(0, &Request{Replica: 1, Blocks: long[:1]})
	s.router.inFlight[1] = 400
	if got := p.Route(0, &Request{Blocks: long}); got != 1 {
		t.Errorf("a tenth matches on replica 1, the request goes to %d", got)
	}
	if got := p.Route(0, &Request{Blocks: append([]int32{0}, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29)}); got != 0 {
		t.Errorf("less than a tenth matches, replica 0 has the smaller tree; the request goes to %d", got)
	}
}
