package feed

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/bound"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

func TestAReplicaHasTheWorstStateOfItsRanks(t *testing.T) {
	up, paused := kvevents.Status{Connected: true}, kvevents.Status{Connected: true, Paused: time.Second}
	ranks := func(all ...kvevents.Status) (s Replica) {
		for i, status := range all {
			s.Ranks = append(s.Ranks, Rank{Rank: i, Status: status})
		}
		return s
	}
	sources := []fleet.EventSource{{Endpoint: "tcp://10.0.0.1:5557"}}
	for _, c := range []struct {
		replica fleet.Replica
		supply  Replica
		want    State
	}{
		{fleet.Replica{Configured: fleet.Configured{Sidecar: true}}, Replica{}, Sidecar},
		{fleet.Replica{Configured: fleet.Configured{NoEvents: true}}, Replica{}, Off},
		{fleet.Replica{Reported: fleet.Reported{EventsRefused: "rank 0: another host"}}, Replica{}, Refused},
		{fleet.Replica{Reported: fleet.Reported{Events: sources, EventsRefused: "rank 1: another host"}}, ranks(up), Following},
		{fleet.Replica{Reported: fleet.Reported{Events: sources}}, Replica{Refused: fmt.Errorf("no")}, Refused},
		{fleet.Replica{}, Replica{}, None},
		{fleet.Replica{Reported: fleet.Reported{EventsUnknown: true}}, Replica{}, Connecting},
		{fleet.Replica{Reported: fleet.Reported{Events: sources}}, Replica{}, Connecting},
		{fleet.Replica{Reported: fleet.Reported{Events: sources}}, ranks(up, kvevents.Status{}), Connecting},
		{fleet.Replica{Reported: fleet.Reported{Events: sources}}, ranks(up, kvevents.Status{}, paused), Paused},
		{fleet.Replica{Reported: fleet.Reported{Events: sources}}, ranks(up, up), Following},
	} {
		if got := StateOf(&c.replica, c.supply); got != c.want {
			t.Errorf("%+v, %+v: %s, want %s", c.replica, c.supply, got, c.want)
		}
	}
}

// TestReplicasWithoutEventsAreTold: they are counted and named, a bounded number of them;
// replicas that are not ready, or that publish nothing on purpose, are not named.
func TestReplicasWithoutEventsAreTold(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	var replicas []*fleet.Replica
	f := New(x, Options{Snapshot: func() *fleet.Snapshot { return fleet.NewSnapshot(replicas...) }})
	add := func(n int, r fleet.Replica) {
		for range n {
			next := r
			next.Addr = fmt.Sprintf("10.0.0.%d:8000", len(replicas))
			replicas = append(replicas, &next)
		}
	}
	add(1, fleet.Replica{Ready: true, Configured: fleet.Configured{Sidecar: true}})
	add(1, fleet.Replica{Ready: true, Configured: fleet.Configured{NoEvents: true}})
	add(1, fleet.Replica{})
	if notes := f.Notes(); notes != nil {
		t.Errorf("notes %q although all is intended", notes)
	}
	add(1, fleet.Replica{Ready: true, Reported: fleet.Reported{CacheOff: true}})
	if notes := f.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "replicas that keep nothing of a prompt for later ones, since their prefix caching is off: 10.0.0.3:8000:") {
		t.Errorf("notes %q", notes)
	}
	replicas = replicas[:3]
	add(bound.MostNotes+2, fleet.Replica{Ready: true})
	notes := f.Notes()
	if len(notes) != 1 || strings.Count(notes[0], ":8000") != bound.MostNotes || !strings.Contains(notes[0], "10.0.0.3:8000, ") || !strings.Contains(notes[0], "and 2 more") {
		t.Errorf("notes %q", notes)
	}
	add(2, fleet.Replica{Ready: true, Reported: fleet.Reported{Engine: "llamacpp"}})
	if notes := f.Notes(); len(notes) != 2 || strings.Count(notes[1], ":8000") != 2 || !strings.HasPrefix(notes[1], "replicas of other engines") {
		t.Errorf("notes %q", notes)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(f)
	families := must.Get(reg.Gather())(t)
	values := map[string]float64{}
	for _, m := range families[0].Metric {
		values[m.Label[0].GetValue()] = m.GetGauge().GetValue()
	}
	for state, want := range map[State]float64{Sidecar: 1, Off: 1, None: bound.MostNotes + 2, Other: 2, Following: 0, Refused: 0, Connecting: 0, Paused: 0} {
		if got := values[string(state)]; got != want {
			t.Errorf("%v replicas are %s, want %v", got, state, want)
		}
	}
	if len(values) != len(States()) {
		t.Errorf("series %v", values)
	}
}

