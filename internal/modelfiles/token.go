package modelfiles

import (
	"errors"
	"net"
	"net/http"
	"net/url"
)

// authorized adds HF_TOKEN to requests to the hub alone: to its scheme, host and port.
// net/http would leave it on a request that is redirected to another port, to a
// subdomain, or from https to http.
type authorized struct {
	next  http.RoundTripper
	hub   *url.URL
	token string // "": none
}

func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	if a.token != "" && req.URL.Scheme == a.hub.Scheme && req.URL.Host == a.hub.Host {
		req = req.Clone(req.Context()) // the request is the client's
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	return a.next.RoundTrip(req)
}

// private reports whether others on the way to a hub cannot read requests.
func private(hub *url.URL) bool {
	ip := net.ParseIP(hub.Hostname())
	return hub.Scheme == "https" || hub.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// few refuses long chains of redirects.
func few(via []*http.Request) error {
	if len(via) > 5 {
		return errors.New("more than 5 redirects")
	}
	return nil
}
