package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"warmroute/internal/problems"
)

// ReadEvery is how often the files are read: certificates are renewed days before they end,
// and a replaced one must end now.
const ReadEvery = time.Second

// Options is the origin of a server's certificate. The zero value is no TLS.
type Options struct {
	CertFile     string `yaml:"cert_file,omitempty"`      // PEM file of the certificate, the chain with the server's own first
	KeyFile      string `yaml:"key_file,omitempty"`       // PEM file of its key
	SelfSigned   bool   `yaml:"self_signed"`              // make a certificate, for gateways that skip verification
	ClientCAFile string `yaml:"client_ca_file,omitempty"` // PEM file of the authorities for clients' certificates; "" = none needed
}

// Enabled reports whether o enables TLS.
func (o Options) Enabled() bool { return o.CertFile != "" || o.KeyFile != "" || o.SelfSigned }

// Validate returns every problem of o, one sentence each.
func (o Options) Validate() error {
	var p problems.List
	p.Refuse(o.SelfSigned && (o.CertFile != "" || o.KeyFile != ""), "self_signed", "true excludes cert_file and key_file")
	if !o.SelfSigned {
		pair(&p, "", o.CertFile, o.KeyFile)
	}
	p.Refuse(o.ClientCAFile != "" && !o.Enabled(), "client_ca_file", "client certificates need TLS: set cert_file and key_file, or self_signed")
	return p.Err()
}

// pair refuses a certificate without a key, and a key without a certificate.
func pair(p *problems.List, at, certFile, keyFile string) {
	p.Refuse(certFile == "" && keyFile != "", at+"cert_file", "is missing beside key_file")
	p.Refuse(certFile != "" && keyFile == "", at+"key_file", "is missing beside cert_file")
}

// Source is a server's current TLS configuration.
type Source struct {
	o       Options
	log     *slog.Logger
	now     func() time.Time
	current atomic.Pointer[tls.Config]
	read    [3][]byte               // contents of the files: certificate, key, client authority
	renewAt time.Time               // of a self-signed certificate
	last    atomic.Pointer[refusal] // nil: no handshake has failed
	failing atomic.Pointer[string]  // the text of Notes; nil: files and certificate are in order
}

// New reads the files, or makes a self-signed certificate. It fails if they cannot be
// used, with an error that names the field; Run keeps the previous certificate in this
// case.
func New(o Options, log *slog.Logger) (*Source, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if !o.Enabled() {
		return nil, errors.New("certs: no TLS is configured")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Source{o: o, log: log, now: time.Now}
	if _, err := s.refresh(); err != nil {
		return nil, err
	}
	return s, nil
}

// Server returns the configuration of a server with these protocols (ALPN), "h2" for
// gRPC. Every handshake uses the newest certificate.
func (s *Source) Server(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.current.Load().Clone()
			c.NextProtos = protocols
			return c, nil
		},
	}
}

// Run keeps the certificate fresh until ctx ends.
func (s *Source) Run(ctx context.Context) error {
	if s == nil {
		return nil
	}
	tick := time.NewTicker(ReadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		changed, err := s.refresh()
		if changed {
			s.log.Info("TLS certificate renewed", "not_after", s.notAfter())
		}
		s.judge(err)
	}
}

// judge keeps what is wrong after a refresh that returned err, and logs it once.
func (s *Source) judge(err error) {
	if err != nil {
		err = fmt.Errorf("%w: the previous certificate stays", err)
	}
	if end := s.notAfter(); s.now().After(end) {
		err = errors.Join(err, fmt.Errorf("cert_file: the certificate in use has ended at %v: clients that verify it do not connect", end))
	}
	if err == nil {
		s.failing.Store(nil)
		return
	}
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if before := s.failing.Swap(&text); before == nil || *before != text {
		s.log.Error("TLS files are refused, or a certificate has ended", "error", text)
	}
}

// Notes says, for people, what is wrong with the files of a section of the configuration, or with
// the certificate in use.
func (s *Source) Notes(section string) []string {
	if s == nil {
		return nil
	}
	if text := s.failing.Load(); text != nil {
		return []string{section + "." + *text}
	}
	return nil
}

func (s *Source) notAfter() time.Time {
	return s.current.Load().Certificates[0].Leaf.NotAfter
}

// refresh reads new files, or makes a new self-signed certificate when half of the
// old one's life is over.
func (s *Source) refresh() (changed bool, err error) {
	read := s.read
	var missing []error
	for i, f := range [][2]string{{"cert_file", s.o.CertFile}, {"key_file", s.o.KeyFile}, {"client_ca_file", s.o.ClientCAFile}} {
		if f[1] == "" {
			continue
		}
		if read[i], err = os.ReadFile(f[1]); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", f[0], err))
		}
	}
	if len(missing) > 0 {
		return false, errors.Join(missing...)
	}
	same := slices.EqualFunc(read[:], s.read[:], bytes.Equal)
	if s.current.Load() != nil && same && (!s.o.SelfSigned || s.now().Before(s.renewAt)) {
		return false, nil
	}
	next := &tls.Config{MinVersion: tls.VersionTLS12}
	pair, err := s.pair(read)
	if err != nil {
		return false, err
	}
	if now := s.now(); s.current.Load() != nil && now.Before(s.notAfter()) {
		if end := pair.Leaf.NotAfter; now.After(end) {
			return false, fmt.Errorf("cert_file: %s has ended at %v", s.o.CertFile, end)
		}
		if begin := pair.Leaf.NotBefore; now.Before(begin) {
			return false, fmt.Errorf("cert_file: %s is not valid before %v", s.o.CertFile, begin)
		}
	}
	next.Certificates = []tls.Certificate{pair}
	if s.o.ClientCAFile != "" {
		next.ClientCAs, next.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !next.ClientCAs.AppendCertsFromPEM(read[2]) {
			return false, fmt.Errorf("client_ca_file: %s holds no certificate", s.o.ClientCAFile)
		}
	}
	s.current.Store(next)
	s.read = read
	return true, nil
}

func (s *Source) pair(read [3][]byte) (tls.Certificate, error) {
	if s.o.SelfSigned {
		pair, err := selfSigned(s.now())
		s.renewAt = s.now().Add(selfSignedLife / 2)
		return pair, err
	}
	pair, err := tls.X509KeyPair(read[0], read[1])
	if err != nil {
		return pair, fmt.Errorf("cert_file and key_file: %s and %s: %w", s.o.CertFile, s.o.KeyFile, err)
	}
	return pair, nil
}
