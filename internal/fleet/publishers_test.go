package fleet

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// sources is an answer of /kv_event_sources with one publisher for each rank.
func sources(endpoints ...string) string {
	var b strings.Builder
	for i, e := range endpoints {
		fmt.Fprintf(&b, `,"%d":{"endpoint":%q}`, i, e)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// TestAReplicaCannotAimConnections: sources that it names on other hosts, too
// often, or beyond the limit are refused, and the reason is in the snapshot.
func TestAReplicaCannotAimConnections(t *testing.T) {
	many := make([]string, 1024)
	for i := range many {
		many[i] = "tcp://*:6000"
	}
	spread := make([]string, 1024)
	for i := range spread {
		spread[i] = fmt.Sprintf("tcp://*:%d", 10000+i)
	}
	for _, c := range []struct {
		name, answer string
		hosts        []string
		want         int
		why          string
	}{
		{"its own host", sources("tcp://*:1", "tcp://10.0.0.1:2"), nil, 2, ""},
		{"another host", sources("tcp://10.0.0.2:1", "tcp://*:2"), nil, 1, "10.0.0.2:1 is not on the replica's own host"},
		{"the router's host", sources("tcp://127.0.0.1:22", "tcp://localhost:22", "tcp://[::1]:22"), nil, 0, "127.0.0.1:22 is not"},
		{"a name", sources("tcp://metadata.internal:80"), nil, 0, "metadata.internal:80 is not"},
		{"no host", sources("ipc:///run/"+strings.Repeat("s", 900), "inproc://a", "*:5557", "tcp://*:4"), nil, 1, `"inproc://a" is no address of TCP`},
		{"a replay elsewhere", `{"0":{"endpoint":"tcp://*:1","replay_endpoint":"tcp://10.0.0.2:1"}}`, nil, 0, "the replay endpoint"},
		{"allowed hosts", sources("tcp://10.0.0.2:1", "tcp://10.1.2.3:2", "tcp://pods.example:3", "tcp://10.2.0.1:4"),
			[]string{"10.0.0.2", "10.1.0.0/16", "Pods.example"}, 3, "10.2.0.1:4 is not"},
		{"one port for 1,024 ranks", sources(many...), nil, 1, "rank 1: tcp://10.0.0.1:6000 belongs to rank 0 of 10.0.0.1:8000"},
		{"1,024 ports", sources(spread...), nil, 64, "1024 ranks are more than 64"},
		{"more than there can be", sources(append(spread, "tcp://*:5")...), nil, 0, "1024"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fake(1, 0)
				r.answer["/kv_event_sources"] = c.answer
				w := start(t, Options{Replicas: list(a), EventHosts: c.hosts}, map[string]*fakeReplica{a: r})
				w.expect("joined " + a + " 1")
				got := w.fleet.Snapshot().Replica(a)
				if len(got.Events) != c.want || !strings.Contains(got.EventsRefused, c.why) || (c.why == "") != (got.EventsRefused == "") || len(got.EventsRefused) > 1000 {
					t.Errorf("%d sources, want %d; refused: %q", len(got.Events), c.want, got.EventsRefused)
				}
				w.pass(2 * time.Minute)
				w.expect() // a repeated refusal is no change
			})
		})
	}
}

