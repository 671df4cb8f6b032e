package tokens

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// counted returns how many questions each replica gets while do runs.
func (s several) counted(do func()) (n []int64) {
	for _, f := range s {
		n = append(n, -f.asked.Load())
	}
	do()
	for i, f := range s {
		n[i] += f.asked.Load()
	}
	return n
}

// TestReplicasAreCompared: where replicas compute the ids of requests, one that returns others than
// most for the same texts is named and asked for no request, until it agrees again or is gone. Of
// two nobody knows which is right.
func TestReplicasAreCompared(t *testing.T) {
	type answers = func(string, []byte) [][]uint32
	one, two := wrong(t, 1), wrong(t, 2)
	for name, c := range map[string]struct {
		answers []answers // nil: right
		named   []int     // replicas
		asked   bool      // although they are named
	}{
		"all agree":                    {answers: make([]answers, 3)},
		"one of three":                 {answers: []answers{nil, one, nil}, named: []int{1}},
		"two of four, each its own":    {answers: []answers{one, nil, two, nil}, named: []int{0, 2}, asked: true},
		"one of two":                   {answers: []answers{nil, one}, named: []int{1}, asked: true},
		"the only one":                 {answers: []answers{one}},
		"one, and another refuses all": {answers: []answers{nil, one, refuse, nil}, named: []int{1}},
		"two that agree, of five":      {answers: []answers{one, nil, nil, one, nil}, named: []int{0, 3}},
	} {
		for _, render := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", render ", render), func(t *testing.T) {
				s := newSeveral(t, len(c.answers))
				for i, a := range c.answers {
					if a != nil {
						s[i].answer = a
					}
				}
				now := time.Unix(1000, 0)
				listed := s
				r := newRemote(t, RemoteOptions{CompareEvery: time.Minute, Now: func() time.Time { return now }, Endpoints: func(Served) []Endpoint {
					endpoints := listed.endpoints("m")
					for i := range endpoints {
						endpoints[i].Render = render
					}
					return endpoints
				}})
				next := 0
				ask := func() { // as a request does, and waits for the comparison
					next++
					_, _ = r.Tokens(t.Context(), chatRequest(t, fmt.Sprint("request ", next)), someModel)
					waitFor(t, func() bool { return r.slots.Used() == 0 })
				}
				named := func() string {
					var out []string
					for _, d := range r.Dissents() {
						out = append(out, d.Replica)
						if d.Model != "m" || d.Shunned == c.asked || d.Position != 0 || d.At.IsZero() {
							t.Errorf("%+v", d)
						}
					}
					slices.Sort(out)
					return strings.Join(out, " ")
				}
				ask()
				got := named()
				if c.asked { // which one is named depends on the turn
					if n := len(strings.Fields(got)); n == 0 || n > len(s)/2+1 {
						t.Errorf("named %q", got)
					}
				} else if got != s.of(c.named...) {
					t.Errorf("named %q, want %q", got, s.of(c.named...))
				}
				requests := func() {
					for range 4 * len(s) {
						ask()
					}
				}
				for i, n := range s.counted(requests) {
					if (n > 0) == (slices.Contains(c.named, i) && !c.asked) {
						t.Errorf("replica %d was asked for %d requests", i, n)
					}
				}
				for _, f := range s {
					f.answer = honest(t)
				}
				if now = now.Add(time.Minute - 1); len(c.named) > 0 {
					if ask(); named() == "" {
						t.Error("compared again before a minute")
					}
				}
				now = now.Add(1)
				if ask(); named() != "" {
					t.Errorf("they agree again, and %q is named", named())
				}
				if n := s.counted(requests); slices.Contains(n, 0) {
					t.Errorf("they agree again, and are asked for %v requests", n)
				}
				if len(c.named) == 0 || c.asked {
					return
				}
				s[c.named[0]].answer = one
				now = now.Add(time.Minute)
				if ask(); named() != s.of(c.named[0]) {
					t.Errorf("it differs again: %q", named())
				}
				listed = slices.Delete(slices.Clone(s), c.named[0], c.named[0]+1)
				now = now.Add(time.Minute)
				if ask(); named() != "" {
					t.Errorf("it is gone, and %q is named", named())
				}
				listed = s
				if n := s.counted(requests); n[c.named[0]] == 0 {
					t.Error("another one in its place is not asked")
				}
			})
		}
	}
}

