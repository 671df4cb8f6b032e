package main

import (
	"fmt"
	"net"
	"reflect"

	"warmroute/internal/certs"
	"warmroute/internal/fleet"
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
	refuse(f.AlwaysPick && f.Ranked > 1 && f.Ranked != defaultConfig().Filter.Ranked, "filter.ranked", "is %d, but filter.always_pick names one replica", f.Ranked)
	refuse(c.XDS.Listen == "" && c.XDS.TLS != certs.Options{}, "xds.tls", "is given, but xds.listen is empty")
	refuse(c.IndexService.Listen == "" && c.IndexService.TLS != certs.Options{}, "index_service.tls", "is given, but index_service.listen is empty")
	refuse(c.IndexService.Listen == "" && c.IndexService.TokenFile != "", "index_service.token_file", "is given, but index_service.listen is empty")
	refuse(c.Admin.TokenFile != "" && c.Admin.TokenEnv != "", "admin.token_env", "and admin.token_file are both given; choose one")
	refuse(len(c.WarmUp.Peers) == 0 && c.WarmUp.Access.TLS.Enabled, "warm_up.tls", "is given, but warm_up.peers is empty")
	refuse(len(c.WarmUp.Peers) == 0 && c.WarmUp.Access.TokenFile != "", "warm_up.token_file", "is given, but warm_up.peers is empty")
	refuse(!c.Kubernetes.Enabled() && !reflect.ValueOf(c.Kubernetes.Replica).IsZero(), "kubernetes.replica", "is given, but kubernetes.pool is empty")
	c.eachReplica(func(at string, r fleet.ReplicaOptions) {
		refuse(r.Tenant != "" && f.TenantHeader == "", at+".tenant", "is %q, but filter.tenant_header is empty, so that no request has a tenant", r.Tenant)
		refuse(r.Sidecar && c.IndexService.Listen == "", at+".sidecar", "is set, but index_service.listen is empty, so that no sidecar can report")
	})
	return append(errs, c.collisions()...)
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

// collisions refuses an address for two of the router's own ports. Port 0 never
// collides.
func (c Config) collisions() (errs []error) {
	taken := map[string]string{}
	for _, own := range [][2]string{
		{"listen", c.Listen}, {"health.listen", c.Health.Listen}, {"admin.listen", c.Admin.Listen}, {"index_service.listen", c.IndexService.Listen},
		{"xds.listen", c.XDS.Listen}, {"peers.listen", c.Peers.Listen},
	} {
		field, addr := own[0], own[1]
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
			continue
		}
		if first, ok := taken[addr]; ok {
			errs = append(errs, fmt.Errorf("%s and %s: both are %q", first, field, addr))
		}
		taken[addr] = field
	}
	return errs
}
