package admin

import (
	"net"
	"net/http"
	"slices"
	"strings"

	"warmroute/internal/bearer"
	"warmroute/internal/listen"
)

// Access says who may use a server.
type Access struct {
	Token *bearer.Token // for handlers and profiles; nil: they need none
	// Hosts are further names under which clients reach the server, besides the
	// loopback's names, the server's own address, and the address of the
	// connection.
	Hosts []string
}

// guard lets only requests with the token reach h.
func (a Access) guard(h http.Handler) http.Handler {
	if a.Token == nil || h == nil { // the mux refuses a nil handler
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !a.Token.Accepts(r.Header.Values("Authorization")) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="warmroute"`)
			http.Error(w, "this page needs the admin token, as \"Authorization: Bearer TOKEN\"", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// browsers refuses requests that a browser sends for a page of another site: such a
// page may have a name of its own for this server's address (DNS rebinding), or
// send a form here. A server of health and metrics that other machines reach takes
// every name: its clients need no browser.
func (o Options) browsers(h http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection().Handler(h)
	own, _, _ := net.SplitHostPort(o.Listen)
	anyHost := len(o.Handlers) == 0 && !o.Pprof && !listen.Loopback(o.Listen)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !anyHost && !o.Access.knows(r, own) {
			http.Error(w, "this server has another name; admin.hosts lists further ones", http.StatusMisdirectedRequest)
			return
		}
		sameOrigin.ServeHTTP(w, r)
	})
}

// knows reports whether the name in a request's Host header is the server's: the
// loopback's, own, the address of the client's connection, or one of a.Hosts. A
// request without a name comes from no browser.
func (a Access) knows(r *http.Request, own string) bool {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if host == "" || listen.Loopback(host) || strings.EqualFold(host, own) || slices.ContainsFunc(a.Hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && local.IP.Equal(net.ParseIP(host))
}
