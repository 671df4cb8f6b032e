package hostile

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"google.golang.org/protobuf/proto"

	"warmroute/internal/peers"
	"warmroute/internal/peers/peerspb"
	"warmroute/internal/testenv"
)

// rogue is a NATS server that tries to join the routers', and its messages there.
type rogue struct {
	t    *testing.T
	name string
	ns   *server.Server
	conn *nats.Conn
	seq  uint64
}

// join starts a rogue with a password; "" = none.
func join(t *testing.T, name, to, password string) *rogue {
	t.Helper()
	o := &server.Options{
		ServerName: name, Host: "127.0.0.1", Port: -1, NoSigs: true, NoLog: true,
		Cluster: server.ClusterOpts{Name: "warmroute", Host: "127.0.0.1", Port: -1, PoolSize: -1},
	}
	route := &url.URL{Scheme: "nats-route", Host: to}
	if password != "" {
		route.User = url.UserPassword("warmroute", password)
		o.Cluster.Username, o.Cluster.Password = "warmroute", password
	}
	o.Routes = []*url.URL{route}
	ns, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(3 * time.Minute) {
		t.Fatal("no NATS server")
	}
	conn, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return &rogue{t: t, name: name, ns: ns, conn: conn}
}

// settings sends the routers a policy with a version.
func (r *rogue) settings(version uint64, policy string) {
	r.t.Helper()
	r.seq++
	b, err := proto.Marshal(&peerspb.Message{Protocol: peers.Protocol, From: r.name, Epoch: 1, Seq: r.seq, Full: true,
		Policy: &peerspb.Policy{Version: version, By: r.name, Config: []byte(policy)}})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.conn.Publish("warmroute.warmroute.routers", b); err != nil {
		r.t.Fatal(err)
	}
	if err := r.conn.Flush(); err != nil {
		r.t.Fatal(err)
	}
}

// TestRoguePeers: a router without the token joins nobody. One with the token can
// change settings, but not for ever, and each change is logged with where it came
// from.
func TestRoguePeers(t *testing.T) {
	at, password := testenv.Addresses(t, 1)[0], rand.Text()
	s := open(t, setup{replicas: 1, sim: quick(), config: fmt.Sprintf("peers: {id: honest, listen: %q, token_file: %s}\n", at, secret(t, password))})
	admin := "http://" + s.admin
	page := func() string { _, text := ask(t, "GET", admin+"/policy", ""); return text }
	inForce := func(kind string) bool { return strings.Contains(page(), fmt.Sprintf("%q", kind)) }
	now := uint64(time.Now().UnixMilli())

	stranger, guessing := join(t, "stranger", at, ""), join(t, "guessing", at, "wrong")
	insider := join(t, "insider", at, password)
	s.await("the rogue that has the token", func() bool { return insider.ns.NumRoutes() > 0 })
	for _, r := range []*rogue{stranger, guessing} {
		for range 20 {
			r.settings(now+1000_000, turnedOff)
		}
	}
	s.await("settings of the rogue that has the token", func() bool {
		insider.settings(now+1, `{"route_policy":"filter-then-score"}`)
		return inForce("filter-then-score")
	})
	if a, b := stranger.ns.NumRoutes(), guessing.ns.NumRoutes(); a+b != 0 {
		t.Errorf("routers without the token have %d and %d connections", a, b)
	}
	if n := s.logLines("policy adopted from another router"); n != 1 || s.logLines("from=insider by=insider") != 1 {
		t.Errorf("%d lines name the origin of the settings\n%s", n, s.router.Tail())
	}
	s.hinted()

	s.await("the refusal of the last version there is", func() bool {
		insider.settings(1<<64-1, turnedOff)
		return s.logLines("settings by router") > 0
	})
	if n := s.logLines("settings by router"); n != 1 {
		t.Errorf("the refusals have %d lines", n)
	}
	if status, text := ask(t, "PATCH", admin+"/policy", `{"route_policy":"ttft"}`); status != 200 || !inForce("ttft") {
		t.Errorf("the operator's change: %d %s", status, text)
	}
	for range 20 {
		insider.settings(1<<64-1, turnedOff)
		insider.settings(now+1, turnedOff)
	}
	s.hinted()
	if !inForce("ttft") || inForce("disabled") {
		t.Errorf("in force after the operator's change: %s", page())
	}
}
