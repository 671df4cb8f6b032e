package listen

import (
	"net"
	"strings"

	"golang.org/x/net/netutil"
)

// TCP listens at addr and accepts at most that many connections at a time.
func TCP(addr string, most int) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, most), nil
}

// Loopback reports whether only this machine reaches an address, host:port or
// host. Of all names it knows localhost alone.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = strings.Trim(addr, "[]")
	}
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
