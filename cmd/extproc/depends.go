package main

import (
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"warmroute/envoy"
	"warmroute/filter"
	"warmroute/internal/certs"
	"warmroute/internal/fleet"
	"warmroute/internal/listen"
	"warmroute/internal/problems"
)

// dependencies returns the fields that cannot take effect because of another
// field, of this section or another. A default value is no problem.
func (c Config) dependencies() error {
	var p problems.List
	f := c.Filter
	p.Refuse(f.ReadyNeedsReplica && !f.Picker, "filter.ready_needs_replica", "is set, but filter.picker is not")
	p.Refuse(c.XDS.Listen == "" && c.XDS.TLS != certs.Options{}, "xds.tls", "is given, but xds.listen is empty")
	p.Refuse(c.IndexService.Listen == "" && c.IndexService.TLS != certs.Options{}, "index_service.tls", "is given, but index_service.listen is empty")
	p.Refuse(c.IndexService.Listen == "" && c.IndexService.TokenFile != "" && len(c.WarmUp.Peers) == 0, "index_service.token_file", "is given, but index_service.listen is empty")
	p.Refuse(len(c.WarmUp.Peers) == 0 && c.WarmUp.TLS.Enabled, "warm_up.tls", "is given, but warm_up.peers is empty")
	for i, peer := range c.WarmUp.Peers {
		p.Refuse(c.IndexService.TokenFile != "" && !c.WarmUp.TLS.Enabled && !listen.Loopback(peer), fmt.Sprintf("warm_up.peers[%d]", i),
			"the token of index_service would be sent to %s without encryption: enable warm_up.tls", peer)
	}
	p.Refuse(!c.Kubernetes.Enabled() && !reflect.ValueOf(c.Kubernetes.Replica).IsZero(), "kubernetes.replica", "is given, but kubernetes.pool is empty")
	if pd := c.PrefillDecode; pd.Mode == filter.TransportPull {
		p.Refuse(c.Envoy.Mode != envoy.Buffered, "prefill_decode.mode", "is pull, which needs envoy.mode BUFFERED: only there a failure of the router costs no request")
		p.Refuse(pd.MaxWait >= c.Envoy.IdleTimeout, "prefill_decode.max_wait", "is %v, but envoy.idle_timeout ends requests after %v", pd.MaxWait, c.Envoy.IdleTimeout)
	}
	p.Add("", c.holdable())
	wait := c.envoyOptions().MessageTimeout
	p.Refuse(f.TokenBudget > wait, "filter.token_budget", "is %v, but envoy.message_timeout ends the wait for a decision after %v", f.TokenBudget, wait)
	p.Refuse(f.MaxBody > maxMessage && c.Envoy.Mode != envoy.FullDuplex, "filter.max_body", "is %d, but a message of Envoy is read up to %d bytes", f.MaxBody, maxMessage)
	const elsewhere = `xds: {listen: ""} is for an Envoy that gets its configuration elsewhere`
	if e := c.Envoy; len(e.ExtProc) == 0 && c.XDS.Enabled() {
		p.Refuse(e.TLS.Enabled && !c.TLS.Enabled() && !c.XDS.TLS.Enabled(), "envoy.tls.enabled", "is true, but tls is not given: Envoy would reach no router")
		p.Refuse(c.TLS.ClientCAFile != "" && e.TLS.CertFile == "", "envoy.tls.cert_file",
			"is missing, but tls.client_ca_file requires a certificate of Envoy; %s", elsewhere)
	}
	p.Refuse(c.XDS.Listen != "" && c.XDS.TLS.ClientCAFile != "" && c.Envoy.TLS.CertFile == "", "envoy.tls.cert_file",
		"is missing, but xds.tls.client_ca_file requires a certificate of Envoy; %s", elsewhere)
	if err := c.unknownAuthorities(); err != nil && c.XDS.Enabled() {
		p.Add("", fmt.Errorf("%w; %s", err, elsewhere))
	}
	own := append([]port{{"envoy.listen", c.Envoy.Listen, false}, {"envoy.admin", c.Envoy.Admin, false}}, c.ports()...)
	for i, r := range c.Fleet.Replicas {
		for _, own := range own {
			p.Refuse(dials(r.Address, own.address), fmt.Sprintf("fleet.replicas[%d].address", i), "is %s, %q, and no vLLM: requests would come back", own.field, own.address)
		}
	}
	p.Refuse(c.onlyPrefill(), "fleet.replicas", "all have the role prefill, so that none answers a request")
	c.eachReplica(func(at string, r fleet.ReplicaOptions) {
		p.Refuse(r.Tenant != "" && f.TenantHeader == "", at+".tenant", "is %q, but filter.tenant_header is empty, so that no request has a tenant", r.Tenant)
		p.Refuse(r.Sidecar && c.IndexService.Listen == "", at+".sidecar", "is set, but index_service.listen is empty, so that no sidecar can report")
	})
	p.Add("", c.collisions())
	return p.Err()
}

