package link

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"warmroute/internal/certs"
	"warmroute/render/testkit/must"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Do(t, os.WriteFile(path, []byte(content+"\n"), 0o600))
	return path
}

func TestConfigIsValidated(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil || DefaultConfig().Enabled() {
		t.Errorf("the default: %v", err)
	}
	for want, c := range map[string]Config{
		"fleet:":                     {Fleet: "a.b"},
		"id:":                        {Fleet: "a", ID: "a b"},
		"listen and url:":            {Fleet: "a", Listen: ":1", URL: "nats://h:1"},
		"routes, dns and advertise:": {Fleet: "a", Routes: []string{"h:1"}},
		"routes[1]:":                 {Fleet: "a", Listen: ":1", Routes: []string{"h", "a/b"}},
		`url: "h:1" is not`:          {Fleet: "a", URL: "h:1"},
		"creds:":                     {Fleet: "a", Listen: ":1", Creds: "x"},
		"tls.key_file: is missing":   {Fleet: "a", Listen: ":1", TLS: certs.ClientOptions{Enabled: true, CertFile: "x"}},
		"tls.enabled: is false":      {Fleet: "a", Listen: ":1", TLS: certs.ClientOptions{CertFile: "x", KeyFile: "x", CAFile: "x"}},
		"ca_file belong together":    {Fleet: "a", Listen: ":1", TLS: certs.ClientOptions{Enabled: true, CAFile: "x"}},
		"key_file and ca_file":       {Fleet: "a", Listen: ":1", TLS: certs.ClientOptions{Enabled: true, CertFile: "x", KeyFile: "x", InsecureSkipVerify: true}},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	good := Config{Fleet: "a", Listen: "0.0.0.0", Routes: []string{"10.0.0.1", "[::1]", "h:1"}}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	routes, _ := newDiscovery(good).routes(t.Context(), time.Now())
	if got := strings.Join(routes, " "); got != "10.0.0.1:9005 [::1]:9005 h:1" {
		t.Errorf("routes %s", got)
	}
}

// TestALostServerIsLeft: the connection to a NATS server whose machine is lost ends within seconds.
func TestALostServerIsLeft(t *testing.T) {
	options := must.Get((&Link{c: Config{URL: "nats://h:1"}}).options())(t)
	o := nats.GetDefaultOptions()
	for _, set := range options {
		must.Do(t, set(&o))
	}
	if after := o.PingInterval * time.Duration(o.MaxPingsOut+1); after <= 0 || after > 15*time.Second {
		t.Errorf("it ends after %v", after)
	}
}
