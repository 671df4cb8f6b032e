//go:build gateways

package gateways

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
)

// TestEnvoyGateway: the example through Envoy Gateway and the Envoy that it
// starts, while the router and replicas come and go.
func TestEnvoyGateway(t *testing.T) {
	g := startGateway(t, true)
	g.works(t)
}

// works is everything that an example for a gateway promises. The router is not
// started yet.
func (g *gateway) works(t *testing.T) {
	t.Helper()
	var started uint64 // the last request before the router
	t.Run("Envoy starts before the router", func(t *testing.T) { started = g.startsFirst(t) })
	t.Run("hints are followed", func(t *testing.T) { g.follows(t, started) })
	t.Run("hints are not followed, and that is counted", func(t *testing.T) { g.misses(t, started) })
	t.Run("clients' own hints are removed", g.removes)
	t.Run("long bodies", g.longBodies)
	t.Run("retries show failures", g.showsRetries)
	t.Run("a client that offers to speak TLS", g.offersTLS)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { g.survives(t, f) })
	}
}

// TestEnvoyGatewayHolds: with hold.yaml beside the example, requests are held.
func TestEnvoyGatewayHolds(t *testing.T) {
	g := startGateway(t, true)
	g.router.start()
	g.holds(t, func() {
		write(t, filepath.Join(g.dir, "objects", "hold.yaml"), backends(t, holdObjects(t, "envoy-gateway"), nil)...)
	})
}

// startsFirst starts the router after Envoy has looked for it several times.
func (g *gateway) startsFirst(t *testing.T) (started uint64) {
	lines := g.under(t, nil, some, false, func() {})
	if hinted, _, _ := hints(lines); hinted > 0 {
		t.Errorf("%d hints from nobody", hinted)
	}
	// Envoy looks for the router again and again, not once in a minute.
	seen := g.stat("health_check.attempt")
	until(t, "three more health checks", func() bool { return g.stat("health_check.attempt") >= seen+3 })
	started = lastNumber.Load()
	g.router.start()
	g.found()
	return started
}

func (g *gateway) follows(t *testing.T, started uint64) {
	lines := g.under(t, nil, some, false, func() {})
	if hinted, followed, _ := hints(lines); hinted < len(lines)*9/10 || followed != hinted {
		t.Errorf("of %d requests %d had a hint, %d followed it", len(lines), hinted, followed)
	}
	served := map[string]bool{}
	for _, l := range lines {
		served[l.served] = true
	}
	if len(served) != len(g.replicas) {
		t.Errorf("only %v served", served)
	}
	if missed := g.counted(t, started); missed > 0 {
		t.Errorf("%d hints were not followed", missed)
	}
}

// misses has the router know only a replica that Envoy does not.
func (g *gateway) misses(t *testing.T, started uint64) {
	stranger := newReplica(t, g.dir, podIP(4))
	resolve(t, stranger.ip)
	g.ready(t, 1)
	g.under(t, nil, some, false, func() {})
	if missed := g.counted(t, started); missed < some {
		t.Errorf("only %d hints were not followed", missed)
	}
	resolve(t, podIPs...)
	g.ready(t, len(podIPs))
}

func (g *gateway) removes(t *testing.T) {
	own := map[string]string{envoy.HeaderDestination: g.replicas[0].addr(), envoy.HeaderRank: "7"}
	g.router.Kill()
	elsewhere := 0
	for _, l := range g.under(t, own, some, false, func() {}) {
		if l.hint != "-" {
			t.Fatalf("the hint %s of a client went through", l.hint)
		}
		if l.served != g.replicas[0].addr() {
			elsewhere++
		}
	}
	if elsewhere == 0 {
		t.Error("every request went where its client said")
	}
	g.router.start()
	g.found()
	g.followsAll(t, own)
}

// followsAll requires that Envoy follows every hint of the router, and returns how
// many requests had none.
func (g *gateway) followsAll(t *testing.T, headers map[string]string) (without int) {
	t.Helper()
	lines := g.under(t, headers, some, false, func() {})
	hinted, followed, _ := hints(lines)
	if hinted == 0 || followed != hinted {
		t.Errorf("of %d hints of the router %d were followed", hinted, followed)
	}
	return len(lines) - hinted
}

