package listen

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
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

// HostPort returns the reason why addr is not host:port.
func HostPort(addr string) error {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port%s", addr, Brackets(addr))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q has no port between 0 and 65535", addr)
	}
	return nil
}

// Brackets returns the end of a sentence about an IPv6 address without brackets: how it is
// written with a port. About any other address it returns "".
func Brackets(addr string) string {
	host, port := addr, "8000"
	if i := strings.LastIndexByte(addr, ':'); i > 0 {
		_, err := strconv.ParseUint(addr[i+1:], 10, 16)
		if before, perr := netip.ParseAddr(addr[:i]); err == nil && perr == nil && before.Is6() {
			host, port = addr[:i], addr[i+1:]
		}
	}
	if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() {
		return ""
	}
	return fmt.Sprintf("; an IPv6 address is written like %q", net.JoinHostPort(host, port))
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