// TestRanksWithoutEventsAreTold: those that cannot be reached, and those that compute prompts and
// announce nothing, but none that is still waited for or has had no work.
func TestRanksWithoutEventsAreTold(t *testing.T) {
	at := func(tokens float64) []fleet.Load { return []fleet.Load{{PrefixQueries: tokens + 7, PrefixHits: 7}} }
	up := kvevents.Status{Connected: true}
	spoken, replayed, twice := up, up, up
	spoken.Batches, spoken.Replayed = 2, 1
	replayed.Batches, replayed.Replayed = 2, 2
	twice.Batches, twice.Repeats = 2, kvevents.Repeats{Replayed: 2, Duplicates: 1}
	mixed, restarted := up, up
	mixed.Restarts, mixed.Connects = 22, 1
	restarted.Restarts, restarted.Connects = 22, 2
	for name, tt := range map[string]struct {
		rank   Rank
		load   []fleet.Load
		behind bool
		want   string
	}{
		"wrong port":        {rank: Rank{Status: kvevents.Status{LastError: "connection refused"}}, want: "cannot be reached, so that its cache is known from what was sent there alone: connection refused"},
		"no error yet":      {rank: Rank{}, want: "no connection yet"},
		"it is waited for":  {rank: Rank{}, behind: true},
		"left alone":        {rank: Rank{Status: kvevents.Status{Paused: time.Second}}},
		"wrong topic":       {rank: Rank{Status: up, computed: 100}, load: at(100 + silentTokens), want: "no KV event has come"},
		"with a replay":     {rank: Rank{Status: replayed, computed: 100}, load: at(100 + silentTokens), want: "by replay alone"},
		"and idle":          {rank: Rank{Status: replayed, computed: 100}, load: at(99 + silentTokens)},
		"both ways":         {rank: Rank{Status: twice, computed: 100}, load: at(100 + silentTokens)},
		"idle":              {rank: Rank{Status: up, computed: 100}, load: at(99 + silentTokens)},
		"no replay":         {rank: Rank{Status: kvevents.Status{Connected: true, NoReplay: "timeout"}}, want: "replay endpoint gives no batches, so that its past KV events are not known, and one that is lost costs all that is: timeout"},
		"several speak":     {rank: Rank{Status: mixed}, want: "several publishers write to its endpoint"},
		"one restarts":      {rank: Rank{Status: restarted}},
		"it speaks":         {rank: Rank{Status: spoken}, load: at(1e9)},
		"it counts nothing": {rank: Rank{Status: up}},
	} {
		why := tt.rank.deaf(&fleet.Replica{Load: tt.load}, !tt.behind)
		if (why == "") != (tt.want == "") || !strings.Contains(why, tt.want) {
			t.Errorf("%s: %q, want %q", name, why, tt.want)
		}
	}
	x := index.New(index.Options{})
	defer x.Close()
	now := time.Unix(1000, 0)
	r := &fleet.Replica{Addr: "10.0.0.1:8000", Ready: true, Reported: fleet.Reported{
		Models: []fleet.Model{{ID: "m", Base: "m"}}, BlockSize: 16, Events: []fleet.EventSource{{Endpoint: "tcp://10.0.0.1:5557"}}}, Ranks: []int{0}}
	f := New(x, Options{Now: func() time.Time { return now }, Snapshot: func() *fleet.Snapshot { return fleet.NewSnapshot(r) }})
	f.cancel() // nothing is dialed
	f.mu.Lock()
	s := &supply{replica: r, joined: now}
	f.replicas[r.Addr] = s
	f.mu.Unlock()
	must.Do(t, f.subscribe(s))
	if notes := f.Notes(); len(notes) != 0 {
		t.Errorf("notes %q while it is waited for", notes)
	}
	now = now.Add(time.Minute)
	if notes := f.Notes(); len(notes) != 1 || !strings.HasPrefix(notes[0], "replica 10.0.0.1:8000, rank 0: its KV events cannot be reached") {
		t.Errorf("notes %q", notes)
	}
	r.Ranks = []int{0, 1}
	if notes := f.Notes(); len(notes) != 2 || !strings.HasPrefix(notes[1], "replica 10.0.0.1:8000, rank 1: it has no KV events, and other ranks have") {
		t.Errorf("notes %q where one of two ranks is listed", notes)
	}
}

