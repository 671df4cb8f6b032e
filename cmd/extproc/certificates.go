package main

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// tlsNotes names the sections whose TLS files are refused, and the ports whose certificate has ended.
func (r *router) tlsNotes() []string {
	return slices.Concat(r.envoys.certs.Notes("tls"), r.replicas.service.certs.Notes("index_service.tls"), r.xds.Certificates().Notes("xds.tls"), r.reloads.unreadTLS())
}

// refusedClients names clients that could not connect.
func (r *router) refusedClients() []string {
	envoys := slices.Concat(r.envoys.certs.Refused("tls"), r.xds.Certificates().Refused("xds.tls"))
	for i := range envoys {
		envoys[i] += "; an Envoy reads its certificate and authorities for the router only when it starts"
	}
	return append(envoys, r.replicas.service.certs.Refused("index_service.tls")...)
}

// refusedTLS counts tlsNotes.
func (r *router) refusedTLS() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "warmroute_tls_failing", Help: "Sections whose TLS files are refused or whose certificate has ended; the notes of /readyz name them.",
	}, func() float64 { return float64(len(r.tlsNotes())) })
}
