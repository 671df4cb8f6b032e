package link

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestCertificatesKeepStrangersOut: routers whose certificates one authority
// vouches for cluster; one without, or with another authority's, does not.
func TestCertificatesKeepStrangersOut(t *testing.T) {
	ours, theirs := certstest.New(t), certstest.New(t)
	of := func(a *certstest.Authority, name string) certs.ClientOptions {
		p := a.Issue(name)
		return certs.ClientOptions{Enabled: true, CertFile: p.CertFile, KeyFile: p.KeyFile, CAFile: a.CAFile}
	}
	n := 0
	all := cluster(t, 3, func(c *Config) { n++; c.TLS = of(ours, fmt.Sprint("router-", n)) })
	checkFleet(t, all)
	for name, tls := range map[string]certs.ClientOptions{"other": of(theirs, "stranger"), "none": {}} {
		c := DefaultConfig()
		c.ID, c.Listen, c.Routes, c.TLS = "stranger-"+name, "127.0.0.1:0", []string{all[0].link.Addr()}, tls
		stranger := start(t, c, nil)
		c.ID, c.TLS = "friend-"+name, of(ours, "friend")
		all = append(all, start(t, c, nil)) // it dials after the stranger
		checkFleet(t, all)
		charge := all[0].charge(0)
		within(t, "a friend hears it", func() bool { return all[1].others() == 1 })
		if stranger.peers() != 0 || stranger.others() != 0 || all[0].peers() != len(all)-1 {
			t.Errorf("%s: a stranger hears the fleet", name)
		}
		charge.Release()
	}
}

// serve starts a NATS server with o in this process.
func serve(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	return serveAt(t, -1, o)
}

// serveAt is serve at a port.
func serveAt(t *testing.T, port int, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.NoSigs, o.NoLog = "127.0.0.1", port, true, true
	ns := must.Get(server.NewServer(o))(t)
	ns.Start()
	t.Cleanup(func() { ns.Shutdown(); ns.WaitForShutdown() })
	if !ns.ReadyForConnections(30 * time.Second) {
		t.Fatal("no NATS server")
	}
	return ns
}

// TestSecretsOfAnExternalServer: a token, TLS and a credentials file are presented
// to a NATS server that runs elsewhere; without them nothing is shared, and the
// router reports that and keeps running.
func TestSecretsOfAnExternalServer(t *testing.T) {
	dir := t.TempDir()
	authority := certstest.New(t)
	pair := authority.Issue("nats")
	tlsOf := must.Get(certificates(certs.ClientOptions{Enabled: true, CertFile: pair.CertFile, KeyFile: pair.KeyFile, CAFile: authority.CAFile}))(t)
	operator, creds := credentials(t)
	for name, one := range map[string]struct {
		server *server.Options
		right  Config
	}{
		"token": {&server.Options{Authorization: "secret"}, Config{TokenFile: write(t, dir, "token", "secret")}},
		"tls": {&server.Options{TLSConfig: tlsOf, TLS: true, TLSVerify: true, TLSTimeout: 30},
			Config{TLS: certs.ClientOptions{Enabled: true, CertFile: pair.CertFile, KeyFile: pair.KeyFile, CAFile: authority.CAFile}}},
		"creds": {operator, Config{Creds: write(t, dir, "creds", creds)}},
	} {
		t.Run(name, func(t *testing.T) {
			ns := serve(t, one.server)
			c := one.right
			c.Fleet, c.URL = "one", strings.Replace(ns.ClientURL(), "tls://", "nats://", 1)
			must.Do(t, c.Validate())
			var all []*linked
			for i := range 2 {
				c.ID = fmt.Sprint("r", i)
				all = append(all, start(t, c, nil))
			}
			checkFleet(t, all)
			log := new(text)
			stranger := start(t, Config{ID: "stranger", Fleet: "one", URL: c.URL}, slog.New(slog.NewTextHandler(log, nil)))
			charge := all[0].charge(0)
			within(t, "its friend hears it", func() bool { return all[1].others() == 1 })
			within(t, "the stranger says that it is alone", func() bool { return len(stranger.link.Notes()) == 1 })
			if stranger.peers() != 0 || stranger.others() != 0 || stranger.link.State().Connected {
				t.Error("a stranger hears the fleet")
			}
			charge.Release()
		})
	}
}

