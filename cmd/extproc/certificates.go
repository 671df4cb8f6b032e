package main

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs"
)

// tlsNotes names the sections whose TLS files are refused, and the ports whose certificate has ended.
func (r *router) tlsNotes() []string {
	return slices.Concat(r.servers((*certs.Source).Notes), r.reloads.unreadTLS())
}

// servers returns what of says of the ports' certificates.
func (r *router) servers(of func(s *certs.Source, section string) []string) []string {
	return slices.Concat(of(r.envoys.certs, "tls"), of(r.replicas.service.certs, "index_service.tls"), of(r.xds.Certificates(), "xds.tls"))
}

// refusedClients names clients that could not connect.
func (r *router) refusedClients() []string {
	out := r.servers((*certs.Source).Refused)
	for i := range out {
		if !strings.HasPrefix(out[i], "index_service.") {
			out[i] += "; an Envoy reads its certificate and authorities for the router only when it starts"
		}
	}
	return out
}

// refusedTLS counts tlsNotes.
func (r *router) refusedTLS() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "warmroute_tls_failing", Help: "Sections whose TLS files are refused or whose certificate has ended; the notes of /readyz name them.",
	}, func() float64 { return float64(len(r.tlsNotes())) })
}
