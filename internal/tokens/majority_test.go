package tokens

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// several are replicas of one model, of which each can have another answer.
type several []*fakeServer

func newSeveral(t *testing.T, n int) several {
	t.Helper()
	var all several
	right := honest(t)
	for range n {
		f := newFakeServer(t)
		f.answer = right
		all = append(all, f)
	}
	return all
}

func (s several) endpoints(string) (out []Endpoint) {
	for _, f := range s {
		out = append(out, Endpoint{URL: f.URL, Version: "0.32.0", Render: true, MaxLen: fakeLen})
	}
	return out
}

// local is a Local of which every request is a sample.
func (s several) local(t *testing.T) *Local {
	t.Helper()
	l, seen := newLocal(t, s[0], LocalOptions{SampleEvery: 1})
	l.o.Hooks, l.o.Endpoints = Hooks{}, s.endpoints
	l.o.Reference.o.Endpoints = func(served Served) []Endpoint { return s.endpoints(served.Model) }
	_ = seen
	return l
}

// of returns the addresses of some of the replicas.
func (s several) of(numbers ...int) string {
	var out []string
	for _, n := range numbers {
		out = append(out, address(s[n].URL))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// wrong returns ids that differ from the right ones by n.
func wrong(t *testing.T, n uint32) func(string, []byte) [][]uint32 {
	right := honest(t)
	return func(path string, body []byte) [][]uint32 {
		prompts := right(path, body)
		if prompts != nil {
			prompts[0][0] += n
		}
		return prompts
	}
}

func refuse(string, []byte) [][]uint32 { return nil }

// TestOneReplicaDoesNotDemote: ids of this process stay in use while one replica alone returns
// others, at the start and later, whatever the others do. That replica is named, and it is asked
// for no request while another one confirms this process. Two replicas demote, or the only one.
func TestOneReplicaDoesNotDemote(t *testing.T) {
	type answers = func(string, []byte) [][]uint32
	one, two := wrong(t, 1), wrong(t, 2)
	for name, c := range map[string]struct {
		answers          []answers // nil: right
		demoted, dissent []int     // replicas
		unshunned        bool
	}{
		"one of four":                             {answers: []answers{one, nil, nil, nil}, dissent: []int{0}},
		"the last of three":                       {answers: []answers{nil, nil, one}, dissent: []int{2}},
		"one of two":                              {answers: []answers{one, nil}, dissent: []int{0}},
		"one, and the others do not answer":       {answers: []answers{one, refuse, refuse}, dissent: []int{0}, unshunned: true},
		"the only one":                            {answers: []answers{one}, demoted: []int{0}},
		"two that agree":                          {answers: []answers{one, one}, demoted: []int{0, 1}},
		"two that agree, of which one answers no": {answers: []answers{one, refuse, one}, demoted: []int{0, 2}},
		"two that differ, and no third":           {answers: []answers{one, two}, demoted: []int{0, 1}},
		"two that differ, and one that does not":  {answers: []answers{one, two, nil}, dissent: []int{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSeveral(t, len(c.answers))
			l := s.local(t)
			l.CheckAll(t.Context())
			for i, a := range c.answers {
				if a != nil {
					s[i].answer = a
				}
			}
			demoted := false
			for range 12 { // each replica has its turn
				if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); err != nil {
					demoted = true
					break
				}
				l.compare(t.Context(), <-l.samples)
			}
			status, who := l.Status()[0], ""
			if chat := state(l, openai.FeatureChat); chat.State == "demoted" {
				slices.Sort(chat.By)
				who = strings.Join(chat.By, " ")
			}
			if demoted != (len(c.demoted) > 0) || who != s.of(c.demoted...) {
				t.Errorf("demoted: %t, by %q, want %q", demoted, who, s.of(c.demoted...))
			}
			var named []string
			for _, d := range status.Dissent {
				named = append(named, d.Replica)
				if d.Features != "chat" || d.Position != 0 || d.Shunned == c.unshunned || d.At.IsZero() {
					t.Errorf("%+v", d)
				}
			}
			slices.Sort(named)
			if !demoted && strings.Join(named, " ") != s.of(c.dissent...) {
				t.Errorf("named %q, want %q", named, s.of(c.dissent...))
			}
			if len(c.dissent) == 0 || c.unshunned {
				return
			}
			before := s[c.dissent[0]].asked.Load()
			for i := range 8 {
				_, _ = l.o.Reference.Tokens(t.Context(), chatRequest(t, fmt.Sprint("other", i)), someModel)
			}
			if n := s[c.dissent[0]].asked.Load() - before; n > 0 {
				t.Errorf("it was asked for %d requests of 8", n)
			}
			for _, f := range s {
				f.answer = honest(t)
			}
			for range 12 {
				must.Get(l.Tokens(t.Context(), chatRequest(t, "hi"), someModel))(t)
				l.compare(t.Context(), <-l.samples)
			}
			if left := l.Status()[0].Dissent; len(left) > 0 {
				t.Errorf("it agrees again, and %+v is left", left)
			}
		})
	}
}

// TestTheFirstReplicaOfAFleet: what the only replica has demoted is compared again when there are
// others, and what is said of a replica goes with it.
func TestTheFirstReplicaOfAFleet(t *testing.T) {
	s := newSeveral(t, 3)
	s[0].answer = wrong(t, 1)
	listed := s[:1]
	l := s.local(t)
	l.o.Endpoints = func(model string) []Endpoint { return listed.endpoints(model) }
	l.CheckAll(t.Context())
	if got := state(l, openai.FeatureChat); got.State != "demoted" || strings.Join(got.By, " ") != s.of(0) {
		t.Fatalf("by the only one: %+v", got)
	}
	listed = s
	l.CheckAll(t.Context())
	if got := state(l, openai.FeatureChat); got.State != "trusted" {
		t.Errorf("beside two others: %+v", got)
	}
	if got := l.Status()[0].Dissent; len(got) != 1 || got[0].Replica != s.of(0) {
		t.Errorf("named: %+v", got)
	}
	listed = s[1:]
	l.CheckAll(t.Context())
	if got := l.Status()[0].Dissent; len(got) > 0 {
		t.Errorf("it is gone, and %+v is left", got)
	}
}

// TestAFewThatRender: a request's text goes to no replica because it alone answers /render. Where
// most do, all of them are asked; start-up conversations are nobody's texts.
func TestAFewThatRender(t *testing.T) {
	for _, c := range []struct{ render, of, renders, tokenizes int }{ // the last two: replicas that got any of 24 requests
		{1, 1, 1, 0}, {1, 2, 0, 2}, {1, 4, 0, 4}, {2, 4, 0, 4}, {2, 3, 2, 0}, {3, 4, 3, 0}, {4, 4, 4, 0}, {0, 4, 0, 4},
	} {
		s := newSeveral(t, c.of)
		renders, tokenizes := map[int]int{}, map[int]int{}
		for i, f := range s {
			f.answer = func(path string, _ []byte) [][]uint32 {
				if strings.HasSuffix(path, "/render") {
					renders[i]++
				} else {
					tokenizes[i]++
				}
				return [][]uint32{{1}}
			}
		}
		endpoints := s.endpoints("m")
		for i := range endpoints {
			endpoints[i].Render = i < c.render
		}
		r := newRemote(t, RemoteOptions{Endpoints: func(Served) []Endpoint { return endpoints }})
		for i := range 24 {
			must.Get(r.Tokens(t.Context(), chatRequest(t, fmt.Sprint(i)), someModel))(t)
		}
		if len(renders) != c.renders || len(tokenizes) != c.tokenizes {
			t.Errorf("%+v: asked to render %v, to tokenize %v", c, renders, tokenizes)
		}
		for i, n := range tokenizes {
			if n > 24/c.of {
				t.Errorf("%+v: %d bodies went to replica %d", c, n, i)
			}
		}
		if unused := Unused(endpoints); (len(unused) > 0) != (c.render > 0 && c.renders == 0) || len(unused) > 0 && len(unused) != c.render {
			t.Errorf("%+v: named %v", c, unused)
		}
		messages := parse(t, openai.Messages, `{"model":"m","max_tokens":1,"messages":[{"role":"user","content":"hi"}]}`)
		if _, err := r.Tokens(t.Context(), messages, someModel); errors.Is(err, ErrNone) != (c.renders == 0) {
			t.Errorf("%+v: a request that needs /render: %v", c, err)
		}
		if _, err := r.Ask(t.Context(), messages, "m", endpoints); (err == nil) != (c.render > 0) {
			t.Errorf("%+v: a start-up conversation: %v", c, err)
		}
	}
}

// TestSamplesAreNotRenderedByAFew: neither does a sample of the traffic.
func TestSamplesAreNotRenderedByAFew(t *testing.T) {
	s := newSeveral(t, 4)
	l := s.local(t)
	l.o.Endpoints = func(string) []Endpoint {
		endpoints := s.endpoints("m")
		for i := range endpoints {
			endpoints[i].Render = i == 0
		}
		return endpoints
	}
	l.o.Reference.o.Endpoints = func(Served) []Endpoint { return l.o.Endpoints("m") }
	must.Do(t, l.Load("m", fakeModel(t)))
	l.CheckAll(t.Context())
	right, asked := s[0].answer, 0
	for _, f := range s {
		f.answer = func(path string, body []byte) [][]uint32 {
			if asked++; strings.HasSuffix(path, "/render") {
				t.Error("a sample was rendered by a replica")
			}
			return right(path, body)
		}
	}
	for i := range 12 {
		must.Get(l.Tokens(t.Context(), chatRequest(t, fmt.Sprint(i)), someModel))(t)
		l.compare(t.Context(), <-l.samples)
	}
	if asked < 12 {
		t.Errorf("%d of 12 samples were compared", asked)
	}
}

// TestMostReplicasRule: one replica's engine, version or context changes nothing for the others.
func TestMostReplicasRule(t *testing.T) {
	for _, c := range []struct{ versions, rule, common string }{
		{"1", "1", "1"},
		{"2 1 1", "1 1", "1"},
		{"1 1 2 2", "1 1 2 2", ""},
		{"1 2 3", "1 2 3", ""},
		{"2 1 3 1 1", "1 1 1", "1"},
		{"sglang 1 1", "1 1", "1"},
		{"1 sglang", "1", "1"},
		{"1 sglang sglang", "sglang sglang", "sglang 0.5"},
		{"sglang sglang 1 2", "1 2", ""},
	} {
		var all []Endpoint
		for _, v := range strings.Fields(c.versions) {
			all = append(all, Endpoint{Version: strings.Replace(v, "sglang", "sglang 0.5", 1)})
		}
		var rule []string
		for _, e := range ruling(all) {
			rule = append(rule, strings.TrimSuffix(e.Version, " 0.5"))
		}
		if got := strings.Join(rule, " "); got != c.rule || commonVersion(ruling(all)) != c.common {
			t.Errorf("%s: %q rule, of version %q", c.versions, got, commonVersion(ruling(all)))
		}
	}
	for _, c := range []struct{ of, longest, cut int }{{1, 4000, 4000}, {1 << 40, 1 << 40, 4000}, {0, 4000, 4000}} {
		longest, cut := lengths([]Endpoint{{MaxLen: c.of}, {MaxLen: 4000}, {MaxLen: 4000}})
		if longest != c.longest || cut != c.cut {
			t.Errorf("beside one of %d the longest context is %d, and prompts are cut to %d", c.of, longest, cut)
		}
	}
	if longest, cut := lengths([]Endpoint{{}, {}}); longest != 0 || cut != 0 {
		t.Error("no length is known")
	}
}
