package xds

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/certs"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestTheFolderHasNothingStale: files of clusters that are gone, and unfinished ones, do not stay;
// those of others do.
func TestTheFolderHasNothingStale(t *testing.T) {
	folder := t.TempDir()
	for _, stale := range []string{"eds-0123.json", unfinished + "cds.json.1", "mine.json"} {
		must.Do(t, os.WriteFile(filepath.Join(folder, stale), nil, 0o600))
	}
	f := &some{}
	f.set(many(0, 4, 2)...)
	b := publish(t, f, folder)
	b.until("the folder is written", func() bool { return Kept(folder) })
	b.until("what was stale there is gone", func() bool {
		entries := must.Get(os.ReadDir(folder))(t)
		endpoints, mine := 0, false
		for _, e := range entries {
			if e.Name() == "eds-0123.json" || e.Name() == unfinished+"cds.json.1" {
				return false
			}
			endpoints += strings.Count(e.Name(), "eds-")
			mine = mine || e.Name() == "mine.json"
		}
		return endpoints == 3 && mine // all replicas, and two models
	})
}

// TestListenRefuses an address that is taken, and certificates that cannot be read.
func TestListenRefuses(t *testing.T) {
	taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer taken.Close()
	for want, at := range map[string]Options{
		"xds.listen: ":    {Listen: taken.Addr().String()},
		"xds.tls.cert_fi": {Listen: testenv.Addresses(t, 1)[0], TLS: certs.Options{CertFile: "/nowhere.pem", KeyFile: "/nowhere.key"}},
	} {
		p := New(Settings{At: at}, new(some), prometheus.NewRegistry(), nil)
		if err := p.Listen(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%+v: %v, want %s", at, err, want)
		}
	}
}
