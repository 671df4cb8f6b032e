package fleet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"warmroute/internal/bearer"
	"warmroute/internal/certs"
)

// maxAnswer bounds a JSON answer: MaxModels ids with vLLM's permission objects.
const maxAnswer = 4 << 20

// client sends HTTP requests to replicas and reads bounded answers.
type client struct {
	http *http.Client
	url  func(addr string) string
}

func newClient(o Options) (*client, error) {
	if o.Transport != nil {
		return &client{http: &http.Client{Transport: o.Transport}, url: o.HTTP.URL}, nil
	}
	h, err := o.HTTP.Client(1) // one worker per replica sends one request at a time
	if err != nil {
		return nil, err
	}
	return &client{http: h, url: o.HTTP.URL}, nil
}

// handshakeTimeout bounds a TLS handshake with a replica.
const handshakeTimeout = 3 * time.Second

// keptFor is how long an unused connection is kept: less than the 5 s after which vLLM closes it,
// for a request that meets that fails, and a POST is not sent again.
const keptFor = 4 * time.Second

// URL returns the root of a replica's HTTP API, without a slash at the end.
func (o HTTPOptions) URL(addr string) string {
	if o.TLS.Enabled {
		return "https://" + addr
	}
	return "http://" + addr
}

// bodyBuffer is the memory from which a connection of a client with many sends: most prompts
// are one packet to the kernel then.
const bodyBuffer = 32 << 10

// Client returns an HTTP client for replicas that keeps at most idle unused
// connections to each, sends the API key, and follows no redirects, so that the
// key goes nowhere else. Errors name the field at fault.
func (o HTTPOptions) Client(idle int) (*http.Client, error) {
	t := &http.Transport{
		DialContext:            (&net.Dialer{Timeout: 3 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		MaxIdleConnsPerHost:    idle,
		IdleConnTimeout:        keptFor,
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true, // compressing costs the replica more than the bytes cost the network
	}
	if idle > 1 {
		t.WriteBufferSize = bodyBuffer
		t.DialContext = corks(t.DialContext)
	}
	if o.TLS.Enabled {
		if _, err := certs.Client(o.TLS); err != nil {
			return nil, fmt.Errorf("fleet.tls.%w", err)
		}
		t.DialTLSContext = o.dialTLS(t.DialContext)
	}
	h := &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if o.TokenFile != "" {
		token, err := bearer.File(o.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("fleet.%w", err)
		}
		h.Transport = &authorized{Transport: t, token: token}
	}
	return h, nil
}

// dialTLS returns a function that connects with the files as they are then: certificates
// and authorities are renewed.
func (o HTTPOptions) dialTLS(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := certs.Client(o.TLS)
		if err != nil {
			return nil, err
		}
		if c.ServerName == "" {
			if c.ServerName, _, err = net.SplitHostPort(addr); err != nil {
				return nil, err
			}
		}
		c.CipherSuites, c.VerifyConnection = suites, usable
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		secure := tls.Client(conn, c)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	}
}

// suites are those of TLS 1.2 that Envoy has: a replica that it cannot reach is not ready.
var suites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// usable refuses a certificate that Envoy refuses, also where it is not verified.
func usable(s tls.ConnectionState) error {
	if usage := s.PeerCertificates[0].KeyUsage; usage != 0 && usage&x509.KeyUsageDigitalSignature == 0 {
		return &tls.CertificateVerificationError{UnverifiedCertificates: s.PeerCertificates, Err: errors.New("its key usage lacks digital signatures, which Envoy requires")}
	}
	return nil
}

// authorized is a transport that adds the API key to every request.
type authorized struct {
	*http.Transport
	token *bearer.Token
}

func (a *authorized) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", a.token.Header())
	return a.Transport.RoundTrip(req)
}

// open sends a request and returns the body of a 200, which the caller closes.
func (c *client) open(ctx context.Context, method, addr, path string, body []byte) (io.ReadCloser, error) {
	var reader io.Reader
	if body != nil {
		reader = bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url(addr)+path, reader)
	if err != nil {
		return nil, &failure{reasonBadAnswer, err}
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, transportFailure(addr, err)
	}
	if resp.StatusCode != http.StatusOK {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // keeps the connection for small answers
		resp.Body.Close()
		reason := reasonBadAnswer
		switch resp.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			reason = reasonUnauthorized
		case http.StatusServiceUnavailable:
			reason = reasonLoading
		}
		return nil, &failure{reason, fmt.Errorf("%s: %w", path, status(resp.StatusCode))}
	}
	return resp.Body, nil
}

// do sends a request and returns the whole body of a 200.
func (c *client) do(ctx context.Context, method, addr, path string, body []byte) ([]byte, error) {
	data, err := c.beginning(ctx, method, addr, path, body, maxAnswer+1)
	if len(data) > maxAnswer {
		return nil, &failure{reasonBadAnswer, fmt.Errorf("%s: more than %d bytes", path, maxAnswer)}
	}
	return data, err
}

// beginning returns an answer's first bytes, at most so many.
func (c *client) beginning(ctx context.Context, method, addr, path string, body []byte, most int64) ([]byte, error) {
	r, err := c.open(ctx, method, addr, path, body)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, most))
	if err != nil {
		return nil, transportFailure(addr, err)
	}
	return data, nil
}

// answers reports whether anything speaks HTTP at addr.
func (c *client) answers(ctx context.Context, addr string) bool {
	body, err := c.open(ctx, http.MethodGet, addr, "/health", nil)
	if err == nil {
		_, _ = io.CopyN(io.Discard, body, 4<<10) // keeps the connection
		body.Close()
	}
	return err == nil || errors.As(err, new(status))
}

// metrics reads the metrics at a path of addr into p.
func (c *client) metrics(ctx context.Context, addr, path string, p *page, limit int64) error {
	r, err := c.open(ctx, http.MethodGet, addr, path, nil)
	if err != nil {
		return err
	}
	defer r.Close()
	err = p.read(r, limit)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errPageTooLarge):
		return &failure{reasonBadAnswer, err}
	}
	return transportFailure(addr, err)
}