// TestSidecarsThatReportNothingAreTold: of a rank that computes prompts some block must be reported,
// by the name of its replica and of its model.
func TestSidecarsThatReportNothingAreTold(t *testing.T) {
	x := index.New(index.Options{})
	defer x.Close()
	r := fleet.Replica{Addr: "10.0.0.1:8000", Ready: true, Ranks: []int{0, 1}, Configured: fleet.Configured{Sidecar: true}, Reported: fleet.Reported{Models: []fleet.Model{{ID: "m", Base: "m"}}}}
	f := New(x, Options{Snapshot: func() *fleet.Snapshot { return fleet.NewSnapshot(&r) }})
	reportBy := func(h index.Holder, model, scheme string) {
		must.Get(x.Apply(&index.Batch{Holder: h, Incarnation: x.Begin(h), Events: []index.Event{{Kind: index.Stored, Hashes: []uint64{1},
			Scope: index.Scope{Model: model, Scheme: scheme, BlockSize: 16}}}}))(t)
	}
	report := func(h index.Holder, model string) { reportBy(h, model, index.SchemeTokens) }
	told := func(what string, want ...string) {
		t.Helper()
		notes := f.Notes()
		for i, rank := range want {
			if len(notes) != len(want) || !strings.HasPrefix(notes[i], "replica 10.0.0.1:8000, rank "+rank+": it computes prompts") || !strings.Contains(notes[i], `model "m"`) {
				t.Errorf("%s: %q, want ranks %q", what, notes, want)
			}
		}
		if len(want) == 0 && len(notes) > 0 {
			t.Errorf("%s: %q", what, notes)
		}
	}
	told("nothing is computed")
	for rank := range r.Ranks {
		r.Load = append(r.Load, fleet.Load{Rank: rank, PrefixQueries: silentTokens})
	}
	told("nothing is reported", "0", "1")
	report(index.Holder{Replica: "10.0.0.9:8000"}, "m")
	report(index.Holder{Replica: r.Addr}, "M")
	told("by other names", "0", "1")
	reportBy(index.Holder{Replica: r.Addr}, "m", "engine")
	told("by hashes of another scheme", "0", "1")
	report(index.Holder{Replica: r.Addr}, "m")
	told("one rank", "1")
	report(index.Holder{Replica: r.Addr, Rank: 1}, "m")
	told("both")
}

// TestFullIndexIsNoted: an index that drops blocks to stay within its bound is named.
func TestFullIndexIsNoted(t *testing.T) {
	x := index.New(index.Options{MaxBlocks: 8, MaxScopeBlocks: 8})
	defer x.Close()
	f := New(x, Options{})
	f.cancel()
	h := index.Holder{Replica: "10.0.0.1:8000"}
	inc := x.Begin(h)
	for i := range uint64(12) {
		if notes := f.Notes(); (len(notes) == 1) != (i > 8) {
			t.Errorf("after %d blocks: %q", i, notes)
		}
		_, _ = x.Apply(&index.Batch{Holder: h, Incarnation: inc, Events: []index.Event{{Kind: index.Stored, Hashes: []uint64{i + 1}, Content: []prefixhash.Content{prefixhash.Content(i + 1)},
			Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: 16}}}})
	}
}
