package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// install replaces one file by another, as the renewal of certificates does.
func install(t *testing.T, file, renewed string) {
	t.Helper()
	data := must.Get(os.ReadFile(renewed))(t)
	write(t, file, string(data))
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(file, []byte(text), 0o600))
}

// handshake connects a client to a server and returns the serial number of the
// certificate the server showed.
func handshake(server, client *tls.Config) (serial int64, err error) {
	lis, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		return 0, err
	}
	defer lis.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := lis.Accept()
		if err == nil {
			err = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
		done <- err
	}()
	conn, err := tls.Dial("tcp", lis.Addr().String(), client)
	if err != nil {
		<-done
		return 0, err
	}
	defer conn.Close()
	_, _ = conn.Read(make([]byte, 1)) // until the server is done: TLS 1.3 refuses a client's certificate late
	if err := <-done; err != nil {
		return 0, err
	}
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// follow runs a Source of a pair of files until the test ends. Its log lines go to log.
func follow(t *testing.T, of certstest.Pair, log io.Writer) *Source {
	t.Helper()
	s := must.Get(New(Options{CertFile: of.CertFile, KeyFile: of.KeyFile}, slog.New(slog.NewTextHandler(log, nil))))(t)
	testenv.Run(t, s.Run)
	return s
}

// TestRenewalWithoutRestart replaces the files under a running Source, with
// garbage in between.
func TestRenewalWithoutRestart(t *testing.T) {
	ca := certstest.New(t)
	used, renewed := ca.Issue("used"), ca.Issue("renewed")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := follow(t, used, &log)
		server := s.Server("h2") // made once, as a gRPC server does
		client := &tls.Config{RootCAs: ca.Pool, ServerName: "localhost", NextProtos: []string{"h2"}, Time: func() time.Time { return time.Unix(1, 0) }}
		want := func(serial int64, notes ...string) {
			t.Helper()
			if got, err := handshake(server, client); err != nil || got != serial {
				t.Errorf("certificate %d, %v; want %d", got, err, serial)
			}
			if got := s.Notes("tls"); len(got) != len(notes) || len(got) > 0 && !strings.Contains(got[0], notes[0]) {
				t.Errorf("notes %q, want %q", got, notes)
			}
		}
		tick := func() { time.Sleep(11 * time.Second); synctest.Wait() }
		want(used.Serial)
		install(t, used.CertFile, renewed.CertFile) // the key does not fit yet
		tick()
		tick()
		want(used.Serial, "tls.cert_file and key_file: ")
		install(t, used.KeyFile, renewed.KeyFile)
		tick()
		want(renewed.Serial)
		write(t, used.CertFile, "garbage")
		tick()
		want(renewed.Serial, "PEM data")
		must.Do(t, os.Remove(used.KeyFile))
		tick()
		want(renewed.Serial, "tls.key_file: open ")
		if n := strings.Count(log.String(), "level=ERROR"); n != 3 {
			t.Errorf("%d errors, want one per cause:\n%s", n, log.String())
		}
		if strings.Contains(log.String(), "PRIVATE") {
			t.Error("the log holds a key")
		}
	})
}

// TestEndedCertificates: one that has ended does not replace one that has not, and one that ends is
// named once.
func TestEndedCertificates(t *testing.T) {
	ca := certstest.New(t)
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // at which the clock below begins
	ca.Ends = epoch.Add(10 * time.Minute)
	used := ca.Issue("used")
	ca.Ends = epoch.Add(-time.Hour)
	ended := ca.Issue("ended")
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		s := follow(t, used, &log)
		install(t, used.CertFile, ended.CertFile)
		install(t, used.KeyFile, ended.KeyFile)
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.notAfter(); !got.Equal(epoch.Add(10 * time.Minute)) {
			t.Errorf("the certificate in use ends at %v", got)
		}
		refused := fmt.Sprint(s.Notes("tls"))
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		ended := fmt.Sprint(s.Notes("tls"))
		if said := log.String(); strings.Count(said, "level=ERROR") != 2 || !strings.Contains(refused, "has ended at 1999-12-31") || !strings.Contains(refused, "stays") ||
			!strings.Contains(ended, "the certificate in use has ended at 1999-12-31") || strings.Contains(ended, "stays") {
			t.Errorf("want one line about each end, and the notes of both: %s, %s\n%s", refused, ended, said)
		}
	})
}

