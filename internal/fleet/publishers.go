package fleet

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"warmroute/internal/problems"
)

// publishers records which rank of which replica follows which publisher of KV
// events. The invariant: a publisher, which is a host, a port and the beginning of
// its topics, belongs to one rank of one replica, the first that names it, so that no
// replica is credited with the blocks of another. A configured publisher replaces a
// learned one.
type publishers struct {
	mu     sync.Mutex
	owners map[string][]owner   // by endpoint
	named  map[*worker][]string // the endpoints that a replica has owned since its last claim
}

// owner is the rank that follows the topics that begin with topic.
type owner struct {
	topic      string
	by         *worker
	rank       int
	configured bool
}

// overlaps reports whether both owners would receive the same messages.
func (o owner) overlaps(other owner) bool {
	return strings.HasPrefix(o.topic, other.topic) || strings.HasPrefix(other.topic, o.topic)
}

// claim makes a replica's sources its own, in place of its former ones. It returns
// the sources that no other replica owns, with one sentence for each refused source.
func (p *publishers) claim(by *worker, sources []EventSource, configured bool) (own []EventSource, refused []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(by)
	for _, e := range sources {
		wanted := owner{topic: e.Topic, by: by, rank: e.Rank, configured: configured}
		if first, taken := p.taken(e.Endpoint, wanted); taken {
			refused = append(refused, fmt.Sprintf("rank %d: %s belongs to rank %d of %s", e.Rank, e.Endpoint, first.rank, first.by.addr))
			continue
		}
		if e.ReplayEndpoint != "" {
			replay := owner{by: by, rank: e.Rank, configured: configured} // it has no topics
			if first, taken := p.taken(e.ReplayEndpoint, replay); taken {
				refused = append(refused, fmt.Sprintf("rank %d: the replay endpoint %s belongs to rank %d of %s", e.Rank, e.ReplayEndpoint, first.rank, first.by.addr))
				continue
			}
			p.own(e.ReplayEndpoint, replay)
		}
		p.own(e.Endpoint, wanted)
		own = append(own, e)
	}
	return own, refused
}

// taken returns the owner of some of the messages that wanted would receive. An
// earlier worker of the same replica is none.
func (p *publishers) taken(endpoint string, wanted owner) (first owner, taken bool) {
	for _, o := range p.owners[endpoint] {
		earlier := o.by != wanted.by && o.by.addr == wanted.by.addr
		if o.overlaps(wanted) && !earlier && (o.configured || !wanted.configured || o.by == wanted.by) {
			return o, true
		}
	}
	return owner{}, false
}

// own records an owner, in place of the owners that it overlaps.
func (p *publishers) own(endpoint string, o owner) {
	if p.owners == nil {
		p.owners, p.named = map[string][]owner{}, map[*worker][]string{}
	}
	p.named[o.by] = append(p.named[o.by], endpoint)
	rest := slices.DeleteFunc(p.owners[endpoint], func(other owner) bool { return other.overlaps(o) })
	p.owners[endpoint] = append(rest, o)
}

// release gives up everything that a replica owns.
func (p *publishers) release(by *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(by)
}

func (p *publishers) drop(by *worker) {
	for _, endpoint := range p.named[by] {
		owners := slices.DeleteFunc(p.owners[endpoint], func(o owner) bool { return o.by == by })
		if len(owners) == 0 {
			delete(p.owners, endpoint)
			continue
		}
		p.owners[endpoint] = owners
	}
	delete(p.named, by)
}

// eventHosts are the hosts that replicas may name as publishers besides their own.
type eventHosts []string

// validate returns a problem for each entry that is no address, network or name.
func (h eventHosts) validate(p *problems.List) {
	for i, s := range h {
		_, noNetwork := netip.ParsePrefix(s)
		_, noAddress := netip.ParseAddr(s)
		p.Refuse(noNetwork != nil && noAddress != nil && !validHost(s), fmt.Sprintf("event_hosts[%d]", i),
			"%q is neither an IP address, a network (10.0.0.0/8) nor a host name", s)
	}
}

// allow reports whether the replica at own may name the host. Names are compared as
// written: nothing is looked up.
func (h eventHosts) allow(host, own string) bool {
	addr, err := netip.ParseAddr(host)
	addr = addr.Unmap()
	if err == nil && addr.String() == own {
		return true
	}
	return slices.ContainsFunc(h, func(s string) bool {
		if err != nil {
			return strings.EqualFold(s, host)
		}
		if network, e := netip.ParsePrefix(s); e == nil {
			return network.Contains(addr)
		}
		listed, e := netip.ParseAddr(s)
		return e == nil && listed.Unmap() == addr
	})
}

// admit returns the learned sources that the options allow, with one sentence for
// each refused source.
func (o *Options) admit(sources []EventSource, own string) (admitted []EventSource, refused []string) {
	hosts, beyond := eventHosts(o.EventHosts), 0
	for _, e := range sources {
		host, _ := hostPort(e.Endpoint)
		replay, _ := hostPort(e.ReplayEndpoint)
		switch {
		case len(admitted) >= maxRanks:
			beyond++
		case !isTCP(e.Endpoint):
			refused = append(refused, fmt.Sprintf("rank %d: %.60q is no address of TCP: start vLLM with tcp://*:5557, or kvsub beside it", e.Rank, e.Endpoint))
		case !hosts.allow(host, own):
			refused = append(refused, fmt.Sprintf("rank %d: %s is not on the replica's own host; fleet.event_hosts can allow it", e.Rank, e.Endpoint))
		case e.ReplayEndpoint != "" && !hosts.allow(replay, own):
			refused = append(refused, fmt.Sprintf("rank %d: the replay endpoint %s is not on the replica's own host; fleet.event_hosts can allow it", e.Rank, e.ReplayEndpoint))
		default:
			admitted = append(admitted, e)
		}
	}
	if beyond > 0 {
		refused = append(refused, fmt.Sprintf("%d ranks are more than %d", len(admitted)+beyond, maxRanks))
	}
	return admitted, refused
}

// summary joins sentences, the first three of them.
func summary(refused []string) string {
	const shown = 3
	if len(refused) > shown {
		return fmt.Sprintf("%s; and %d more", strings.Join(refused[:shown], "; "), len(refused)-shown)
	}
	return strings.Join(refused, "; ")
}
