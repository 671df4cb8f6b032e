package xds

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/test/testenv"
)

// TestThePortAndTheFolderMove while Envoys follow: what cannot be had is a note,
// and files of clusters that are gone do not stay.
func TestThePortAndTheFolderMove(t *testing.T) {
	ports, err := testenv.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	f := &some{}
	f.set(many(0, 4, 2)...)
	b := publish(t, f, filepath.Join(t.TempDir(), "first"))
	first := b.envoy("first", envoy.ADS, asIs)
	b.until("an Envoy follows", func() bool { return b.acknowledged() == 4 })

	moved := b.at
	moved.Listen, moved.State = "127.0.0.1:"+strconv.Itoa(ports[0]), filepath.Join(t.TempDir(), "second")
	if err := os.Mkdir(moved.State, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, stale := range []string{"eds-0123.json", unfinished + "cds.json.1", "mine.json"} {
		if err := os.WriteFile(filepath.Join(moved.State, stale), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := b.o
	o.XDS = []string{moved.Listen}
	b.Set(Settings{At: moved, Envoy: o})
	b.until("the Envoy at the old address is cut off", func() bool { return b.acks.connected() == 0 })
	first.Stop() // it kept what it had
	b.o = o
	b.envoy("second", envoy.ADS, asIs)
	b.until("an Envoy follows at the new address", func() bool { return b.acknowledged() == 4 })
	b.until("the new folder is written", func() bool {
		return Kept(moved.State)
	})
	b.until("what was stale there is gone", func() bool {
		entries, err := os.ReadDir(moved.State)
		if err != nil {
			t.Fatal(err)
		}
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

	broken := moved
	broken.TLS = certs.Options{CertFile: "/nowhere.pem", KeyFile: "/nowhere.key"}
	b.Set(Settings{At: broken, Envoy: o})
	b.until("certificates that cannot be read are told", func() bool { return strings.Contains(strings.Join(b.Notes(), "\n"), "xds.tls") })
	if b.acks.connected() != 1 {
		t.Error("the Envoy that followed was cut off for it")
	}
	own := certstest.New(t).Issue("router")
	secured := moved
	secured.TLS = certs.Options{CertFile: own.CertFile, KeyFile: own.KeyFile}
	b.Set(Settings{At: secured, Envoy: o})
	b.until("who speaks no TLS is cut off", func() bool { return b.acks.connected() == 0 && len(b.Notes()) == 0 })
	b.Set(Settings{At: moved, Envoy: o})
	b.until("it follows again", func() bool { return b.acknowledged() == 4 })
	b.Set(Settings{Envoy: o})
	b.until("xDS is off", func() bool { return b.acks.connected() == 0 && b.ready() == 4 })
}
