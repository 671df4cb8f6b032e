package link

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"time"
)

const (
	// resolveEvery is how often the routers' DNS name is looked up.
	resolveEvery = 5 * time.Second
	// routeKept is how long an address is dialed after the name no longer gives it:
	// a router that is not ready for a moment still runs.
	routeKept = time.Minute
)

// discovery holds the addresses that an embedded server dials: the configured ones
// and the ones behind the DNS name. Routers send each other the rest.
type discovery struct {
	c      Config
	lookup func(ctx context.Context, host string) ([]string, error)
	every  time.Duration
	seen   map[string]time.Time // address behind the name → when it was last given
	dialed []string
}

func newDiscovery(c Config) *discovery {
	return &discovery{c: c, lookup: net.DefaultResolver.LookupHost, every: resolveEvery, seen: map[string]time.Time{}}
}

// routes looks the name up and returns the addresses to dial, and whether they
// changed. After a failed lookup the former addresses stay.
func (d *discovery) routes(ctx context.Context, now time.Time) (all []string, changed bool) {
	for _, r := range d.c.Routes {
		addr, _ := withPort(r) // validated
		all = append(all, addr)
	}
	if d.c.DNS != "" {
		addr, _ := withPort(d.c.DNS)
		host, port, _ := net.SplitHostPort(addr)
		found, err := d.lookup(ctx, host)
		for _, ip := range found {
			d.seen[net.JoinHostPort(ip, port)] = now
		}
		for a, at := range d.seen {
			if err == nil && now.Sub(at) >= routeKept {
				delete(d.seen, a)
				continue
			}
			all = append(all, a)
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	changed = !slices.Equal(all, d.dialed)
	d.dialed = all
	return all, changed
}

// run makes the server dial the name's current addresses until ctx ends.
func (d *discovery) run(ctx context.Context, dial func([]string) error, log *slog.Logger) {
	if d.c.DNS == "" {
		return
	}
	clock := time.Tick(d.every)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-clock:
			all, changed := d.routes(ctx, now)
			if !changed || ctx.Err() != nil {
				continue
			}
			if err := dial(all); err != nil {
				log.Error("peers: an address of another router cannot be dialed", "error", err)
			}
		}
	}
}
