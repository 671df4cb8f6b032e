package main

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// tlsNotes names the sections whose TLS files are refused, and the ports whose certificate has ended.
func (r *router) tlsNotes() []string {
	return slices.Concat(r.envoys.certs.Notes("tls"), r.replicas.service.certs.Notes("index_service.tls"), r.xds.CertificateNotes(), r.reloads.unreadTLS())
}

// refusedTLS counts tlsNotes.
func (r *router) refusedTLS() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "warmroute_tls_failing", Help: "Sections whose TLS files are refused or whose certificate has ended; the notes of /readyz name them.",
	}, func() float64 { return float64(len(r.tlsNotes())) })
}
