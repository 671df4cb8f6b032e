package link

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// zone is a DNS name that a test changes.
type zone struct {
	mu    sync.Mutex
	addrs []string
}

func (z *zone) set(addrs ...string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.addrs = addrs
}

func (z *zone) lookup(_ context.Context, host string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if host != "routers.test" || len(z.addrs) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return slices.Clone(z.addrs), nil
}

// TestRoutersBehindANameFindEachOther though each saw itself alone when it
// started; so does a router that starts later, or comes back.
func TestRoutersBehindANameFindEachOther(t *testing.T) {
	ports := must.Get(testenv.FreePorts(1))(t)
	port := ports[0]
	one := func(ip string, z *zone) *linked {
		t.Helper()
		c := DefaultConfig()
		c.ID, c.Listen, c.DNS = ip, net.JoinHostPort(ip, strconv.Itoa(port)), net.JoinHostPort("routers.test", strconv.Itoa(port))
		d := newDiscovery(c)
		d.lookup, d.every = z.lookup, 50*time.Millisecond
		return startWith(t, c, d, nil)
	}
	first, second := new(zone), new(zone) // the first router's name cannot be looked up yet
	second.set("127.0.0.3")
	a, b := one("127.0.0.2", first), one("127.0.0.3", second)
	if a.peers()+b.peers() != 0 {
		t.Fatal("they hear each other before the name says so")
	}
	first.set("127.0.0.2", "127.0.0.3")
	checkFleet(t, []*linked{a, b})
	third := new(zone)
	third.set("127.0.0.4")
	c := one("127.0.0.4", third)
	second.set("127.0.0.2", "127.0.0.3", "127.0.0.4") // one of them learns it, which is enough
	checkFleet(t, []*linked{a, b, c})
	a.stop()
	second.set("127.0.0.3", "127.0.0.4")
	checkFleet(t, []*linked{b, c})
	third.set("127.0.0.2", "127.0.0.3", "127.0.0.4") // NATS' servers do not always announce a server that comes back
	a = one("127.0.0.2", first)
	checkFleet(t, []*linked{a, b, c})
}

// TestANameThatFailsForgetsNothing, and an address that it gives no longer is
// dialed for a while.
func TestANameThatFailsForgetsNothing(t *testing.T) {
	c := DefaultConfig()
	c.Listen, c.DNS, c.Routes = "127.0.0.1:0", "routers.test", []string{"10.0.0.9:1"}
	d, now, fails := newDiscovery(c), time.Unix(1_700_000_000, 0), false
	addrs := []string{"10.0.0.1", "10.0.0.2"}
	d.lookup = func(context.Context, string) ([]string, error) {
		if fails {
			return nil, errors.New("no answer")
		}
		return addrs, nil
	}
	step := func(after time.Duration, wantChanged bool, want ...string) {
		t.Helper()
		now = now.Add(after)
		if got, changed := d.routes(t.Context(), now); changed != wantChanged || !slices.Equal(got, want) {
			t.Errorf("%v, changed %v; want %v, %v", got, changed, want, wantChanged)
		}
	}
	all := []string{"10.0.0.1:9005", "10.0.0.2:9005", "10.0.0.9:1"}
	step(0, true, all...)
	fails = true
	step(10*routeKept, false, all...)
	fails, addrs = false, addrs[:1]
	step(time.Second, true, all[0], all[2]) // it was last given long ago
	addrs = []string{"10.0.0.3"}
	step(routeKept-1, true, all[0], "10.0.0.3:9005", all[2])
	step(1, true, "10.0.0.3:9005", all[2])
}
