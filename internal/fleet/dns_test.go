package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// zone is a fake Resolver.
type zone struct {
	mu      sync.Mutex
	ips     map[string][]string
	records []*net.SRV
	err     error
	gone    string // a host that does not exist
	lookups int
}

func (z *zone) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.lookups++
	if z.err != nil {
		return nil, z.err
	}
	if network != "ip" {
		return nil, errors.New("both families are wanted")
	}
	if z.gone == host {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var out []netip.Addr
	for _, s := range z.ips[host] {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (z *zone) LookupSRV(_ context.Context, service, proto, name string) (string, []*net.SRV, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if service != "" || proto != "" || name != "_http._tcp.vllm" {
		return "", nil, errors.New("no such name")
	}
	return name, z.records, z.err
}

func (z *zone) set(err error, host string, ips ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.err, z.ips[host] = err, ips
}

func addrs(f *Fleet) []string {
	var out []string
	for _, r := range f.Snapshot().Replicas {
		out = append(out, r.Addr)
	}
	return out
}

func TestDNS(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: map[string][]string{"vllm": {"10.0.0.2", "fd00::1", "::ffff:10.0.0.1", "10.0.0.1", "0.0.0.0"}}}
		w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000", Replica: ReplicaOptions{Tenant: "acme"}}}}, map[string]*fakeReplica{})
		want := []string{"10.0.0.1:8000", "10.0.0.2:8000", "[fd00::1]:8000"}
		if got := addrs(w.fleet); !slices.Equal(got, want) || w.fleet.Snapshot().Replicas[0].Tenant != "acme" {
			t.Errorf("got %q, want %q", got, want)
		}
		z.set(nil, "vllm", "10.0.0.2", "10.0.0.3")
		w.pass(10 * time.Second)
		want = []string{"10.0.0.2:8000", "10.0.0.3:8000"}
		if got := addrs(w.fleet); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		// A name that cannot be looked up keeps its last answer.
		z.set(&net.DNSError{Err: "no such host", IsNotFound: true}, "vllm")
		w.pass(time.Minute)
		z.set(nil, "vllm")
		w.pass(time.Minute)
		if got := addrs(w.fleet); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if z.lookups < 20 || z.lookups > 30 { // one a second, one in ten while they fail
			t.Errorf("%d lookups in 130 s, 120 of which failed", z.lookups)
		}
		noted := func() bool {
			return slices.ContainsFunc(w.fleet.Snapshot().Notes, func(n string) bool { return strings.HasPrefix(n, `source "dns vllm:8000" of replicas failed`) })
		}
		if !noted() {
			t.Errorf("no note of it: %q", w.fleet.Snapshot().Notes)
		}
		z.set(nil, "vllm", "10.0.0.2", "10.0.0.3")
		if w.pass(20 * time.Second); noted() {
			t.Errorf("it is found again, as it was: %q", w.fleet.Snapshot().Notes)
		}
	})
}

// TestAnswersWithAPart: a resolver that names a few of the addresses at a time is told of, until a
// minute after it has named all. One replica that has gone, and another that has come, is no such.
func TestAnswersWithAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{ips: map[string][]string{"vllm": {"10.0.0.1", "10.0.0.2"}}}
		w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}}, map[string]*fakeReplica{})
		told := func(after time.Duration, ips ...string) bool {
			z.set(nil, "vllm", ips...)
			w.pass(after)
			return slices.ContainsFunc(w.fleet.Snapshot().Notes, func(n string) bool {
				return strings.HasPrefix(n, `source "dns vllm:8000" leaves replicas out`)
			})
		}
		for _, step := range []struct {
			after time.Duration
			ips   []string
			want  bool
		}{
			{2 * time.Second, []string{"10.0.0.2", "10.0.0.3"}, false},
			{20 * time.Second, []string{"10.0.0.3"}, false},
			{2 * time.Second, []string{"10.0.0.2", "10.0.0.3"}, false}, // it was away
			{2 * time.Second, []string{"10.0.0.4", "10.0.0.5"}, false},
			{2 * time.Second, []string{"10.0.0.3", "10.0.0.4"}, true},
			{40 * time.Second, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, true},
			{time.Minute, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}, false},
		} {
			if got := told(step.after, step.ips...); got != step.want {
				t.Errorf("%v after the answer %q it is told: %v", step.after, step.ips, got)
			}
		}
	})
}