// onlyPrefill reports whether no replica can ever answer a request. A replica that is found
// may have a role of its own.
func (c Config) onlyPrefill() bool {
	answers := func(r fleet.ReplicaOptions) bool { return r.Role != fleet.RolePrefill.String() }
	return len(c.Fleet.Replicas) > 0 && !slices.ContainsFunc(c.Fleet.Replicas, answers) && len(c.Fleet.DNS) == 0 && !c.Kubernetes.Enabled()
}

// eachReplica calls f for the settings of all replicas, with their path.
func (c Config) eachReplica(f func(at string, r fleet.ReplicaOptions)) {
	for i, r := range c.Fleet.Replicas {
		f(fmt.Sprintf("fleet.replicas[%d]", i), r)
	}
	for i, d := range c.Fleet.DNS {
		f(fmt.Sprintf("fleet.dns[%d].replica", i), d.Replica)
	}
	f("kubernetes.replica", c.Kubernetes.Replica)
}

// port is an address of the router's own, by its setting.
type port struct {
	field, address string
	needed         bool // it cannot be left out
}

// wrong returns the reason why nothing can listen there.
func (p port) wrong() error {
	if p.address == "" && !p.needed {
		return nil
	}
	return listen.HostPort(p.address)
}

// ports are the router's own addresses.
func (c Config) ports() []port {
	return []port{
		{"listen", c.Listen, true}, {"health.listen", c.Health.Listen, false}, {"admin.listen", c.Admin.Listen, true},
		{"index_service.listen", c.IndexService.Listen, false}, {"xds.listen", c.XDS.Listen, false}, {"peers.listen", c.Peers.Address(), false},
	}
}

// collisions refuses ports that two of the router's own addresses share, and those of an Envoy
// that reaches it over the loopback. Port 0 never collides.
func (c Config) collisions() error {
	var p problems.List
	own := c.ports()
	if e, usual := c.Envoy, defaultEnvoy(); len(e.ExtProc) == 0 && listen.Loopback(c.Listen) {
		if e.Listen != usual.Listen {
			own = append(own, port{"envoy.listen", e.Listen, false})
		}
		if e.Listen != usual.Listen || e.Admin != usual.Admin {
			own = append(own, port{"envoy.admin", e.Admin, false})
		}
	}
	for i, second := range own {
		for _, first := range own[:i] {
			both := first.field + " and " + second.field
			switch {
			case !overlap(first.address, second.address):
			case first.address == second.address:
				p.Refuse(true, both, "both are %q", first.address)
			default:
				p.Refuse(true, both, "%q and %q share a port", first.address, second.address)
			}
		}
	}
	return p.Err()
}

// dials reports whether a replica's address is one at which this machine listens itself.
func dials(replica, own string) bool {
	at, err := netip.ParseAddrPort(replica)
	host, port, every := listensAt(own)
	if err != nil || port != fmt.Sprint(at.Port()) {
		return false
	}
	ip, _ := netip.ParseAddr(host) // of a name none, which equals no replica's
	return ip.Unmap() == at.Addr().Unmap() || every && at.Addr().Unmap().IsLoopback()
}

// overlap reports whether only one of two addresses can be listened at.
func overlap(a, b string) bool {
	host, port, every := listensAt(a)
	other, same, everywhere := listensAt(b)
	return port == same && port != "" && port != "0" && (host == other || every || everywhere)
}

// listensAt splits an address of the router's own; every says that it is at every address of the machine.
// All is empty where it is no address.
func listensAt(addr string) (host, port string, every bool) {
	host, port, err := net.SplitHostPort(addr)
	host = strings.Replace(host, "localhost", "127.0.0.1", 1) // the address that Go takes for the name
	ip, _ := netip.ParseAddr(host)
	return host, port, err == nil && (host == "" || ip.IsUnspecified())
}