// TestCertificatesAreRenewed: both ends of a connection present the certificate that their file has then.
func TestCertificatesAreRenewed(t *testing.T) {
	authority := certstest.New(t)
	pair := authority.Issue("peer")
	c := must.Get(certificates(certs.ClientOptions{Enabled: true, CertFile: pair.CertFile, KeyFile: pair.KeyFile, CAFile: authority.CAFile, ServerName: "localhost"}))(t)
	for range 2 {
		one, other := net.Pipe()
		server, client := tls.Server(one, c), tls.Client(other, c)
		done := make(chan error, 1)
		go func() { done <- server.Handshake() }()
		must.Do(t, client.Handshake())
		must.Do(t, <-done)
		for end, conn := range map[string]*tls.Conn{"the server's": client, "the client's": server} {
			if got := conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != pair.Serial {
				t.Errorf("%s certificate has the number %d, want %d", end, got, pair.Serial)
			}
		}
		one.Close()
		pair = authority.Issue("peer")
	}
}

// TestAServerThatRestarts: routers find a NATS server again that was away, with another token, also
// after it has refused them for a while.
func TestAServerThatRestarts(t *testing.T) {
	dir := t.TempDir()
	c := Config{Fleet: "one", TokenFile: write(t, dir, "token", "first")}
	ports := must.Get(testenv.FreePorts(1))(t)
	ns := serveAt(t, ports[0], &server.Options{Authorization: "first"})
	c.URL = ns.ClientURL()
	log := new(text)
	var all []*linked
	for i := range 2 {
		c.ID = fmt.Sprint("r", i)
		all = append(all, start(t, c, slog.New(slog.NewTextHandler(log, nil))))
	}
	checkFleet(t, all)
	again := func(token string) {
		ns.Shutdown()
		ns.WaitForShutdown()
		ns = serveAt(t, ports[0], &server.Options{Authorization: token})
	}
	subscribed := ns.NumSubscriptions()
	connected := func() bool { // with its subscriptions: the server drops messages without a subscriber
		return ns.NumSubscriptions() == subscribed && all[0].link.conn.IsConnected() && all[1].link.conn.IsConnected()
	}
	again("first")
	within(t, "both are back", connected)
	checkFleet(t, all)
	again("second")
	within(t, "both are refused repeatedly, or give up", func() bool {
		seen, err := ns.Varz(nil)
		return err != nil || seen.TotalConnections >= 10 || all[0].link.conn.IsClosed() && all[1].link.conn.IsClosed()
	})
	write(t, dir, "token", "second")
	within(t, "both are back with the other token", connected)
	checkFleet(t, all)
	if n := strings.Count(log.String(), "Authorization Violation"); n > 2 {
		t.Errorf("%d lines in the log say that two routers were refused", n)
	}
}

// credentials are a NATS server whose users have to show a JWT that is signed by
// its operator's account, and such a user's credentials file.
func credentials(t *testing.T) (*server.Options, string) {
	t.Helper()
	pair := func(kind func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
		k := must.Get(kind())(t)
		public := must.Get(k.PublicKey())(t)
		return k, public
	}
	operator, operatorKey := pair(nkeys.CreateOperator)
	account, accountKey := pair(nkeys.CreateAccount)
	user, userKey := pair(nkeys.CreateUser)
	accountJWT := must.Get(jwt.NewAccountClaims(accountKey).Encode(operator))(t)
	userJWT := must.Get(jwt.NewUserClaims(userKey).Encode(account))(t)
	seed := must.Get(user.Seed())(t)
	file := must.Get(jwt.FormatUserConfig(userJWT, seed))(t)
	resolver := &server.MemAccResolver{}
	must.Do(t, resolver.Store(accountKey, accountJWT))
	return &server.Options{TrustedKeys: []string{operatorKey}, AccountResolver: resolver}, string(file)
}

// TestAServerThatDies: a router whose embedded server is gone reports it, is
// removed by the others within Silence, and leaves nothing behind.
func TestAServerThatDies(t *testing.T) {
	all := cluster(t, 3, nil)
	checkFleet(t, all)
	open := []interface{ Release() bool }{all[0].charge(0), all[1].charge(1)}
	within(t, "all hear it", func() bool { return all[0].others() == 1 && all[1].others() == 1 && all[2].others() == 2 })
	all[0].link.server.stop()
	within(t, "the others forget it", func() bool { return all[1].others() == 0 && all[2].others() == 1 })
	within(t, "it forgets the others", func() bool { return all[0].others() == 0 && all[0].peers() == 0 })
	within(t, "it says so", func() bool {
		return strings.Contains(strings.Join(all[0].link.Notes(), "\n"), "NATS is not reachable")
	})
	open = append(open, all[0].charge(2)) // it decides on
	for _, c := range open {
		c.Release()
	}
	checkFleet(t, all[1:])
	all[0].stop() // which nothing hangs on
}