// TestAllOfAName: of a name with 50 addresses, of which each answer has eight, no replica leaves as soon
// as some were hardly away, also where the name does not exist for a while. One that has left goes
// after a minute, and at once when the name has all again.
func TestAllOfAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := make([]string, 50)
		for i := range all {
			all[i] = fmt.Sprintf("10.0.1.%d", i)
		}
		z := &zone{ips: map[string][]string{"vllm": all[:8]}}
		w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}}, map[string]*fakeReplica{})
		random := rand.New(rand.NewPCG(1, 2))
		answer := func(of []string, seconds int, least int) {
			t.Helper()
			for range seconds {
				part := slices.Clone(of)
				random.Shuffle(len(part), func(i, j int) { part[i], part[j] = part[j], part[i] })
				z.set(nil, "vllm", part[:8]...)
				w.pass(time.Second)
				if got := addrs(w.fleet); len(got) < least {
					t.Fatalf("%d replicas, want at least %d", len(got), least)
				}
			}
		}
		answer(all, 60, 0)
		answer(all, 120, 49)
		z.set(errors.New("no such host"), "vllm")
		w.pass(2 * time.Minute)
		answer(all, 10, 49)
		answer(all[10:], 61, 39)
		if got := addrs(w.fleet); len(got) > 40 {
			t.Errorf("%d replicas a minute after ten have left, want 40", len(got))
		}
		z.set(nil, "vllm", all...)
		w.pass(2 * time.Minute)
		z.set(nil, "vllm", all[:20]...)
		w.pass(2 * time.Second)
		if got := addrs(w.fleet); len(got) != 20 {
			t.Errorf("%d replicas of a name that has all, want 20", len(got))
		}
	})
}

// TestRecordsOfSRV: each is its target's addresses with a port of its own. A target that does not
// exist, and a record that names no service, leave the others as they are; a target that cannot be
// looked up any more keeps its last addresses.
func TestRecordsOfSRV(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := &zone{gone: "a.", ips: map[string][]string{"a.": {"10.0.0.1"}, "b.": {"10.0.0.2", "fd00::2"}, "c.": {"10.0.0.3"}},
			records: []*net.SRV{{Target: "a.", Port: 8001}, {Target: "b.", Port: 8002}, {Target: "a.", Port: 8003}, {Target: ".", Port: 8000}, {Target: "c.", Port: 0}}}
		w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "_http._tcp.vllm"}}}, map[string]*fakeReplica{})
		b := []string{"10.0.0.2:8002", "[fd00::2]:8002"}
		all := append([]string{"10.0.0.1:8001", "10.0.0.1:8003"}, b...)
		for _, step := range []struct {
			gone string
			want []string
		}{{"a.", b}, {"", all}, {"b.", all}} {
			z.mu.Lock()
			z.gone = step.gone
			z.mu.Unlock()
			w.pass(time.Minute)
			if got := addrs(w.fleet); !slices.Equal(got, step.want) {
				t.Errorf("without %q: %q, want %q", step.gone, got, step.want)
			}
		}
	})
}

