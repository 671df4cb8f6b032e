package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"os"
	"time"
)

// selfSignedLife is so long that no clock skew matters; half of it passes
// before the next one is made.
const selfSignedLife = 365 * 24 * time.Hour

// selfSigned makes a certificate that no authority signs, for the host's name
// and "localhost". Every Envoy build accepts ECDSA P-256.
func selfSigned(now time.Time) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certs: make a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // at most 20 bytes, RFC 5280 4.1.2.2
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certs: make a serial number: %w", err)
	}
	names := []string{"localhost"}
	if host, err := os.Hostname(); err == nil && host != names[0] {
		names = append(names, host)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "warmroute"},
		DNSNames:     names,
		NotBefore:    now.Add(-time.Hour), // peers' clocks differ
		NotAfter:     now.Add(selfSignedLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certs: sign: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certs: parse the signed certificate: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