// TestComparisonsAreBounded: of many replicas a part is compared at a time, and all in the end;
// of many models a bounded number is known.
func TestComparisonsAreBounded(t *testing.T) {
	s := newSeveral(t, mostCompared+8)
	for _, f := range s {
		f.answer = func(string, []byte) [][]uint32 { return [][]uint32{{1}} }
	}
	now := time.Unix(1000, 0)
	r := newRemote(t, RemoteOptions{CompareEvery: time.Minute, Now: func() time.Time { return now }, Endpoints: func(served Served) []Endpoint { return s.endpoints(served.Model) }})
	asked := func() (n int) {
		for _, f := range s {
			if f.asked.Load() > 1 {
				n++
			}
		}
		return n
	}
	for i := range 3 {
		must.Get(r.Tokens(t.Context(), chatRequest(t, fmt.Sprint(i)), someModel))(t)
		waitFor(t, func() bool { return r.slots.Used() == 0 })
		if n := asked(); i == 0 && n > mostCompared+1 || i == 2 && n < len(s) {
			t.Errorf("after %d comparisons %d replicas were compared", i+1, n)
		}
		now = now.Add(time.Minute)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range mostComparisons {
		r.compared[compared{model: fmt.Sprint(i)}] = &comparison{due: now.Add(time.Hour)}
	}
	delete(r.compared, compared{model: "m"})
	r.compareWhenDue(compared{model: "one more"})
	if n := len(r.compared); n != mostComparisons {
		t.Errorf("%d models are known, want %d", n, mostComparisons)
	}
	now = now.Add(2 * time.Hour)
	if r.compareWhenDue(compared{model: "one more"}); len(r.compared) != 1 {
		t.Errorf("%d models are known, of which one had a request lately", len(r.compared))
	}
}

// TestAllReplicasOfATenantAreCompared: none of another tenant, and not only those that a gateway
// allows the request.
func TestAllReplicasOfATenantAreCompared(t *testing.T) {
	s := newSeveral(t, 4)
	r := newRemote(t, RemoteOptions{CompareEvery: time.Minute, Endpoints: func(served Served) []Endpoint {
		switch {
		case served.Tenant != "acme":
			return s[3:].endpoints("m")
		case served.Subset != nil:
			return s[:1].endpoints("m")
		}
		return s[:3].endpoints("m")
	}})
	n := s.counted(func() {
		must.Get(r.Tokens(t.Context(), chatRequest(t, "hi"), Served{Model: "m", Tenant: "acme", Subset: []string{"10.0.0.1"}}))(t)
		waitFor(t, func() bool { return r.slots.Used() == 0 })
	})
	if n[1] < 10 || n[2] != n[1] || n[0] != n[1]+1 || n[3] != 0 {
		t.Errorf("the replicas were asked %v times", n)
	}
}

// TestTheLikelyReplicaIsAsked: a request's text goes to the replica that the request itself will
// probably go to, however loaded it is; to another one if it is unknown, may not be asked, or pauses.
func TestTheLikelyReplicaIsAsked(t *testing.T) {
	for _, render := range []bool{false, true} {
		s := newSeveral(t, 3)
		endpoints := s.endpoints("m")
		for i := range endpoints {
			endpoints[i].Render, endpoints[i].Busy = render, float64(9-i)
		}
		r := newRemote(t, RemoteOptions{Endpoints: func(Served) []Endpoint { return endpoints }})
		next := 0
		asked := func(likely string) (who []int) {
			for i, n := range s.counted(func() {
				for range 6 {
					next++
					must.Get(r.Tokens(t.Context(), chatRequest(t, fmt.Sprint(next)), Served{Model: "m", Likely: func() string { return likely }}))(t)
				}
			}) {
				if n > 0 {
					who = append(who, i)
				}
			}
			return who
		}
		for i := range s {
			if who := asked(s.of(i)); !slices.Equal(who, []int{i}) {
				t.Errorf("render %t: %v were asked, want %d alone", render, who, i)
			}
		}
		r.paces.shun(s[0].URL, true)
		for _, likely := range []string{"", "10.0.0.1:8000", s.of(0)} {
			if who := asked(likely); len(who) == 0 || likely == s.of(0) && slices.Contains(who, 0) {
				t.Errorf("render %t, likely %q: %v were asked", render, likely, who)
			}
		}
	}
}