// TestOneFamilyOfAName: a server with addresses of both families is one replica, by the
// family that answers.
func TestOneFamilyOfAName(t *testing.T) {
	const four, six, four2, six2 = "10.0.0.1:8000", "[fd00::1]:8000", "10.0.0.2:8000", "[fd00::2]:8000"
	for name, c := range map[string]struct{ answer, want []string }{
		"IPv4 answers":      {[]string{four}, []string{four, four2}},
		"IPv6 answers":      {[]string{six}, []string{six, six2}},
		"both answer":       {[]string{four, six}, []string{four, four2}},
		"IPv6 answers more": {[]string{four, six, six2}, []string{six, six2}},
		"none answers":      {nil, []string{four, four2, six, six2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				z := &zone{ips: map[string][]string{"vllm": {"10.0.0.1", "fd00::1", "10.0.0.2", "fd00::2"}}}
				all := map[string]*fakeReplica{}
				for _, a := range []string{four, six, four2, six2} {
					all[a] = fake(1, 0)
					all[a].refuse = !slices.Contains(c.answer, a)
				}
				w := start(t, Options{Resolver: z, DNS: []DNSOptions{{Name: "vllm:8000"}}}, all)
				if got := addrs(w.fleet); !slices.Equal(got, c.want) {
					t.Errorf("got %q, want %q", got, c.want)
				}
				// The first that answers counts, and stays while it answers or the other does not.
				w.net.change(func() { all[four].refuse, all[six].refuse = true, false })
				w.pass(time.Minute)
				w.net.change(func() { all[four].refuse, all[four2].refuse = false, false })
				w.pass(time.Minute)
				if got, want := addrs(w.fleet), []string{six, six2}; !slices.Equal(got, want) {
					t.Errorf("when IPv6 alone had answered: got %q, want %q", got, want)
				}
				w.net.change(func() {
					all[six].refuse, all[six2].refuse, all[four].refuse, all[four2].refuse = true, true, true, true
				})
				w.pass(time.Minute)
				if got, want := addrs(w.fleet), []string{six, six2}; !slices.Equal(got, want) {
					t.Errorf("when none answered: got %q, want %q", got, want)
				}
			})
		})
	}
}

// TestTwoSourcesOfAReplica: where names, or a name and another source, give a replica different
// settings, the first one's count, and a note says so. Those of the file are meant to count.
func TestTwoSourcesOfAReplica(t *testing.T) {
	named := func(name string, of ReplicaOptions) DNSOptions { return DNSOptions{Name: name, Replica: of} }
	const note = "replicas that two sources name with different settings, of which the first one's count: " + a
	for name, tt := range map[string]struct {
		options Options
		tenant  string // that counts
		note    string // "" = none
	}{
		"equal settings": {Options{DNS: []DNSOptions{named("vllm:8000", ReplicaOptions{Tenant: "x"}), named("vllm.:8000", ReplicaOptions{Tenant: "x"})}}, "x", ""},
		"two names":      {Options{DNS: []DNSOptions{named("vllm:8000", ReplicaOptions{}), named("other:8000", ReplicaOptions{Tenant: "x"})}}, "", note + " (dns vllm:8000, dns other:8000)"},
		"another source": {Options{DNS: []DNSOptions{named("vllm:8000", ReplicaOptions{Tenant: "x"})}, Sources: []Source{new(flaky)}}, "x", note + " (dns vllm:8000, *fleet.flaky)"},
		"the file":       {Options{Replicas: []ReplicaOptions{{Address: a, Tenant: "x"}}, DNS: []DNSOptions{named("vllm:8000", ReplicaOptions{})}}, "x", ""},
		"another port":   {Options{DNS: []DNSOptions{named("vllm:8000", ReplicaOptions{}), named("vllm:8001", ReplicaOptions{Tenant: "x"})}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt.options.Resolver = &zone{ips: map[string][]string{"vllm": {"10.0.0.1"}, "vllm.": {"10.0.0.1"}, "other": {"10.0.0.1"}}}
				for _, s := range tt.options.Sources {
					f := flaky{make(chan []ReplicaOptions, 1), make(chan error)}
					f.lists <- list(a)
					*s.(*flaky) = f
				}
				w := start(t, tt.options, map[string]*fakeReplica{a: fake(1, 0), "10.0.0.1:8001": fake(1, 0)})
				w.pass(5 * time.Second)
				s := w.fleet.Snapshot()
				if got := strings.Join(s.Notes, "; "); got != tt.note {
					t.Errorf("notes %q, want %q", got, tt.note)
				}
				if got := s.Replica(a).Tenant; got != tt.tenant {
					t.Errorf("tenant %q, want %q", got, tt.tenant)
				}
			})
		})
	}
}
