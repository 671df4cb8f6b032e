package xds

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"warmroute/render/testkit/must"
)

// TestAFullDisk: a state that no longer fits is a note; the files from before stay whole,
// connected Envoys still get updates, and once there is room the state is kept again.
func TestAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=512k"); err != nil {
		t.Skipf("no file system of a limited size: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	f := new(some)
	f.set(many(0, 2, 1)...)
	b := publish(t, f, filepath.Join(dir, "state"))
	kept := filepath.Join(dir, "state", fleetFile)
	b.until("the state", func() bool { _, err := os.Stat(kept); return err == nil && Kept(filepath.Dir(kept)) })
	before := must.Get(os.ReadFile(kept))(t)
	filler := filepath.Join(dir, "filler")
	if err := os.WriteFile(filler, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the file system is not full")
	}
	f.set(many(0, 40, 1)...)
	b.until("a note", func() bool { n := b.Notes(); return len(n) == 1 && strings.Contains(n[0], "no space left on device") })
	if after, err := os.ReadFile(kept); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the state is another, %v", err)
	}
	// The next of the state's files may be under way after the note.
	b.until("no unfinished file", func() bool {
		left, err := filepath.Glob(filepath.Join(filepath.Dir(kept), unfinished+"*"))
		return err == nil && len(left) == 0
	})
	must.Do(t, os.Remove(filler))
	f.set(many(0, 41, 1)...)
	b.until("the new state", func() bool {
		b, err := os.ReadFile(kept)
		return err == nil && bytes.Contains(b, []byte("127.1.0.41:8000"))
	})
	b.until("no note", func() bool { return len(b.Notes()) == 0 })
	b.stop()
	if n := strings.Count(b.log.String(), "is not stored"); n > 4 {
		t.Errorf("%d lines:\n%s", n, b.log.String())
	}
}
