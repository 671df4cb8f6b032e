package xds

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/certs"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
)

// TestThePortAndTheFolderMove while Envoys follow, at the address before and at the new
// one: an address or folder that cannot be had is a note, and files of clusters that are
// gone do not stay.
func TestThePortAndTheFolderMove(t *testing.T) {
	addrs := testenv.Addresses(t, 2)
	f := &some{}
	f.set(many(0, 4, 2)...)
	b := publish(t, f, filepath.Join(t.TempDir(), "first"))
	first := b.envoy("first", envoy.ADS, asIs)
	b.until("an Envoy follows", func() bool { return b.acknowledged() == 4 })

	moved := b.at
	moved.Listen, moved.State = addrs[0], filepath.Join(t.TempDir(), "second")
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
	b.until("a note names the address", func() bool {
		return strings.Contains(strings.Join(b.Notes(), "\n"), "Envoys that were started with "+b.at.Listen+" are served there")
	})
	b.o = o
	b.o.Admin = addrs[1] // the listener they share
	b.envoy("second", envoy.ADS, asIs)
	b.until("an Envoy follows at the new address, one at the old", func() bool { return b.acks.connected() == 2 })
	f.set(many(0, 5, 2)...)
	b.until("both have what joined since", func() bool { return b.acknowledged() == 5 && b.acks.pending() == 0 })
	if n := b.acks.connected(); n != 2 {
		t.Errorf("%d Envoys are connected, not 2", n)
	}
	first.Stop()
	b.until("it is gone", func() bool { return b.acks.connected() == 1 })
	b.until("the new folder is written", func() bool {
		return Kept(moved.State)
	})
	if !Kept(b.at.State) {
		t.Error("the folder before is gone, which Envoys may start with")
	}
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
	b.until("who speaks no TLS is cut off", func() bool {
		return b.acks.connected() == 0 && len(b.Notes()) == 1 && strings.HasPrefix(b.Notes()[0], "no Envoy is connected")
	}) // and the previous address, which required none, is closed
	if conn, err := net.Dial("tcp", b.at.Listen); err == nil {
		conn.Close()
		t.Error("the address without certificates is still open")
	}
	b.Set(Settings{At: moved, Envoy: o})
	b.until("it follows again", func() bool { return b.acknowledged() == 5 })
	b.Set(Settings{Envoy: o})
	b.until("xDS is off", func() bool { return b.acks.connected() == 0 && b.ready() == 5 })
}
