package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"warmroute/internal/problems"
)

// ClientOptions is a client's TLS. The zero value is no TLS.
type ClientOptions struct {
	Enabled    bool   `yaml:"enabled"`               // connect with TLS
	CAFile     string `yaml:"ca_file,omitempty"`     // PEM file of the server's authorities; "" = the system's
	CertFile   string `yaml:"cert_file,omitempty"`   // PEM file of the client's own certificate
	KeyFile    string `yaml:"key_file,omitempty"`    // PEM file of its key
	ServerName string `yaml:"server_name,omitempty"` // the name in the server's certificate; "" = the dialed host

	InsecureSkipVerify bool `yaml:"insecure_skip_verify,omitempty"` // take any certificate
}

// Validate returns every problem of o, one sentence each, with at before the field's name.
func (o ClientOptions) Validate(at string) error {
	var p problems.List
	p.Refuse(!o.Enabled && o != (ClientOptions{}), at+"enabled", "is false, but files or a name are given")
	pair(&p, at, o.CertFile, o.KeyFile)
	p.Refuse(o.InsecureSkipVerify && o.CAFile != "", at+"ca_file", "is given, but insecure_skip_verify takes any certificate")
	return p.Err()
}

// Sum returns a hash of o and of what its files hold, to tell whether they have changed.
func (o ClientOptions) Sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	fmt.Fprintf(h, "%+v", o)
	for _, file := range []string{o.CAFile, o.CertFile, o.KeyFile} {
		text, err := os.ReadFile(file)
		fmt.Fprint(h, len(text), err)
		h.Write(text)
	}
	h.Sum(sum[:0])
	return sum
}

// Client returns the configuration for a client. The authorities are read now;
// the client's certificate at every handshake, so that a renewed one is used; the previous one stays
// while its files do not fit.
func Client(o ClientOptions) (*tls.Config, error) {
	if err := o.Validate(""); err != nil {
		return nil, err
	}
	if !o.Enabled {
		return nil, errors.New("certs: no TLS is configured")
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName, InsecureSkipVerify: o.InsecureSkipVerify}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca_file: %s holds no certificate", o.CAFile)
		}
	}
	if o.CertFile != "" {
		pair := func() (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("cert_file and key_file: %s and %s: %w", o.CertFile, o.KeyFile, err)
			}
			return &pair, nil
		}
		first, err := pair()
		if err != nil {
			return nil, err
		}
		var used atomic.Pointer[tls.Certificate]
		used.Store(first)
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if renewed, err := pair(); err == nil {
				used.Store(renewed)
			}
			return used.Load(), nil
		}
	}
	return c, nil
}
