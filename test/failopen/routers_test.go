package failopen

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"warmroute/internal/peers"
	"warmroute/internal/peers/peerspb"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// onePrompt takes a replica eight seconds, so that a burst of it counts as
// simultaneous on any machine. A replica that reports it cached may get more.
func onePrompt(int) string { return testenv.Tokens(7, 8192) }

func ownPrompt(i int) string { return testenv.Tokens(50_000+uint64(i), prefix) }

// spread fails in the long form where the replica with the most has more than 1.3 times the
// mean. On a busy machine it depends on how long messages take (brain.Routers has them in
// virtual time).
func spread(t *testing.T, at []float64) {
	t.Helper()
	sum := 0.0
	for _, n := range at {
		sum += n
	}
	ratio := slices.Max(at) / (sum / float64(len(at)))
	t.Logf("in flight %v: most over mean %.2f", at, ratio)
	if *long && ratio > 1.3 || math.IsNaN(ratio) {
		t.Errorf("in flight %v: most over mean %.2f", at, ratio)
	}
}

// bursting allows one burst at a time, which already loads a machine fully.
var bursting sync.Mutex

// burst sends one prompt 512 times at once, looks at how it is spread, and ends it.
func (f *routers) burst(during func()) {
	f.t.Helper()
	bursting.Lock()
	defer bursting.Unlock()
	at, end := f.hold(512, onePrompt)
	spread(f.t, at)
	f.whole()
	during()
	end()
	f.empty()
}

// beside runs tests that wait more than they compute in parallel, in the short
// form only: the long one depends on the clock.
func beside(t *testing.T) {
	if !*long {
		t.Parallel()
	}
}

// TestRouters breaks routers and the connections between them, with embedded NATS
// servers.
func TestRouters(t *testing.T) {
	beside(t)
	f := startRouters(t, "")
	span, cutFor := time.Second, time.Second
	if *long {
		span, cutFor = 8*time.Second, 13*time.Second // 10 s after the cut
	}
	victim, frozen := f.all[1], f.all[2]
	step := func(name string, do func(f *routers)) {
		t.Run(name, func(t *testing.T) {
			at := *f
			at.t = t
			do(&at)
		})
	}
	step("one prompt 512 times at once", func(f *routers) {
		f.burst(func() {
			for _, r := range f.all {
				if r.own() == 0 {
					f.t.Errorf("%s has none of them", r.name)
				}
				f.explained(r)
			}
		})
	})
	step("settings changed at run time", func(f *routers) { f.settings() })
	step("a router killed, another frozen", func(f *routers) {
		_, end := f.hold(24, ownPrompt)
		f.whole()
		f.under(span, func() {
			victim.Kill()
			_ = frozen.Signal(syscall.SIGSTOP)
			f.took("their charges are gone", time.Now(), 3*time.Second, func() bool { return f.gone(victim, frozen) })
		})
		f.under(span/2, func() { _ = frozen.Signal(syscall.SIGCONT); f.back(victim) })
		f.has(victim, f.loadToken(f.all[0])) // it receives the settings that were changed before
		end()
		f.empty()
	})
	step("the network between them cut", func(f *routers) {
		_, end := f.hold(24, ownPrompt)
		f.whole()
		f.under(max(span, cutFor), func() { f.cut((*gate).Close) })
		for _, r := range f.all {
			until(f.t, r.name+" misses the others", func() bool {
				p := f.peers(r)
				return p != nil && len(p.Link.Peers) == 0 && len(p.Notes) == len(f.all)-1 && r.metric("warmroute_peer_in_flight_requests{") == 0
			})
			if text := get(f.t, "http://"+r.admin+"/readyz"); !strings.Contains(text, "it is down, or the network") {
				f.t.Errorf("/readyz of %s: %s", r.name, text)
			}
		}
		f.cut((*gate).open)
		healed := time.Now()
		f.took("the state is equal again", healed, 1200*time.Millisecond, f.equal) // NATS servers dial each other once a second
		f.under(span/2, func() {})
		end()
		f.empty()
	})
	step("an Envoy replaced", func(f *routers) {
		_, end := f.hold(24, ownPrompt)
		f.whole()
		f.sides[1].Kill()
		until(f.t, "the requests that went through it are released", func() bool {
			sum := 0
			for _, r := range f.all {
				sum += r.own()
			}
			return sum == 12 && f.equal()
		})
		f.sides[1] = f.startEnvoy("envoy-again")
		f.under(span/2, func() {})
		end()
		f.empty()
	})
	step("strangers on the subject", func(f *routers) { f.strangers() })
	step("a router leaves", func(f *routers) {
		_, end := f.hold(24, ownPrompt)
		f.whole()
		end() // it drains first
		f.under(span/2, func() {
			victim.Stop()
			f.took("it is gone", time.Now(), time.Second, func() bool { return f.gone(victim) })
		})
		for _, r := range f.all {
			if p := f.peers(r); r != victim && (p == nil || len(p.Notes) > 0) {
				f.t.Errorf("%s misses a router that took leave: %+v", r.name, p)
			}
		}
		f.back(victim)
		f.empty()
	})
}

