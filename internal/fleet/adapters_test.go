package fleet

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestAdaptersComeAndGo: an adapter that is loaded, loaded again from another path, or unloaded is
// known within a second, and within half of one where there are adapters already, while the
// replica stays; another base model is another cache. An answer that is asked for is the newest.
func TestAdaptersComeAndGo(t *testing.T) {
	list := func(adapters ...string) string {
		out := `{"data":[{"id":"m","root":"/m"}`
		for _, path := range adapters {
			out += fmt.Sprintf(`,{"id":"ad","root":%q,"parent":"m"}`, path)
		}
		return out + "]}"
	}
	synctest.Test(t, func(t *testing.T) {
		one := fake(1, 0)
		w := start(t, Options{Replicas: []ReplicaOptions{{Address: a}}}, map[string]*fakeReplica{a: one})
		w.expect("joined " + a + " 1")
		path := func() string {
			if m := w.fleet.Snapshot().Replica(a).Model("ad"); m != nil {
				return m.LoRA.Path
			}
			return "none"
		}
		for i, c := range []struct {
			models, want string
			within       time.Duration
		}{
			{list("/v1"), "/v1", time.Second},
			{list("/v2"), "/v2", time.Second / 2},
			{list("/v1"), "/v1", time.Second / 2},
			{list(), "none", time.Second / 2},
			{list("/v3"), "/v3", time.Second},
		} {
			w.pass(time.Duration(i) * 170 * time.Millisecond)
			w.net.change(func() { one.answer["/v1/models"] = c.models })
			if got := w.fleet.AdapterPath(t.Context(), a, "ad", true); got != c.want && c.want != "none" {
				t.Errorf("%s: asked, it is at %q", c.models, got)
			}
			w.pass(c.within + publishEvery)
			if got := path(); got != c.want {
				t.Errorf("%s: known at %q after %v, want %q", c.models, got, c.within, c.want)
			}
		}
		w.expect()
		w.net.change(func() { one.answer["/v1/models"] = `{"data":[{"id":"other","root":"/o"}]}` })
		w.pass(3 * time.Second)
		w.expect("left "+a+" 1", "joined "+a+" 2")
		w.net.change(func() { one.status["/v1/models"] = 500 })
		if got := w.fleet.AdapterPath(t.Context(), a, "ad", true); got != "" {
			t.Errorf("%q, want nothing of a replica that does not answer", got)
		}
		w.pass(5 * time.Second)
		w.expect() // scrapes decide
	})
	synctest.Test(t, func(t *testing.T) {
		one := fake(1, 0)
		one.answer["/v1/models"] = list("/v1")
		w := start(t, Options{Replicas: []ReplicaOptions{{Address: a, Models: []ModelOptions{{ID: "m"}, {ID: "ad", Base: "m", LoRA: true, LoRAPath: "/told"}}}}}, map[string]*fakeReplica{a: one})
		if got := w.fleet.AdapterPath(t.Context(), a, "ad", true); got != "/told" {
			t.Errorf("%q, want the configured path", got)
		}
	})
}
