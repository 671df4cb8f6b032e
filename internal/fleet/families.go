package fleet

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// answersWithin is how long an address of a name with both families may take to answer.
	answersWithin = time.Second
	// sampled is how many addresses of each family are asked: a family is reached or not.
	sampled = 16
	// askAgain is how many lookups after it has answered a family is asked again.
	askAgain = 10
	// silentBefore is how many lookups in a row a family may be silent before the other is used.
	silentBefore = 3
)

// families chooses IPv4 or IPv6 for each host name that has addresses of both: a server
// with two addresses is one replica. Which addresses belong to one server is not known, so
// a name is used in one family: the one in which more addresses answer first, until none of
// them does and the other answers. While none answers all addresses count.
type families struct {
	answers func(ctx context.Context, addr netip.AddrPort) bool
	chosen  map[string]*family // by host name and port
}

type family struct {
	six    bool
	until  int // lookups until it is asked again
	silent int // lookups in a row in which it did not answer
}

// mostChosen bounds the names that are remembered: SRV records name one for each server.
const mostChosen = 1 << 14

// choose returns the addresses of a host that count.
func (f *families) choose(ctx context.Context, host string, all []netip.AddrPort) []netip.AddrPort {
	var four, six []netip.AddrPort
	for _, a := range all {
		if a.Addr().Is4() {
			four = append(four, a)
		} else {
			six = append(six, a)
		}
	}
	if len(four) == 0 || len(six) == 0 {
		return all
	}
	c := f.chosen[host]
	switch {
	case c == nil:
		n4, n6 := f.count(ctx, four), f.count(ctx, six)
		if n4+n6 == 0 {
			return all
		}
		if len(f.chosen) >= mostChosen {
			clear(f.chosen)
		}
		c = &family{six: n6 > n4, until: askAgain}
		f.chosen[host] = c
	case c.until > 0:
		c.until--
	default:
		f.ask(ctx, c, four, six)
	}
	if c.six {
		return six
	}
	return four
}

// ask looks whether the chosen family still answers.
func (f *families) ask(ctx context.Context, c *family, four, six []netip.AddrPort) {
	mine, other := four, six
	if c.six {
		mine, other = six, four
	}
	switch {
	case f.count(ctx, mine) > 0:
		c.until, c.silent = askAgain, 0
	case f.count(ctx, other) == 0:
		c.silent = 0
	default:
		if c.silent++; c.silent >= silentBefore {
			*c = family{six: !c.six, until: askAgain}
		}
	}
}

// count returns how many of a sample of addresses answer.
func (f *families) count(ctx context.Context, addrs []netip.AddrPort) int {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	var wg sync.WaitGroup
	var answered atomic.Int64
	for _, a := range addrs[:min(len(addrs), sampled)] {
		wg.Go(func() {
			if f.answers(ctx, a) {
				answered.Add(1)
			}
		})
	}
	wg.Wait()
	return int(answered.Load())
}
