package fleet

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/internal/config"
)

// The configuration file is the list: what it gains joins, what it loses
// leaves, and a mistake in it changes nothing.
func TestHotReload(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmroute.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("fleet: {replicas: [{address: '10.0.0.1:8000'}]}\n")
	synctest.Test(t, func(t *testing.T) {
		f := &config.File[file]{Path: path, Defaults: func() file { return file{DefaultOptions()} }}
		c, err := f.Load()
		if err != nil {
			t.Fatal(err)
		}
		w := start(t, c.Fleet, map[string]*fakeReplica{a: fake(1, 0), b: fake(1, 0)})
		var refused atomic.Int32
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- f.Watch(ctx, func(c file) error { return w.fleet.SetReplicas(c.Fleet.Replicas) }, func(error) { refused.Add(1) })
		}()
		defer func() {
			cancel()
			<-done
		}()
		w.expect("joined " + a + " 1")
		write("fleet: {replicas: [{address: '10.0.0.1:8000'}, {address: '[fd00::2]:8000'}]}\n")
		w.pass(5 * time.Second)
		w.expect("joined " + b + " 2")
		for _, mistake := range []string{"fleet: {replicas: [{address: '10.0.0.1'}]}\n", "fleet: [", "flet: {}\n"} {
			write(mistake)
			w.pass(5 * time.Second)
			w.expect()
			w.expectServing(a, b)
		}
		if refused.Load() != 3 {
			t.Errorf("%d mistakes were told, not 3", refused.Load())
		}
		write("fleet: {replicas: [{address: '[fd00::2]:8000'}]}\n")
		w.pass(5 * time.Second)
		w.expect("left " + a + " 1")
		w.expectServing(b)
	})
}
