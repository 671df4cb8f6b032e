package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/internal/certs/certstest"
	"warmroute/internal/config"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestRenewedCertificates: every port shows a renewed certificate. Files that do not fit or cannot be
// read are named and counted until they can be used, while the previous ones stay. A client that cannot
// connect is named, too.
func TestRenewedCertificates(t *testing.T) {
	t.Parallel()
	ca, at := certstest.New(t), testenv.Addresses(t, 4)
	own := ca.Issue("router")
	files := fmt.Sprintf("tls: {cert_file: %s, key_file: %s}", own.CertFile, own.KeyFile)
	file := &config.File[Config]{Path: filepath.Join(t.TempDir(), "warmroute.yaml"), Defaults: defaultConfig}
	r, _ := routerOf(t, file, fmt.Sprintf("listen: %s\n%s\nindex_service: {listen: %q, %s}\nxds: {listen: %q, %s}\nadmin: {listen: %q}\nfleet: {replicas: [{address: \"127.0.0.1:1\"}], tls: {enabled: true, ca_file: %s, cert_file: %s, key_file: %s}}\n",
		at[0], files, at[1], files, at[2], files, at[3], ca.CAFile, own.CertFile, own.KeyFile))
	testenv.Run(t, func(ctx context.Context) error { return r.run(ctx, file) })
	noted := func() string { _, ready := get(t, "http://"+at[3]+"/readyz"); return ready }
	until(t, "the router is ready", func() bool { return strings.HasPrefix(noted(), "ready") })
	shown := func(serial int64) bool {
		for _, addr := range at[:3] {
			conn := must.Get(tls.Dial("tcp", addr, &tls.Config{RootCAs: ca.Pool, NextProtos: []string{"h2"}}))(t)
			conn.Close()
			if conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64() != serial {
				return false
			}
		}
		return true
	}
	replace := func(from, to string) {
		must.Do(t, os.Rename(from, to))
	}
	replace(ca.Issue("other").KeyFile, own.KeyFile)
	for _, section := range []string{"tls", "index_service.tls", "xds.tls", "fleet.tls"} {
		until(t, section+" is noted", func() bool { return strings.Contains(noted(), "\nnote: "+section+".cert_file and key_file: ") })
	}
	replace(ca.CAFile, ca.CAFile+".away")
	until(t, "the authorities are noted", func() bool { return strings.Contains(noted(), "\nnote: fleet.tls.ca_file: ") })
	if _, page := get(t, "http://"+at[3]+"/metrics"); !strings.Contains(page, "warmroute_tls_failing 4\n") || !shown(own.Serial) {
		t.Errorf("the previous certificate stays: %v; %s", shown(own.Serial), page)
	}
	replace(ca.CAFile+".away", ca.CAFile)
	renewed := ca.Issue("router")
	until(t, "every port shows the renewed certificate", func() bool { return shown(renewed.Serial) })
	until(t, "no note is left", func() bool { return !strings.Contains(noted(), "tls.") })
	for i, section := range []string{"tls", "index_service.tls", "xds.tls"} {
		conn := must.Get(net.Dial("tcp", at[i]))(t)
		_ = must.Get(conn.Write([]byte("without TLS")))(t)
		until(t, "a client without TLS is noted", func() bool {
			_, note, named := strings.Cut(noted(), "\nnote: "+section+": 127.0.0.1 could not connect: ")
			note, _, _ = strings.Cut(note, "\n")
			return named && strings.Contains(note, "an Envoy reads") != (section == "index_service.tls")
		})
		conn.Close()
	}
}