// TestAPublisherBelongsToItsFirstOwner: another replica of the host can neither
// name it, nor a beginning of its topics, nor its replay endpoint; when the owner
// has left, it can.
func TestAPublisherBelongsToItsFirstOwner(t *testing.T) {
	const other = "10.0.0.1:8001"
	for name, answer := range map[string]string{
		"the same":        `{"0":{"endpoint":"tcp://*:5557","topic":"kv"}}`,
		"all topics":      `{"0":{"endpoint":"tcp://10.0.0.1:5557","topic":""}}`,
		"a longer topic":  `{"0":{"endpoint":"tcp://*:5557","topic":"kv@10.0.0.1"}}`,
		"its replay":      `{"0":{"endpoint":"tcp://*:7777","replay_endpoint":"tcp://*:5558"}}`,
		"replay as live":  `{"0":{"endpoint":"tcp://*:5558"}}`,
		"live as replays": `{"0":{"endpoint":"tcp://*:7777","replay_endpoint":"tcp://*:5557"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				honest, liar := fake(1, 0), fake(1, 0)
				liar.refuse = true
				liar.answer["/kv_event_sources"] = answer
				w := start(t, Options{Replicas: list(a, other)}, map[string]*fakeReplica{a: honest, other: liar})
				w.pass(time.Second)
				w.net.change(func() { liar.refuse = false })
				w.pass(10 * time.Second)
				s := w.fleet.Snapshot()
				if l := s.Replica(other); !l.Ready || len(l.Events) != 0 || !strings.Contains(l.EventsRefused, "belongs to rank 0 of "+a) {
					t.Fatalf("%+v", l)
				}
				if h := s.Replica(a); len(h.Events) != 1 || h.EventsRefused != "" {
					t.Errorf("%+v", h)
				}
				w.net.change(func() { honest.refuse = true })
				w.pass(time.Minute)
				if l := w.fleet.Snapshot().Replica(other); len(l.Events) != 1 {
					t.Errorf("it is not given to another after its owner has left: %+v", l)
				}
			})
		})
	}
}

// TestAConfiguredPublisherIsNotTaken: a replica that named it first loses it.
func TestAConfiguredPublisherIsNotTaken(t *testing.T) {
	const other = "10.0.0.1:8001"
	synctest.Test(t, func(t *testing.T) {
		honest, liar := fake(1, 0), fake(1, 0)
		honest.refuse = true
		o := Options{Replicas: list(a, other)}
		o.Replicas[0].Events = []EventSource{{Endpoint: "tcp://*:5557"}}
		w := start(t, o, map[string]*fakeReplica{a: honest, other: liar})
		w.pass(time.Second)
		if l := w.fleet.Snapshot().Replica(other); len(l.Events) != 1 {
			t.Fatalf("%+v", l)
		}
		w.net.change(func() { honest.refuse = false })
		w.pass(time.Minute)
		s := w.fleet.Snapshot()
		if l, h := s.Replica(other), s.Replica(a); len(l.Events) != 0 || !strings.Contains(l.EventsRefused, "belongs") || len(h.Events) != 1 {
			t.Errorf("%+v\n%+v", l, h)
		}
	})
}

// TestAChangedEntryKeepsItsPublisher: the end of its earlier worker does not
// release the later one's sources.
func TestAChangedEntryKeepsItsPublisher(t *testing.T) {
	var p publishers
	former, next, other := &worker{addr: a}, &worker{addr: a}, &worker{addr: "10.0.0.1:8001"}
	e := []EventSource{{Endpoint: "tcp://10.0.0.1:5557", ReplayEndpoint: "tcp://10.0.0.1:5558"}}
	for _, w := range []*worker{former, next} {
		if own, refused := p.claim(w, e, false); len(own) != 1 {
			t.Fatal(refused)
		}
	}
	p.release(former)
	if own, refused := p.claim(other, e, false); len(own) != 0 || len(refused) != 1 {
		t.Errorf("%v, %v", own, refused)
	}
	p.release(next)
	if own, refused := p.claim(other, e, false); len(own) != 1 {
		t.Error(refused)
	}
	p.release(other)
	if len(p.owners) != 0 || len(p.named) != 0 {
		t.Errorf("%v, %v", p.owners, p.named)
	}
}

// TestRanksOfAPageAreBounded: the ranks that a metrics page invents have no
// accounts.
func TestRanksOfAPageAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 0)
		var page strings.Builder
		for i := range 1024 {
			fmt.Fprintf(&page, "vllm:num_requests_running{engine=\"%d\"} 1\n", i)
		}
		r.answer["/metrics"] += page.String()
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.expect("joined " + a + " 1")
		if got := w.fleet.Snapshot().Replica(a); len(got.Ranks) != 64 || len(got.Load) != 64 {
			t.Errorf("%d ranks, %d loads", len(got.Ranks), len(got.Load))
		}
	})
}
