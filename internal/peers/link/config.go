package link

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"warmroute/internal/certs"
	"warmroute/internal/peers"
	"warmroute/internal/problems"
)

// DefaultPort is the port between routers where none is named.
const DefaultPort = "9005"

// Config is the peers section of a router's configuration. Without listen and
// url nothing is shared.
type Config struct {
	ID        string   `yaml:"id"`                   // this router's unique name; "" = host name and `listen`
	Fleet     string   `yaml:"fleet"`                // name of the fleet on its NATS
	Listen    string   `yaml:"listen"`               // address of the embedded NATS server, port 9005 if none is named
	Routes    []string `yaml:"routes,omitempty"`     // the other routers' `peers.listen`
	DNS       string   `yaml:"dns,omitempty"`        // name whose addresses are all routers, looked up every 5 s, beside `routes`
	Advertise string   `yaml:"advertise,omitempty"`  // address at which other routers reach this one; "" = `listen`
	URL       string   `yaml:"url"`                  // a NATS server to use instead, nats://host:port
	Creds     string   `yaml:"creds,omitempty"`      // credentials file for that server
	TokenFile string   `yaml:"token_file,omitempty"` // file with the token of all routers
	// TLS is how routers authenticate each other: each presents `cert_file`, and accepts certificates of `ca_file`.
	TLS certs.ClientOptions `yaml:"tls,omitempty"`
}

// DefaultConfig shares nothing.
func DefaultConfig() Config { return Config{Fleet: "warmroute"} }

// Enabled reports whether anything is shared.
func (c Config) Enabled() bool { return c.Listen != "" || c.URL != "" }

// Validate returns every problem of c, one sentence each.
func (c Config) Validate() error {
	var p problems.List
	p.Refuse(c.Fleet == "" || strings.ContainsAny(c.Fleet, " .*>\t\r\n"), "fleet", "%q must be one word without dots, stars and brackets", c.Fleet)
	p.Refuse(strings.ContainsAny(c.ID, " \t\r\n") || len(c.ID) > peers.MaxName, "id", "%q must be one word of at most %d bytes", c.ID, peers.MaxName)
	p.Refuse(c.Listen != "" && c.URL != "", "listen and url", "set one of them, not both")
	p.Refuse(c.Listen == "" && len(c.Routes)+len(c.DNS)+len(c.Advertise) > 0,
		"routes, dns and advertise", "they belong to the embedded server, and listen is empty")
	address := func(field, addr string) {
		_, err := withPort(addr)
		p.Add(field+": ", err)
	}
	for _, at := range [][2]string{{"listen", c.Listen}, {"advertise", c.Advertise}, {"dns", c.DNS}} {
		if at[1] != "" {
			address(at[0], at[1])
		}
	}
	for i, r := range c.Routes {
		address(fmt.Sprintf("routes[%d]", i), r)
	}
	u, err := url.Parse(c.URL)
	p.Refuse(c.URL != "" && (err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls"}, u.Scheme)), "url", "%q is not nats://host:port", c.URL)
	p.Refuse(c.Creds != "" && c.URL == "", "creds", "they are for an external NATS server, and url is empty")
	for _, f := range []struct {
		name  string
		given bool
	}{{"id", c.ID != ""}, {"fleet", c.Fleet != DefaultConfig().Fleet}, {"token_file", c.TokenFile != ""}, {"tls", c.TLS != certs.ClientOptions{}}} {
		p.Refuse(f.given && !c.Enabled(), f.name, "is given, but listen and url are empty, so that nothing is shared")
	}
	t := c.TLS
	p.Add("", t.Validate("tls."))
	p.Refuse(c.Listen != "" && t.Enabled && (t.CertFile == "" || t.CAFile == ""), "tls", "routers send and verify certificates, so cert_file, key_file and ca_file belong together")
	return p.Err()
}

// Address returns the address of the embedded server with its port, "" without one.
func (c Config) Address() string {
	at, err := withPort(c.Listen)
	if err != nil {
		return ""
	}
	return at
}

// withPort completes an address with DefaultPort.
func withPort(addr string) (string, error) {
	if _, _, err := net.SplitHostPort(addr); err == nil {
		return addr, nil
	}
	full := net.JoinHostPort(strings.Trim(addr, "[]"), DefaultPort)
	if _, _, err := net.SplitHostPort(full); addr == "" || err != nil || strings.Contains(addr, "/") {
		return "", fmt.Errorf("%q is not host:port", addr)
	}
	return full, nil
}

// name returns this router's name.
func (c Config) name() string {
	if c.ID != "" {
		return c.ID
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "router"
	}
	if c.Listen != "" {
		return host + "/" + c.Listen
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// Seed returns a number of this router. By it the router chooses among equal
// replicas differently than its peers.
func (c Config) Seed() uint64 { return xxhash.Sum64String(c.name()) }

func (c Config) token() (string, error) {
	if c.TokenFile == "" {
		return "", nil
	}
	b, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", fmt.Errorf("peers.token_file: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" {
		return "", fmt.Errorf("peers.token_file: %s is empty", c.TokenFile)
	}
	return token, nil
}

// Readable returns every problem with the files that c names, one sentence each.
func (c Config) Readable() error {
	if !c.Enabled() {
		return nil
	}
	_, token := c.token()
	_, pair := certificates(c.TLS)
	errs := []error{token, pair}
	if c.Creds != "" {
		if _, err := os.ReadFile(c.Creds); err != nil {
			errs = append(errs, fmt.Errorf("peers.creds: %w", err))
		}
	}
	return errors.Join(errs...)
}

// certificates returns the TLS of both directions, nil without.
func certificates(o certs.ClientOptions) (*tls.Config, error) {
	if !o.Enabled {
		return nil, nil
	}
	c, err := certs.Client(o)
	if err != nil {
		return nil, fmt.Errorf("peers.tls.%w", err)
	}
	if own := c.GetClientCertificate; own != nil { // read at each handshake
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own(nil) }
	}
	c.ClientCAs, c.ClientAuth = c.RootCAs, tls.RequireAndVerifyClientCert
	return c, nil
}