func (g *gateway) longBodies(t *testing.T) {
	two := newClient()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	two.Transport.(*http.Transport).Protocols = protocols
	defer two.CloseIdleConnections()
	one := newClient()
	defer one.CloseIdleConnections()
	for name, client := range map[string]*http.Client{"HTTP/1.1": one, "HTTP/2": two} {
		for _, size := range []int{200 << 10, 4 << 20} {
			n := lastNumber.Add(1)
			body := prompt(n)
			body = append(body[:len(body)-1], fmt.Sprintf(`,"user":%q}`, bytes.Repeat([]byte("x"), size))...)
			before := g.intact()
			if _, why := post(client, g.url, n, body, nil); why != "" {
				t.Errorf("%d KiB over %s: %s", size>>10, name, why)
			} else if g.intact() != before+1 {
				t.Errorf("%d KiB over %s did not arrive as they were sent", size>>10, name)
			}
		}
	}
}

// showsRetries requires the tag that says that each retry shows a failure.
func (g *gateway) showsRetries(t *testing.T) {
	if !strings.Contains(g.page("/config_dump"), envoy.TagFirstByte) {
		t.Error("the access log has no such tag")
	}
}

// offersTLS sends a request as Apache's HttpClient does.
func (g *gateway) offersTLS(t *testing.T) {
	client := newClient()
	defer client.CloseIdleConnections()
	n := lastNumber.Add(1)
	if _, why := post(client, g.url, n, prompt(n), map[string]string{"Connection": "Upgrade", "Upgrade": "TLS/1.2"}); why != "" {
		t.Error(why)
	}
}

// fault is something that breaks, and its end.
type fault struct {
	name         string
	breaks, ends func(*gateway)
	lost         bool   // a replica dies: the next of the list serves some of its requests, and answers are cut
	sent         uint64 // requests while it lasts; 0: some
}

// some is the number of requests that show whether something works.
const some = 300

var faults = []fault{
	{name: "router killed", breaks: func(g *gateway) { g.router.Kill() }, ends: func(g *gateway) { g.router.start() }},
	{name: "router frozen", breaks: func(g *gateway) { g.router.freeze() }, ends: func(g *gateway) { g.router.thaw() }},
	{name: "replica killed", breaks: func(g *gateway) { g.replicas[0].kill() }, ends: func(g *gateway) { g.replicas[0].start() }, lost: true},
	{name: "router and replica killed", lost: true, sent: 4000, // a retry that finds the dead one again is rare
		breaks: func(g *gateway) { g.router.Kill(); g.replicas[1].kill() },
		ends:   func(g *gateway) { g.replicas[1].start(); g.router.start() }},
}

// survives sends load while f comes, and while it goes: nothing fails, and hints
// are followed again.
func (g *gateway) survives(t *testing.T, f fault) {
	t.Helper()
	g.under(t, nil, max(some, f.sent), f.lost, func() { f.breaks(g) })
	lines := g.under(t, nil, some, f.lost, func() { f.ends(g); g.found() })
	hinted, followed, next := hints(lines)
	if hinted == 0 || !f.lost && followed != hinted || followed+next != hinted {
		t.Errorf("healed: %d hinted, %d followed, %d served by the next", hinted, followed, next)
	}
}

// TestSilentReplica: one of four endpoints answers no connection, and the router
// that would know is dead. A connection that is not answered costs a second, not
// ten, and not every request.
func TestSilentReplica(t *testing.T) {
	g := startGateway(t, true, silentIP+":8000")
	l := startLoad(g.url, nil)
	defer l.stop()
	time.Sleep(5 * time.Second) // the load, not a wait for something
	s := l.stop()
	t.Log(s)
	if len(s.failed)+s.cut > 0 {
		t.Errorf("requests failed: %v, cut: %d", s.failed, s.cut)
	}
	tried := g.stat("upstream_cx_connect_timeout")
	if tried == 0 {
		t.Error("no connection to the silent replica was tried")
	}
	if s.longest > 8*time.Second {
		t.Errorf("a request took %v", s.longest)
	}
}

// TestWithoutPatches: Envoy Gateway as it comes allows no patches. The example
// works, and nothing fails.
func TestWithoutPatches(t *testing.T) {
	g := startGateway(t, false)
	g.router.start()
	g.found()
	if dump := g.page("/config_dump?resource=dynamic_active_clusters"); !strings.Contains(dump, "extproc") || strings.Contains(dump, "no_traffic_interval") {
		t.Error("patched though it is not allowed, or no router")
	}
	g.survives(t, faults[len(faults)-1])
}
