package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"warmroute/internal/certs/certstest"
	"warmroute/render/testkit/must"
)

// TestClientsThatCannotConnect: a gRPC server's note and log name a client whose certificates do not
// fit, for a minute, and none that only looks whether the port is open.
func TestClientsThatCannotConnect(t *testing.T) {
	ours, others := certstest.New(t), certstest.New(t)
	own, client, stranger := ours.Issue("router"), ours.Issue("envoy"), others.Issue("envoy")
	dials := func(trusts *x509.CertPool, own certstest.Pair) func(net.Conn) error {
		pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
		return func(c net.Conn) error {
			of := tls.Client(c, &tls.Config{RootCAs: trusts, ServerName: "localhost", NextProtos: []string{"h2"}, Certificates: []tls.Certificate{pair}})
			err := of.Handshake()
			_, _ = of.Read(make([]byte, 1)) // TLS 1.3 refuses a client's certificate late
			return err
		}
	}
	for name, tt := range map[string]struct {
		client func(net.Conn) error
		note   string // "" = none
	}{
		"with our certificate":      {dials(ours.Pool, client), ""},
		"with a stranger's":         {dials(ours.Pool, stranger), "signed by unknown authority"},
		"with another authority":    {dials(others.Pool, client), "remote error: tls: bad certificate"},
		"without TLS":               {func(c net.Conn) error { _, err := c.Write([]byte("PRI * HTTP/2.0\r\n\r\n")); return err }, "does not look like a TLS handshake"},
		"that leaves, as probes do": {func(net.Conn) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := must.Get(New(Options{CertFile: own.CertFile, KeyFile: own.KeyFile, ClientCAFile: ours.CAFile}, slog.New(slog.NewTextHandler(&log, nil))))(t)
			creds := s.Credentials().Clone()
			lis := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer lis.Close()
			for range 2 {
				left := make(chan struct{})
				go func() {
					defer close(left)
					if c, err := net.Dial("tcp", lis.Addr().String()); err == nil {
						_ = tt.client(c)
						c.Close()
					}
				}()
				conn := must.Get(lis.Accept())(t)
				if secured, _, err := creds.ServerHandshake(conn); err == nil {
					secured.Close()
				}
				conn.Close()
				<-left
			}
			note := fmt.Sprint(s.Refused("xds.tls"))
			if (note == "[]") != (tt.note == "") || !strings.Contains(note, tt.note) {
				t.Errorf("note %s, want %q", note, tt.note)
			}
			if n := strings.Count(log.String(), "level=WARN"); n > 1 || (n == 1) != (tt.note != "") {
				t.Errorf("the log has %d lines:\n%s", n, log.String())
			}
			now := time.Now()
			if s.now = func() time.Time { return now.Add(2 * time.Minute) }; s.Refused("xds.tls") != nil {
				t.Error("it is named after two minutes")
			}
		})
	}
}
