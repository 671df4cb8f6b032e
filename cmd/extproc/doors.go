package main

import (
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"warmroute/internal/listen"
	"warmroute/internal/problems"
)

// door is a port of the router, or of the NATS server that routers share.
type door struct {
	section, field string
	address        string // "" = closed
	guarded        bool   // its clients prove who they are
	proof          string // the field that would guard it
	harm           string // the damage that a client without proof can do
}

// guarded are the sections of doors.
var guarded = []string{"admin", "index_service", "peers", "xds"}

// exposed reports whether other machines reach the port and need no proof.
func (d door) exposed() bool { return d.address != "" && !listen.Loopback(d.address) && !d.guarded }

func (c Config) allDoors() []door {
	p := c.Peers
	all := []door{
		{"admin", "listen", c.Admin.Listen, c.Admin.TokenFile != "",
			"admin.token_file", "change the policy and read decisions"},
		{"index_service", "listen", c.IndexService.Listen, c.IndexService.TokenFile != "" || c.IndexService.TLS.ClientCAFile != "",
			"index_service.token_file or index_service.tls.client_ca_file", "report blocks that no replica has and look prompts up"},
		{"xds", "listen", c.XDS.Listen, c.XDS.TLS.ClientCAFile != "",
			"xds.tls.client_ca_file", "read Envoy's configuration and the replicas' addresses"},
		{"peers", "listen", p.Listen, p.TokenFile != "" || p.TLS.CAFile != "",
			"peers.token_file or peers.tls", "change the load and the policy of all routers"},
	}
	if u, err := url.Parse(p.URL); err == nil && p.URL != "" {
		all = append(all, door{"peers", "url", u.Host, u.User != nil || p.Creds != "" || p.TokenFile != "" || p.TLS.CertFile != "",
			"peers.creds, peers.token_file or peers.tls", "change the load and the policy of all routers"})
	}
	return all
}

// doors refuses ports that other machines reach without proof, unless the
// configuration says so.
func (c Config) doors() error {
	var p problems.List
	for i, section := range c.Insecure {
		p.Refuse(!slices.Contains(guarded, section), fmt.Sprintf("insecure[%d]", i), "%q is none of %s", section, strings.Join(guarded, ", "))
	}
	for _, d := range c.allDoors() {
		p.Refuse(d.exposed() && !slices.Contains(c.Insecure, d.section), d.section+"."+d.field,
			"other machines reach %q: set %s, or list %s under insecure if every client there may %s", d.address, d.proof, d.section, d.harm)
	}
	return p.Err()
}

// warnOfDoors logs the ports that the configuration opens to every client.
func warnOfDoors(c Config, log *slog.Logger) {
	for _, d := range c.allDoors() {
		if d.exposed() && slices.Contains(c.Insecure, d.section) {
			log.Warn("every client that reaches this port may "+d.harm, "insecure", d.section, "address", d.address, "instead", d.proof)
		}
	}
}
