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
)

// dependencies returns the fields that cannot take effect because of another
// field, of this section or another. A default value is no problem.
func (c Config) dependencies() []error {
	var errs []error
	refuse := func(useless bool, field, format string, args ...any) {
		if useless {
			errs = append(errs, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
		}
	}
	f := c.Filter
	refuse(f.ReadyNeedsReplica && !f.Picker, "filter.ready_needs_replica", "is set, but filter.picker is not")
	refuse(c.XDS.Listen == "" && c.XDS.TLS != certs.Options{}, "xds.tls", "is given, but xds.listen is empty")
	refuse(c.IndexService.Listen == "" && c.IndexService.TLS != certs.Options{}, "index_service.tls", "is given, but index_service.listen is empty")
	refuse(c.IndexService.Listen == "" && c.IndexService.TokenFile != "" && len(c.WarmUp.Peers) == 0, "index_service.token_file", "is given, but index_service.listen is empty")
	refuse(len(c.WarmUp.Peers) == 0 && c.WarmUp.TLS.Enabled, "warm_up.tls", "is given, but warm_up.peers is empty")
	for i, peer := range c.WarmUp.Peers {
		refuse(c.IndexService.TokenFile != "" && !c.WarmUp.TLS.Enabled && !listen.Loopback(peer), fmt.Sprintf("warm_up.peers[%d]", i),
			"the token of index_service would be sent to %s without encryption: enable warm_up.tls", peer)
	}
	refuse(!c.Kubernetes.Enabled() && !reflect.ValueOf(c.Kubernetes.Replica).IsZero(), "kubernetes.replica", "is given, but kubernetes.pool is empty")
	if p := c.PrefillDecode; p.Mode == filter.TransportPull {
		refuse(c.Envoy.Mode != envoy.Buffered, "prefill_decode.mode", "is pull, which needs envoy.mode BUFFERED: only there a failure of the router costs no request")
		refuse(p.MaxWait >= c.Envoy.IdleTimeout, "prefill_decode.max_wait", "is %v, but envoy.idle_timeout ends requests after %v", p.MaxWait, c.Envoy.IdleTimeout)
	}
	errs = append(errs, c.holdable())
	wait := c.envoyOptions().MessageTimeout
	refuse(f.TokenBudget > wait, "filter.token_budget", "is %v, but envoy.message_timeout ends the wait for a decision after %v", f.TokenBudget, wait)
	refuse(f.MaxBody > maxMessage && c.Envoy.Mode != envoy.FullDuplex, "filter.max_body", "is %d, but a message of Envoy is read up to %d bytes", f.MaxBody, maxMessage)
	const elsewhere = `xds: {listen: ""} is for an Envoy that gets its configuration elsewhere`
	if e := c.Envoy; len(e.ExtProc) == 0 && c.XDS.Enabled() {
		refuse(e.TLS.Enabled && !c.TLS.Enabled() && !c.XDS.TLS.Enabled(), "envoy.tls.enabled", "is true, but tls is not given: Envoy would reach no router")
		refuse(c.TLS.ClientCAFile != "" && e.TLS.CertFile == "", "envoy.tls.cert_file",
			"is missing, but tls.client_ca_file requires a certificate of Envoy; %s", elsewhere)
	}
	refuse(c.XDS.Listen != "" && c.XDS.TLS.ClientCAFile != "" && c.Envoy.TLS.CertFile == "", "envoy.tls.cert_file",
		"is missing, but xds.tls.client_ca_file requires a certificate of Envoy; %s", elsewhere)
	if err := c.unknownAuthorities(); err != nil && c.XDS.Enabled() {
		errs = append(errs, fmt.Errorf("%w; %s", err, elsewhere))
	}
	own := append([][2]string{{"envoy.listen", c.Envoy.Listen}, {"envoy.admin", c.Envoy.Admin}}, c.ports()...)
	for i, r := range c.Fleet.Replicas {
		for _, own := range own {
			refuse(dials(r.Address, own[1]), fmt.Sprintf("fleet.replicas[%d].address", i), "is %s, %q, and no vLLM: requests would come back", own[0], own[1])
		}
	}
	refuse(c.onlyPrefill(), "fleet.replicas", "all have the role prefill, so that none answers a request")
	c.eachReplica(func(at string, r fleet.ReplicaOptions) {
		refuse(r.Tenant != "" && f.TenantHeader == "", at+".tenant", "is %q, but filter.tenant_header is empty, so that no request has a tenant", r.Tenant)
		refuse(r.Sidecar && c.IndexService.Listen == "", at+".sidecar", "is set, but index_service.listen is empty, so that no sidecar can report")
	})
	return append(errs, c.collisions()...)
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

// ports are the router's own addresses, by their settings.
func (c Config) ports() [][2]string {
	return [][2]string{
		{"listen", c.Listen}, {"health.listen", c.Health.Listen}, {"admin.listen", c.Admin.Listen}, {"index_service.listen", c.IndexService.Listen},
		{"xds.listen", c.XDS.Listen}, {"peers.listen", c.Peers.Address()},
	}
}

// collisions refuses ports that two of the router's own addresses share, and those of an Envoy
// that reaches it over the loopback. Port 0 never collides.
func (c Config) collisions() (errs []error) {
	own := c.ports()
	if e, usual := c.Envoy, defaultEnvoy(); len(e.ExtProc) == 0 && listen.Loopback(c.Listen) {
		if e.Listen != usual.Listen {
			own = append(own, [2]string{"envoy.listen", e.Listen})
		}
		if e.Listen != usual.Listen || e.Admin != usual.Admin {
			own = append(own, [2]string{"envoy.admin", e.Admin})
		}
	}
	for i, second := range own {
		for _, first := range own[:i] {
			switch {
			case !overlap(first[1], second[1]):
			case first[1] == second[1]:
				errs = append(errs, fmt.Errorf("%s and %s: both are %q", first[0], second[0], first[1]))
			default:
				errs = append(errs, fmt.Errorf("%s and %s: %q and %q share a port", first[0], second[0], first[1], second[1]))
			}
		}
	}
	return errs
}

// dials reports whether a replica's address is one at which this machine listens itself.
func dials(replica, own string) bool {
	at, err := netip.ParseAddrPort(replica)
	host, port, err2 := net.SplitHostPort(own)
	if err != nil || err2 != nil || port != fmt.Sprint(at.Port()) {
		return false
	}
	ip, err := netip.ParseAddr(strings.Replace(host, "localhost", "127.0.0.1", 1))
	to := at.Addr().Unmap()
	return err == nil && ip.Unmap() == to || (host == "" || err == nil && ip.IsUnspecified()) && to.IsLoopback()
}

// overlap reports whether only one of two addresses can be listened at.
func overlap(a, b string) bool {
	host, port, err := net.SplitHostPort(a)
	other, same, err2 := net.SplitHostPort(b)
	if err != nil || err2 != nil || port != same || port == "0" {
		return false
	}
	every := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.IsUnspecified()
	}
	plain := strings.NewReplacer("localhost", "127.0.0.1") // the address that Go takes for the name
	return plain.Replace(host) == plain.Replace(other) || every(host) || every(other)
}
