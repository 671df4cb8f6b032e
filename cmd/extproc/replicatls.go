package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"warmroute/envoy"
)

// renewEvery is how often the files of `fleet.tls` are read for Envoys.
const renewEvery = time.Second

// unknownAuthorities says that Envoy, unlike this process, has no list of authorities for the
// replicas' certificates.
func (c Config) unknownAuthorities() error {
	if h := c.Fleet.HTTP.TLS; !h.Enabled || h.CAFile != "" || h.InsecureSkipVerify {
		return nil
	}
	return errors.New(`fleet.tls.ca_file: is missing, and no configuration for Envoy is made without it: Envoy knows no authorities of the system, so name a file with them, such as /etc/ssl/certs/ca-certificates.crt`)
}

// withReplicaTLS adds to o how replicas are contacted. The authorities are text, which every
// Envoy has then; the certificate is named by its files, so that the key stays where it is.
func (c Config) withReplicaTLS(o envoy.Options) (envoy.Options, error) {
	h := c.Fleet.HTTP.TLS
	if !h.Enabled {
		return o, nil
	}
	if err := c.unknownAuthorities(); err != nil {
		return o, err
	}
	t := envoy.ReplicaTLS{Enabled: true, ServerName: h.ServerName}
	if !h.InsecureSkipVerify {
		text, err := os.ReadFile(h.CAFile)
		if err != nil {
			return o, fmt.Errorf("fleet.tls.ca_file: %w", err)
		}
		if t.CA = certificates(text); t.CA == "" {
			return o, fmt.Errorf("fleet.tls.ca_file: %q holds no PEM certificate", h.CAFile)
		}
	}
	if h.CertFile != "" {
		text, err := os.ReadFile(h.CertFile)
		if err == nil {
			t.CertFile, err = filepath.Abs(h.CertFile)
		}
		if err == nil {
			t.KeyFile, err = filepath.Abs(h.KeyFile)
		}
		if err != nil {
			return o, fmt.Errorf("fleet.tls.cert_file: %w", err)
		}
		sum := sha256.Sum256(text)
		t.Renewed = hex.EncodeToString(sum[:8])
	}
	o.ReplicaTLS = t
	return o, nil
}

// certificates returns the certificates of a PEM file, without anything else in it.
func certificates(text []byte) string {
	var out strings.Builder
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out.String()
		}
		if block.Type == "CERTIFICATE" {
			out.Write(pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes}))
		}
	}
}

// renewReplicaTLS sends Envoys renewed certificates until ctx ends.
func (r *router) renewReplicaTLS(ctx context.Context) error {
	return every(ctx, renewEvery, func(time.Time) {
		if err := r.reloads.publish(r.xds); err != nil {
			r.log.Warn("certificates for replicas are not read again, Envoys keep the last", "error", err)
		}
	})
}
