package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/render/testkit/must"
)

type watched struct {
	t   *testing.T
	dir string
	now <-chan os.Signal

	mu      sync.Mutex
	applied []float64
	failed  []string
	refuse  error
}

func (w *watched) start() (stop func()) {
	f := &File[settings]{Path: filepath.Join(w.dir, "c.yaml"), Defaults: defaults, Now: w.now}
	must.Get(f.Load())(w.t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- f.Watch(ctx, func(s settings) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.refuse != nil {
				return w.refuse
			}
			w.applied = append(w.applied, s.Ratio)
			return nil
		}, func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.failed = append(w.failed, err.Error())
		})
	}()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

func (w *watched) write(text string) {
	must.Do(w.t, os.WriteFile(filepath.Join(w.dir, "c.yaml"), []byte(text), 0o600))
}

// pass advances the virtual time.
func (w *watched) pass(d time.Duration) { time.Sleep(d); synctest.Wait() }

func (w *watched) expect(applied []float64, failed ...string) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.applied, applied) || len(w.failed) != len(failed) {
		w.t.Fatalf("applied %v, want %v; failed %q, want %q", w.applied, applied, w.failed, failed)
	}
	for i, text := range failed {
		if !strings.Contains(w.failed[i], text) {
			w.t.Fatalf("failed[%d] is %q, want %q in it", i, w.failed[i], text)
		}
	}
}

func TestWatchKeepsTheOldOnABadFile(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir}
		w.write("ratio: 1\n")
		stop := w.start()
		defer stop()
		w.pass(10 * time.Second)
		w.expect(nil) // unchanged file
		w.write("ratio: 2\n")
		w.pass(3 * time.Second)
		w.write("ratio: much\n")
		w.pass(20 * time.Second) // a mistake is reported once
		mistake := "c.yaml:1: ratio: \"much\" is not a number"
		w.expect([]float64{2}, mistake)
		must.Do(t, os.Remove(filepath.Join(dir, "c.yaml")))
		w.pass(20 * time.Second) // and so is a missing file
		missing := "no such file or directory"
		w.expect([]float64{2}, mistake, missing)
		w.write("ratio: 3\n")
		w.pass(3 * time.Second)
		w.mu.Lock()
		w.refuse = errors.New("ratio: cannot change that")
		w.mu.Unlock()
		w.write("# four\nratio: 4\n")
		w.pass(20 * time.Second)
		w.expect([]float64{2, 3}, mistake, missing, "c.yaml:2: ratio: cannot change that")
	})
}

// TestWatchAppliesAFileThatComesBack: content that was not there for a while is applied
// again, or refused again, although it has not changed. Now tries a refused file again.
func TestWatchAppliesAFileThatComesBack(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		now := make(chan os.Signal)
		w := &watched{t: t, dir: dir, now: now}
		remove := func() {
			must.Do(t, os.Remove(filepath.Join(dir, "c.yaml")))
			w.pass(3 * time.Second)
		}
		write := func(text string) { w.write(text); w.pass(3 * time.Second) }
		w.write("ratio: 1\n")
		stop := w.start()
		defer stop()
		missing, mistake := "no such file or directory", "\"much\" is not a number"
		remove()
		write("ratio: 1\n")
		w.expect([]float64{1}, missing)
		now <- syscall.SIGHUP
		w.pass(time.Second)
		w.expect([]float64{1}, missing) // the file is in force
		write("ratio: much\n")
		remove()
		write("ratio: much\n")
		w.expect([]float64{1}, missing, mistake, missing, mistake)
		w.mu.Lock()
		w.refuse = errors.New("ratio: not now")
		w.mu.Unlock()
		write("ratio: 2\n")
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		w.pass(3 * time.Second)
		w.expect([]float64{1}, missing, mistake, missing, mistake, "ratio: not now")
		now <- syscall.SIGHUP
		w.pass(time.Second)
		w.expect([]float64{1, 2}, missing, mistake, missing, mistake, "ratio: not now")
	})
}

// A file that is still being written is not applied half.
func TestWatchWaitsForTheWriter(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir}
		w.write("ratio: 1\n")
		stop := w.start()
		defer stop()
		w.pass(2*time.Second - 50*time.Millisecond)
		for _, text := range []string{"ratio: 5", "ratio: 55", "ratio: 555"} {
			w.write(text)
			w.pass(150 * time.Millisecond)
		}
		w.pass(time.Second)
		w.expect([]float64{555})
	})
}

// Kubernetes swaps a symlink to a directory: the file's own name never changes.
func TestWatchSeesSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, dir: dir}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, text := range map[string]string{"..1": "ratio: 1\n", "..2": "ratio: 2\n"} {
			must(os.Mkdir(filepath.Join(dir, name), 0o700))
			must(os.WriteFile(filepath.Join(dir, name, "c.yaml"), []byte(text), 0o600))
		}
		must(os.Symlink("..1", filepath.Join(dir, "..data")))
		must(os.Symlink("..data/c.yaml", filepath.Join(dir, "c.yaml")))
		stop := w.start()
		defer stop()
		must(os.Symlink("..2", filepath.Join(dir, "..tmp")))
		must(os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
		w.pass(3 * time.Second)
		w.expect([]float64{2})
	})
}
