package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Resolver is the part of net.Resolver that DNS needs.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (cname string, addrs []*net.SRV, err error)
}

const (
	LookupEvery   = time.Second     // it delays the use of a new replica; a local resolver answers from its cache
	lookupTimeout = 5 * time.Second // the resolver's own first timeout

	// An address that is named again after fewer than backWithin answers was hardly away: then the
	// last partsFor answers, of a minute, count together.
	backWithin = 10
	partsFor   = 60
)

// dns re-resolves one name. A failed lookup, "no such name" included, changes
// nothing: resolvers fail more often than all replicas disappear, and the
// fleet detects replicas that are gone by their silence.
type dns struct {
	options  DNSOptions
	resolver Resolver
	families families
	targets  map[netip.AddrPort]string // of SRV records, by the addresses that were found last
	answers  int
	named    map[netip.AddrPort]int // the last of the answers that had an address
	parts    int                    // so many more answers count together with those before them
	inParts  atomic.Bool            // some do
}

func (d *dns) String() string { return "dns " + d.options.Name }

func (d *dns) Watch(ctx context.Context, set func([]ReplicaOptions)) error {
	var last []ReplicaOptions
	for {
		list, err := d.lookup(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if len(list) > 0 && !reflect.DeepEqual(list, last) {
			set(list)
			last = list
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(LookupEvery):
		}
	}
}

// lookup returns the replicas behind the name, sorted by address. They count beside an error, too:
// one of several SRV records may have failed.
func (d *dns) lookup(ctx context.Context) ([]ReplicaOptions, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var addrs []netip.AddrPort
	var err error
	if d.options.SRV() {
		addrs, err = d.srv(ctx)
	} else {
		host, port, _ := net.SplitHostPort(d.options.Name) // validated
		n, _ := strconv.ParseUint(port, 10, 16)
		addrs, err = d.host(ctx, host, uint16(n))
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New("no addresses")
	}
	if err != nil {
		err = fmt.Errorf("fleet: dns %s: %w", d.options.Name, err)
	}
	addrs = d.joined(addrs)
	list := make([]ReplicaOptions, 0, len(addrs))
	for _, a := range addrs {
		r := d.options.Replica
		r.Address = a.String()
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b ReplicaOptions) int { return strings.Compare(a.Address, b.Address) })
	return slices.CompactFunc(list, func(a, b ReplicaOptions) bool { return a.Address == b.Address }), err
}

// joined returns the addresses of an answer, and those of former ones if each has a part of them.
func (d *dns) joined(answer []netip.AddrPort) []netip.AddrPort {
	if len(answer) == 0 {
		return nil
	}
	d.answers++
	d.parts = max(0, d.parts-1)
	for _, a := range answer {
		if at, ok := d.named[a]; ok && at < d.answers-1 && d.answers-at < backWithin {
			d.parts = partsFor
		}
		d.named[a] = d.answers
	}
	maps.DeleteFunc(d.named, func(_ netip.AddrPort, at int) bool { return d.answers-at >= partsFor })
	d.inParts.Store(d.parts > 0)
	if d.parts == 0 {
		return answer
	}
	return slices.Collect(maps.Keys(d.named))
}

func (d *dns) host(ctx context.Context, host string, port uint16) ([]netip.AddrPort, error) {
	ips, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	var out []netip.AddrPort
	for _, ip := range ips {
		ip = ip.Unmap()
		if ip.Zone() == "" && !ip.IsUnspecified() && !ip.IsMulticast() {
			out = append(out, netip.AddrPortFrom(ip, port))
		}
	}
	return d.families.choose(ctx, net.JoinHostPort(host, strconv.Itoa(int(port))), out), nil
}

// srv returns the replicas of the records. A target that cannot be looked up keeps the addresses
// that it had, and is an error beside the others.
func (d *dns) srv(ctx context.Context) ([]netip.AddrPort, error) {
	_, records, err := d.resolver.LookupSRV(ctx, "", "", d.options.Name)
	targets := map[netip.AddrPort]string{}
	for _, r := range records {
		if r.Target == "." || r.Port == 0 { // it says that there is no server
			continue
		}
		addrs, failed := d.host(ctx, r.Target, r.Port)
		err = cmp.Or(err, failed)
		for _, a := range addrs {
			targets[a] = r.Target
		}
		for a, target := range d.targets {
			if failed != nil && target == r.Target && a.Port() == r.Port {
				targets[a] = target
			}
		}
	}
	if len(records) > 0 {
		d.targets = targets
	}
	return slices.Collect(maps.Keys(targets)), err
}