// explained fails unless r's explain contains how much each other router has on each
// replica: in total, that router's requests in flight.
func (f *routers) explained(r *router) {
	f.t.Helper()
	var answer struct {
		Decision struct {
			Candidates []struct {
				Routers map[string]struct {
					InFlight int `json:"in_flight"`
				} `json:"other_routers"`
			}
		}
	}
	f.ask(http.MethodPost, "http://"+r.admin+"/debug/explain?path=/v1/completions", `{"model":"sim","prompt":[`+ownPrompt(0)+`]}`, &answer)
	told := map[string]int{}
	for _, c := range answer.Decision.Candidates {
		for id, share := range c.Routers {
			told[id] += share.InFlight
		}
	}
	want := map[string]int{}
	for _, other := range f.all {
		if n := other.own(); other != r && n > 0 {
			want[other.name] = n
		}
	}
	if len(answer.Decision.Candidates) != fleetReplicas || !maps.Equal(told, want) {
		f.t.Errorf("%s explains %d candidates with %v of other routers in flight, which have %v", r.name, len(answer.Decision.Candidates), told, want)
	}
}

// changedLast is the setting that settings leaves in force.
const changedLast = 17

// settings changes one setting on one router after the other: the last change is
// in force on all of them.
func (f *routers) settings() {
	for i, r := range f.all {
		loadToken := changedLast - len(f.all) + 1 + i
		f.ask(http.MethodPatch, "http://"+r.admin+"/policy", fmt.Sprintf(`{"ttft":{"load_token":%d}}`, loadToken), nil)
		for _, other := range f.all {
			f.has(other, loadToken)
		}
	}
	// At once: everywhere the same one of them wins.
	for i, r := range f.all[:2] {
		f.ask(http.MethodPatch, "http://"+r.admin+"/policy", fmt.Sprintf(`{"ttft":{"load_token":%d}}`, 30+i), nil)
	}
	until(f.t, "all routers have the same settings", func() bool {
		first := f.loadToken(f.all[0])
		return first >= 30 && first == f.loadToken(f.all[1]) && first == f.loadToken(f.all[2])
	})
	f.ask(http.MethodPatch, "http://"+f.all[2].admin+"/policy", fmt.Sprintf(`{"ttft":{"load_token":%d}}`, changedLast), nil)
	f.has(f.all[0], changedLast)
}

// loadToken is one of the settings in force on r.
func (f *routers) loadToken(r *router) int {
	var page struct {
		Default struct {
			TTFT struct {
				LoadToken int `json:"load_token"`
			}
		}
	}
	f.ask(http.MethodGet, "http://"+r.admin+"/policy", "", &page)
	return page.Default.TTFT.LoadToken
}

// has waits until a setting is in force on r.
func (f *routers) has(r *router, loadToken int) {
	f.t.Helper()
	until(f.t, fmt.Sprintf("%s has load_token %d", r.name, loadToken), func() bool { return f.loadToken(r) == loadToken })
}

// ask sends a request to an admin port and reads the answer into to.
func (f *routers) ask(method, url, body string, to any) {
	f.t.Helper()
	req := must.Get(http.NewRequest(method, url, strings.NewReader(body)))(f.t)
	resp := must.Get(http.DefaultClient.Do(req))(f.t)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.t.Fatalf("%s %s: %s %s, %v", method, url, resp.Status, text, err)
	}
	if to != nil {
		if err := json.Unmarshal(text, to); err != nil {
			f.t.Fatalf("%s %s: %v", method, url, err)
		}
	}
}

func (f *routers) cut(do func(*gate)) {
	for _, g := range f.gates {
		do(g)
	}
}

// strangers joins the routers' cluster and sends messages that they must refuse.
func (f *routers) strangers() {
	t := f.t
	ns := must.Get(server.NewServer(&server.Options{
		ServerName: "stranger", Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "warmroute", Host: "127.0.0.1", Port: -1, PoolSize: -1},
		Routes:  server.RoutesFromStr("nats://" + f.gates[0].Addr),
	}))(t)
	ns.Start()
	defer func() { ns.Shutdown(); ns.WaitForShutdown() }()
	if !ns.ReadyForConnections(30 * time.Second) {
		t.Fatal("no NATS server")
	}
	conn := must.Get(nats.Connect(ns.ClientURL()))(t)
	defer conn.Close()
	next := must.Get(proto.Marshal(&peerspb.Message{Protocol: peers.Protocol + 1, From: "from-the-future", Seq: 1, Full: true}))(t)
	heard := func(r *router, what string) float64 {
		return r.metric(fmt.Sprintf("warmroute_peers_messages_total{what=%q}", what))
	}
	for _, r := range f.all {
		until(t, r.name+" hears the stranger", func() bool {
			_ = conn.Publish("warmroute.warmroute.routers", []byte("garbage"))
			_ = conn.Publish("warmroute.warmroute.routers", next)
			_ = conn.Flush()
			return heard(r, "garbage") >= 3 && heard(r, "refused") >= 3
		})
		log := must.Get(os.ReadFile(r.Log))(t)
		want := fmt.Sprintf(`router \"from-the-future\" uses version %d of the protocol, this one version %d: its messages are ignored`, peers.Protocol+1, peers.Protocol)
		if n := strings.Count(string(log), want); n != 1 {
			t.Errorf("%s logged %d times: %s", r.name, n, want)
		}
		if p := f.peers(r); p == nil || p.of("from-the-future") != -1 {
			t.Errorf("%s counts it as a peer", r.name)
		}
	}
	f.under(500*time.Millisecond, func() {})
	f.empty()
}
