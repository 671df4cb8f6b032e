package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestEveryPrintedVariantLoads: real Envoy takes the printed configuration, for every
// kind of address, mode and security.
func TestEveryPrintedVariantLoads(t *testing.T) {
	t.Parallel()
	binary := must.Get(testenv.EnvoyBinary())(t)
	ca := certstest.New(t)
	own := ca.Issue("envoy")
	several := envoy.Serving("10.0.0.1:8000", "[2001:db8::2]:8000")
	several.Groups = []envoy.Group{
		{Name: "model:a", Models: []string{"a", "alias: {}"}, Replicas: several.Replicas[:1]}, {Name: "model:b", Models: []string{"b"}, Replicas: several.Replicas[1:]},
	}
	several.Listing = `{"object":"list","data":[]}`
	for name, o := range map[string]envoy.Options{
		"IPv4":           {Listen: "127.0.0.1:18080"},
		"IPv6":           {Listen: "[::]:18080", Admin: "[::1]:19901", ExtProc: []string{"[::1]:9002"}, Replicas: []string{"[2001:db8::1]:8000"}, XDS: []string{"[::1]:9004"}},
		"DNS":            {ExtProc: []string{"warmroute:9002"}, Replicas: []string{"vllm:8000"}, XDS: []string{"warmroute:9004"}},
		"TLS":            {TLS: certs.ClientOptions{Enabled: true, CAFile: ca.CAFile, ServerName: "router.test", CertFile: own.CertFile, KeyFile: own.KeyFile}, XDSTLS: true},
		"TLS unverified": {TLS: certs.ClientOptions{Enabled: true}, XDSTLS: true},
		"standby":        {Standby: "10.0.0.9:9002"},
		"routers":        {ExtProc: []string{"10.0.0.8:9002", "10.0.0.9:9002"}, XDS: []string{"10.0.0.8:9004", "10.0.0.9:9004"}},
		"partial":        {Mode: envoy.BufferedPartial},
		"duplex":         {Mode: envoy.FullDuplex},
		"served":         {Served: true, ServedHeader: true, ReasonHeader: true},
		"no access log":  {AccessLog: "none"},
		"silent":         {AccessLog: "none", Served: true},
		"several models": {Fleet: several, ReasonHeader: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if len(o.Replicas) == 0 {
				o.Replicas = []string{"10.0.0.1:8000"}
			}
			if len(o.XDS) == 0 {
				o.XDS = []string{"127.0.0.1:9004"}
			}
			var static, ads, files bytes.Buffer
			for what, err := range map[string]error{
				"static": envoy.WriteBootstrap(&static, o), "ads": envoy.WriteDynamic(&ads, o, envoy.ADS), "files": envoy.WriteDynamic(&files, o, "/nonexistent"),
			} {
				if err != nil {
					t.Fatalf("%s: %v", what, err)
				}
			}
			for what, text := range map[string][]byte{"static": static.Bytes(), "ads": ads.Bytes()} {
				load(t, binary, what, text)
			}
			if !bytes.Contains(files.Bytes(), []byte("/nonexistent/lds.json")) {
				t.Errorf("no files: %s", files.Bytes())
			}
		})
	}
}

// load has Envoy check a configuration.
func load(t *testing.T, binary, what string, text []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), what+".yaml")
	must.Do(t, os.WriteFile(file, text, 0o600))
	if out, err := exec.Command(binary, "--mode", "validate", "-c", file, "-l", "error").CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", what, err, out)
	}
}
