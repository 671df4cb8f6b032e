package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestATokenizerIsNotWaitedForForever: a model of the start whose loading fails, or takes long,
// does not keep the router unready, is in a note, and is tried again.
func TestATokenizerIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLoading([]ModelConfig{{ID: "away"}, {ID: "slow"}})
		want := func(unready, notes string) {
			t.Helper()
			err := l.ready()
			if (err == nil) != (unready == "") || err != nil && !strings.Contains(err.Error(), unready) {
				t.Errorf("ready: %v, want %q", err, unready)
			}
			if got := strings.Join(l.notes(), "\n"); (got == "") != (notes == "") || !strings.Contains(got, notes) {
				t.Errorf("notes %q, want %q", got, notes)
			}
		}
		want("slow", "")
		away, slow := l.next(), l.next()
		l.done(away, errors.New("the hub is away"))
		want(`"slow": is being loaded`, "the hub is away")
		time.Sleep(stuckAfter)
		want("", `"slow": is being loaded for 10s`)
		l.done(slow, nil)
		want("", "the hub is away")
		l.again()
		if m := l.next(); m != away {
			t.Fatalf("%+v is tried again", m)
		}
		want("", "is being loaded")
		l.done(away, nil)
		l.again()
		want("", "")
	})
}

// TestATokenizerIsTriedAgain: what could not be loaded is loaded later, without a reload.
func TestATokenizerIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		ids := &ids{loading: newLoading([]ModelConfig{{ID: "m", Files: "/no/such/folder"}}), log: slog.New(slog.NewTextHandler(io.Discard, nil))}
		end := make(chan error, 1)
		go func() { end <- ids.load(ctx) }()
		synctest.Wait()
		since := func() time.Time {
			ids.loading.mu.Lock()
			defer ids.loading.mu.Unlock()
			return ids.loading.models[0].since
		}
		first := since()
		time.Sleep(loadAgain + time.Second)
		synctest.Wait()
		if again := since(); again.Sub(first) != loadAgain {
			t.Errorf("tried again after %v", again.Sub(first))
		}
		cancel()
		if err := <-end; err != nil {
			t.Error(err)
		}
	})
}
