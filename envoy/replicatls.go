package envoy

import (
	"net/netip"
	"strings"
)

// ReplicaTLS describes how Envoy connects to replicas, as the router does. The files are
// paths on Envoy's machine.
type ReplicaTLS struct {
	Enabled    bool
	CA         string // PEM text of the authorities for the replicas' certificates; "" = any certificate is taken
	ServerName string // the name or IP address in the replicas' certificates; "" = any IP address
	CertFile   string // PEM file of Envoy's own certificate, "" = none
	KeyFile    string // PEM file of its key
	Renewed    string // changes when CertFile does, so that Envoy reads it again
}

// certificateName returns the name or address in a certificate as Envoy writes it.
func certificateName(server string) string {
	if ip, err := netip.ParseAddr(server); err == nil {
		return ip.String()
	}
	return strings.TrimSuffix(strings.ToLower(server), ".")
}

// sni returns the name for the handshake: an IP address is none.
func sni(server string) string {
	if isIP(server) {
		return ""
	}
	return certificateName(server)
}
