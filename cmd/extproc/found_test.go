package main

import (
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/internal/testenv"
	"warmroute/internal/tokens"
)

// TestATokenizerIsNotWaitedForForever: a configured model keeps a router that starts unready until its
// loading has failed, and no longer than 10 s; later it does so never.
func TestATokenizerIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			tried bool
			after time.Duration
			ready bool
		}{
			"at the start": {false, 0, false}, "failed": {true, 0, true}, "takes long": {false, stuckAfter, true}, "nearly": {false, stuckAfter - 1, false},
		} {
			ids := &ids{start: time.Now()}
			ids.models.Store(&[]ModelConfig{{ID: "m", Files: "/no/such/folder"}})
			ids.discovery = tokens.NewDiscovery(tokens.DiscoveryOptions{Local: tokens.NewLocal(tokens.LocalOptions{}), Wanted: func() map[string]tokens.Wanted {
				return map[string]tokens.Wanted{"m": {Root: "/no/such/folder", Configured: true}}
			}})
			if c.tried {
				ids.discovery.Look(t.Context())
			}
			time.Sleep(c.after)
			if err := ids.ready(); (err == nil) != c.ready || err != nil && !strings.Contains(err.Error(), `tokens of model "m"`) {
				t.Errorf("%s: %v", name, err)
			}
			if ids.models.Store(&[]ModelConfig{{ID: "later"}}); c.ready && ids.ready() != nil {
				t.Errorf("%s: not ready because of a reload", name)
			}
		}
	})
}

// TestATokenizerThatCannotBeHadIsANote: /readyz names the model and the cause, of one that cannot be
// fetched, and of a folder that only the replica has.
func TestATokenizerThatCannotBeHadIsANote(t *testing.T) {
	t.Setenv("HF_HOME", t.TempDir())
	t.Setenv("HF_ENDPOINT", "http://127.0.0.1:1")
	folder := filepath.Join(t.TempDir(), "absent")
	for root, cause := range map[string][]string{"own/model": {": fetch own/model: ", "connection refused"}, folder: {"its root is no folder with a tokenizer here"}} {
		sim := testenv.StartSimulator(t, "-model", "m", "-root", root, "-replay", "")
		r, _ := startRouter(t, fmt.Sprintf("index_service: {listen: \"\"}\nfleet: {replicas: [{address: %q}]}\n", sim.Addr))
		until(t, "a note", func() bool {
			code, page := get(t, "http://"+r.reloads.inForce().Admin.Listen+"/readyz")
			_, said, noted := strings.Cut(page, fmt.Sprintf(`note: tokens of model "m": replicas compute them, because its tokenizer %q cannot be found, fetched or loaded`, root))
			return code == http.StatusOK && noted && !slices.ContainsFunc(cause, func(c string) bool { return !strings.Contains(said, c) })
		})
	}
}