// TestCertificatesOfTomorrow: a renewed one is used from the time on when it is valid.
func TestCertificatesOfTomorrow(t *testing.T) {
	ca := certstest.New(t)
	epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	ca.Ends = epoch.Add(20 * time.Minute)
	used := ca.Issue("used")
	ca.Begins, ca.Ends = epoch.Add(10*time.Minute), epoch.Add(30*time.Minute)
	next := ca.Issue("next")
	synctest.Test(t, func(t *testing.T) {
		s := follow(t, used, io.Discard)
		install(t, used.CertFile, next.CertFile)
		install(t, used.KeyFile, next.KeyFile)
		time.Sleep(9 * time.Minute)
		synctest.Wait()
		if end, notes := s.notAfter(), fmt.Sprint(s.Notes("tls")); !end.Equal(epoch.Add(20*time.Minute)) || !strings.Contains(notes, "is not valid before 2000-01-01 00:10:00") {
			t.Errorf("before its time the certificate in use ends at %v: %s", end, notes)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if end, notes := s.notAfter(), s.Notes("tls"); !end.Equal(epoch.Add(30*time.Minute)) || notes != nil {
			t.Errorf("in its time the certificate in use ends at %v: %s", end, notes)
		}
	})
}

// TestTheClientsFormerCertificateStays while its files do not fit, or cannot be read.
func TestTheClientsFormerCertificateStays(t *testing.T) {
	ca := certstest.New(t)
	own := ca.Issue("own")
	c := must.Get(Client(ClientOptions{Enabled: true, CertFile: own.CertFile, KeyFile: own.KeyFile}))(t)
	shows := func(serial int64) {
		t.Helper()
		if pair, err := c.GetClientCertificate(nil); err != nil || pair.Leaf.SerialNumber.Int64() != serial {
			t.Errorf("%v, %v; want certificate %d", pair, err, serial)
		}
	}
	renewed := ca.Issue("renewed")
	install(t, own.CertFile, renewed.CertFile)
	shows(own.Serial)
	install(t, own.KeyFile, renewed.KeyFile)
	shows(renewed.Serial)
	must.Do(t, os.Remove(own.KeyFile))
	shows(renewed.Serial)
}

func TestClientsMustShowACertificate(t *testing.T) {
	ca, other := certstest.New(t), certstest.New(t)
	server := ca.Issue("server")
	s := must.Get(New(Options{CertFile: server.CertFile, KeyFile: server.KeyFile, ClientCAFile: ca.CAFile}, nil))(t)
	pair := func(a *certstest.Authority) []tls.Certificate {
		client := a.Issue("client")
		p := must.Get(tls.LoadX509KeyPair(client.CertFile, client.KeyFile))(t)
		return []tls.Certificate{p}
	}
	for name, tt := range map[string]struct {
		certs []tls.Certificate
		ok    bool
	}{"ours": {pair(ca), true}, "none": {nil, false}, "a stranger's": {pair(other), false}} {
		_, err := handshake(s.Server("h2"), &tls.Config{RootCAs: ca.Pool, ServerName: "localhost", Certificates: tt.certs})
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSelfSignedIsRenewedAtHalfItsLife(t *testing.T) {
	s := must.Get(New(Options{SelfSigned: true}, nil))(t)
	must.Get(handshake(s.Server("h2"), &tls.Config{InsecureSkipVerify: true}))(t)
	if _, err := handshake(s.Server("h2"), &tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("somebody vouched for it")
	}
	start := time.Now()
	for _, tt := range []struct {
		after time.Duration
		want  bool
	}{{selfSignedLife/2 - time.Hour, false}, {selfSignedLife/2 + time.Hour, true}, {selfSignedLife/2 + 2*time.Hour, false}} {
		s.now = func() time.Time { return start.Add(tt.after) }
		if got, err := s.refresh(); err != nil || got != tt.want {
			t.Errorf("after %v: renewed %v, %v", tt.after, got, err)
		}
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for want, o := range map[string]Options{
		"self_signed: true excludes": {SelfSigned: true, CertFile: "x", KeyFile: "y"},
		"key_file: is missing":       {CertFile: "x"},
		"cert_file: is missing":      {KeyFile: "x"},
		"client_ca_file: client":     {ClientCAFile: "x"},
		"certs: no TLS":              {},
		"key_file: open /nowhere":    {CertFile: "/nowhere", KeyFile: "/nowhere"},
	} {
		if _, err := New(o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// TestCredentialsAreRenewed: a gRPC client takes its authorities from their file at each connection, and
// the first ones while it cannot be used.
func TestCredentialsAreRenewed(t *testing.T) {
	first, second := certstest.New(t), certstest.New(t)
	file := filepath.Join(t.TempDir(), "ca.pem")
	install(t, file, first.CAFile)
	creds := must.Get(ClientCredentials(ClientOptions{Enabled: true, CAFile: file}))(t).Clone()
	connects := func(to *certstest.Authority) bool {
		own := to.Issue("server")
		pair := must.Get(tls.LoadX509KeyPair(own.CertFile, own.KeyFile))(t)
		lis := must.Get(tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2"}}))(t)
		defer lis.Close()
		go func() {
			if conn, err := lis.Accept(); err == nil {
				_ = conn.(*tls.Conn).Handshake()
				conn.Close()
			}
		}()
		conn := must.Get(net.Dial("tcp", lis.Addr().String()))(t)
		defer conn.Close()
		_, _, err := creds.ClientHandshake(t.Context(), "localhost", conn)
		return err == nil
	}
	for _, step := range []struct {
		what          string
		then          func()
		first, second bool
	}{
		{"as it was", func() {}, true, false},
		{"of another authority", func() { install(t, file, second.CAFile) }, false, true},
		{"half written", func() { write(t, file, "-----BEGIN") }, true, false},
		{"gone", func() { must.Do(t, os.Remove(file)) }, true, false},
	} {
		step.then()
		if a, b := connects(first), connects(second); a != step.first || b != step.second {
			t.Errorf("the file is %s: servers of the first authority %v, of the second %v; want %v, %v", step.what, a, b, step.first, step.second)
		}
	}
}
