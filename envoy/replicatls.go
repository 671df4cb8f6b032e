package envoy

import "net/netip"

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

// SNI returns the name for the handshake: an IP address is none.
func (t ReplicaTLS) SNI() string {
	if _, err := netip.ParseAddr(t.ServerName); err == nil {
		return ""
	}
	return t.ServerName
}
