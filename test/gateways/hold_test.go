//go:build gateways

package gateways

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/internal/testenv/manifest"
	"warmroute/render/testkit/checkout"
)

const (
	sessionTokens = 60_000 // two fill the cache of a replica
	answerTokens  = 2_600  // 13 s
	heldTokens    = 30_000
)

// holds has requests wait for room beside two sessions at work, once apply has added to the gateway
// what that takes: until then none waits. A held request goes in its turn, with its order, and also
// if the router freezes.
func (g *gateway) holds(t *testing.T, apply func()) {
	g.restart(t, object{"share": 0.000001})
	until(t, "the router knows the replica's speed", func() bool {
		g.ask(t, sessionTokens, 1)
		return g.router.metric(t, "warmroute_live_sessions", "rank", "0") > 0
	})
	t.Run("not without the patch", func(t *testing.T) {
		passed, sessions := g.crowded(t)
		n, answered := g.asks(t)
		answered()
		sessions()
		if g.router.metric(t, "warmroute_unheld_requests_total", "", "") == passed {
			t.Error("it did not lack room")
		}
		if got := g.order(t, n); got != "" {
			t.Errorf("a client's own order %q arrives", got)
		}
		if page, err := testenv.Get(t.Context(), routerAdmin+"/readyz"); err != nil || !strings.Contains(page, "does not announce "+envoy.KeyHold) {
			t.Errorf("/readyz: %v %s", err, page)
		}
	})
	apply()
	for want, part := range map[string]string{
		`"max_message_timeout": "1201s"`: "dynamic_listeners", envoy.KeyHold: "dynamic_listeners",
		"DYNAMIC_METADATA(warmroute:priority)": "dynamic_route_configs",
		"connection_keepalive":                 "dynamic_active_clusters", // a cluster that takes another's place ends its streams
	} {
		until(t, "Envoy is told "+want, func() bool { return strings.Contains(g.page("/config_dump?resource="+part), want) })
	}
	t.Run("until its turn", g.inTurn)
	t.Run("not while the router is frozen", g.frozenWhileHeld)
	g.restart(t, nil)
}

// restart gives the router a section sessions, and one replica; without the section all of them.
func (g *gateway) restart(t *testing.T, sessions object) {
	t.Helper()
	g.router.Kill()
	ips := podIPs
	if sessions == nil {
		g.router.file = g.file
	} else {
		g.file, ips = g.router.file, podIPs[:1]
		config := manifest.Objects(t, g.file)[0]
		config["sessions"] = sessions
		g.router.file = filepath.Join(g.dir, "holding.yaml")
		write(t, g.router.file, config)
	}
	resolve(t, ips...)
	g.router.start()
	g.ready(t, len(ips))
	g.found()
}

// inTurn holds a request for longer than the ten seconds that Envoy Gateway gives to a stream.
func (g *gateway) inTurn(t *testing.T) {
	_, sessions := g.crowded(t)
	before := time.Now().UnixMilli()
	n, answered := g.asks(t)
	g.isHeld(t, 1)
	after := time.Now().UnixMilli()
	answered()
	sessions()
	const seconds = "warmroute_held_seconds_"
	if sent, took := g.router.metric(t, seconds+"count", "end", "sent"), g.router.metric(t, seconds+"sum", "end", "sent"); sent != 1 || took < 10 {
		t.Errorf("%v were sent in their turn, after %v s", sent, took)
	}
	if order, err := strconv.ParseInt(g.order(t, n), 10, 64); err != nil || order < before || order > after {
		t.Errorf("sent at %d to %d, its order is %q", before, after, g.order(t, n))
	}
}

func (g *gateway) frozenWhileHeld(t *testing.T) {
	_, sessions := g.crowded(t)
	n, answered := g.asks(t)
	g.isHeld(t, 1)
	g.router.freeze()
	until(t, "it is sent on", func() bool { _, ok := g.orderOf(n); return ok })
	if got := g.order(t, n); got != "" {
		t.Errorf("it has the order %q", got)
	}
	g.router.thaw()
	answered()
	sessions()
}

// crowded lets two sessions work, and returns how many requests lacked room so far and went, and the
// end of the sessions.
func (g *gateway) crowded(t *testing.T) (passed float64, end func()) {
	t.Helper()
	const live = "warmroute_live_sessions"
	until(t, "nobody works", func() bool { return g.router.metric(t, live, "rank", "0") == 0 })
	var busy sync.WaitGroup
	for range 2 {
		busy.Go(func() { g.ask(t, sessionTokens, answerTokens) })
	}
	until(t, "two sessions work", func() bool { return g.router.metric(t, live, "rank", "0") == 2 })
	return g.router.metric(t, "warmroute_unheld_requests_total", "", ""), busy.Wait
}

func (g *gateway) isHeld(t *testing.T, n float64) {
	t.Helper()
	until(t, fmt.Sprint(n, " are held"), func() bool { return g.router.metric(t, "warmroute_held_requests", "", "") == n })
}

// asks sends a request that does not fit beside the sessions. It must be answered.
func (g *gateway) asks(t *testing.T) (n uint64, answered func()) {
	t.Helper()
	n = lastNumber.Add(1)
	var busy sync.WaitGroup
	busy.Go(func() { g.askAs(t, n, heldTokens, 1) })
	return n, busy.Wait
}

func (g *gateway) ask(t *testing.T, tokens, answer int) {
	g.askAs(t, lastNumber.Add(1), tokens, answer)
}

// askAs sends a prompt that no replica has, with an order of the client's own.
func (g *gateway) askAs(t *testing.T, n uint64, tokens, answer int) {
	client := newClient()
	client.Timeout = hang
	defer client.CloseIdleConnections()
	body := fmt.Appendf(nil, `{"model":"sim","max_tokens":%d,"prompt":[%s]}`, answer, testenv.Tokens(9_000_000+n, tokens))
	if _, why := post(client, g.url, n, body, map[string]string{envoy.HeaderPriority: "-9"}); why != "" {
		t.Errorf("a request failed: %s", why)
	}
}

// order returns the order with which a request reached a replica, "": none.
func (g *gateway) order(t *testing.T, n uint64) string {
	t.Helper()
	order, ok := g.orderOf(n)
	if !ok {
		t.Errorf("request %d has reached no replica", n)
	}
	return order
}

func (g *gateway) orderOf(n uint64) (string, bool) {
	for _, r := range g.replicas {
		if got, ok := r.orders.Load(strconv.FormatUint(n, 10)); ok {
			return strings.Join(got.(http.Header).Values(envoy.HeaderPriority), " "), true
		}
	}
	return "", false
}

// holdObjects reads what an example needs besides so that requests are held.
func holdObjects(t *testing.T, name string) []object {
	t.Helper()
	return manifest.Objects(t, filepath.Join(checkout.Root(), "examples", name, "hold.yaml"))
}
