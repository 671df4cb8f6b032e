package xds

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/envoy"
	"warmroute/internal/fleet"
	"warmroute/prefixhash"
)

// replica serves names of a base model; "+name" is an adapter of it.
func replica(addr string, ready bool, base string, names ...string) *fleet.Replica {
	r := &fleet.Replica{Addr: addr, Ready: ready, Ranks: []int{0}}
	for _, n := range names {
		m := fleet.Model{ID: n, Base: base}
		if n[0] == '+' {
			m.ID, m.LoRA = n[1:], prefixhash.LoRA{Set: true, Name: n[1:]}
		}
		r.Models = append(r.Models, m)
	}
	return r
}

func plan(replicas ...*fleet.Replica) envoy.Fleet {
	return Plan(fleet.NewSnapshot(replicas...), true)
}

func TestPlan(t *testing.T) {
	up, down := func(a string) envoy.Endpoint { return envoy.Endpoint{Addr: a} }, func(a string) envoy.Endpoint { return envoy.Endpoint{Addr: a, Down: true} }
	for name, c := range map[string]struct {
		in   []*fleet.Replica
		want envoy.Fleet
	}{
		"one model, an alias and an adapter everywhere": {
			[]*fleet.Replica{replica("1:1", true, "m", "m", "alias", "+lora"), replica("2:1", true, "m", "m", "alias", "+lora")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), up("2:1")}},
		},
		"one that was never asked": {
			[]*fleet.Replica{replica("1:1", true, "m", "m"), replica("2:1", false, "m")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), down("2:1")},
				Unread: envoy.Group{Name: "unread", Models: []string{"m"}, Replicas: []envoy.Endpoint{down("2:1")}}},
		},
		"two models, and one that was never asked": {
			[]*fleet.Replica{replica("1:1", true, "a", "a"), replica("2:1", true, "b", "b"), replica("3:1", false, "m")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), up("2:1"), down("3:1")}, Groups: []envoy.Group{
				{Name: "model:a", Models: []string{"a"}, Replicas: []envoy.Endpoint{up("1:1")}},
				{Name: "model:b", Models: []string{"b"}, Replicas: []envoy.Endpoint{up("2:1")}},
			}, Unread: envoy.Group{Name: "unread", Models: []string{"a", "b"}, Replicas: []envoy.Endpoint{down("3:1")}}},
		},
		"nobody was ever asked": {
			[]*fleet.Replica{replica("1:1", false, "m")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1")}},
		},
		"nobody answers the router": {
			[]*fleet.Replica{replica("1:1", false, "m", "m"), replica("2:1", false, "m")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), up("2:1")},
				Unread: envoy.Group{Name: "unread", Models: []string{"m"}, Replicas: []envoy.Endpoint{up("2:1")}}},
		},
		"an adapter that one replica alone has": {
			[]*fleet.Replica{replica("1:1", true, "m", "m", "+only"), replica("2:1", true, "m", "m")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), up("2:1")}, Groups: []envoy.Group{
				{Name: "model:m", Models: []string{"m"}, Replicas: []envoy.Endpoint{up("1:1"), up("2:1")}},
				{Name: "model:only", Models: []string{"only"}, Replicas: []envoy.Endpoint{up("1:1")}},
			}},
		},
		"two models, one down": {
			[]*fleet.Replica{replica("1:1", true, "a", "a", "x"), replica("2:1", false, "b", "b")},
			envoy.Fleet{Replicas: []envoy.Endpoint{up("1:1"), down("2:1")}, Groups: []envoy.Group{
				{Name: "model:a", Models: []string{"a", "x"}, Replicas: []envoy.Endpoint{up("1:1")}},
				{Name: "model:b", Models: []string{"b"}, Replicas: []envoy.Endpoint{down("2:1")}},
			}},
		},
		"nobody": {nil, envoy.Fleet{}},
	} {
		got := plan(c.in...)
		got.Listing = ""
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n%+v, want\n%+v", name, got, c.want)
		}
	}
}

// TestMoreModelsThanAreRead: a replica that lists more may serve any model that no other does.
func TestMoreModelsThanAreRead(t *testing.T) {
	var names []string
	for i := range fleet.MaxModels {
		names = append(names, fmt.Sprint("n", i))
	}
	for n, want := range map[int]int{fleet.MaxModels: 1, fleet.MaxModels - 1: 0} {
		if f := plan(replica("1:1", true, "m", names[:n]...), replica("2:1", true, "b", "b")); len(f.Unread.Replicas) != want {
			t.Errorf("%d models: others are sent to %v", n, f.Unread.Replicas)
		}
		if f := plan(replica("1:1", true, "m", names[:n]...)); len(f.Unread.Replicas) > 0 {
			t.Errorf("%d models everywhere: others are sent to %v", n, f.Unread.Replicas)
		}
	}
}

// TestListing: the listing is the union of the models that any client may use, as most replicas
// list them.
func TestListing(t *testing.T) {
	own := replica("3:1", true, "secret", "secret")
	own.Tenant = "t"
	f := plan(replica("1:1", true, "a", "a", "+lora", "+b"), replica("2:1", true, "b", "b"), replica("4:1", true, "b", "b"), own)
	var got struct {
		Data []struct{ ID, Root, Parent string }
	}
	if err := json.Unmarshal([]byte(f.Listing), &got); err != nil {
		t.Fatalf("%v: %s", err, f.Listing)
	}
	want := []struct{ ID, Root, Parent string }{{"a", "a", ""}, {"b", "b", ""}, {"lora", "lora", "a"}}
	if !reflect.DeepEqual(got.Data, want) {
		t.Errorf("%+v, want %+v", got.Data, want)
	}
	if one := plan(replica("1:1", true, "a", "a")); one.Listing != "" {
		t.Errorf("with one model Envoy answers for its replicas: %s", one.Listing)
	}
}

// TestListingHasVLLMsFields: an adapter has no length. A state that is kept has all of it.
func TestListingHasVLLMsFields(t *testing.T) {
	a := fleet.Model{ID: "a", Base: "a", Root: "/models/a", MaxLen: 9}
	lora := fleet.Model{ID: "l", Base: "a", Root: "/models/a", LoRA: prefixhash.LoRA{Set: true, Name: "l", Path: "/loras/l"}, MaxLen: 9}
	models := map[string][]fleet.Model{"1:1": {a}, "2:1": {lora}}
	var replicas []*fleet.Replica
	for addr, all := range models {
		replicas = append(replicas, &fleet.Replica{Addr: addr, Ready: true, Reported: fleet.Reported{Models: all}})
	}
	want := `{"object":"list","data":[` +
		`{"id":"a","object":"model","created":0,"owned_by":"vllm","root":"/models/a","parent":null,"max_model_len":9,"permission":[]},` +
		`{"id":"l","object":"model","created":0,"owned_by":"vllm","root":"/loras/l","parent":"a","max_model_len":null,"permission":[]}]}`
	if got := plan(replicas...).Listing; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	f := new(some)
	f.set(replicas...)
	folder := t.TempDir()
	p := New(Settings{At: Options{State: folder}}, f, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	clock := time.Now()
	p.now = func() time.Time { return clock }
	for range 2 {
		p.look()
		clock = clock.Add(patience)
		p.step()
	}
	if got := (Options{State: folder}).Served(); !reflect.DeepEqual(got, models) {
		t.Errorf("read back: %+v", got)
	}
	again := New(Settings{At: Options{State: folder}}, new(some), prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	again.restore()
	if got := (Options{State: folder}).Served(); again.previous == nil || !reflect.DeepEqual(got, models) {
		t.Errorf("after a restart: %+v", got)
	}
	if got := (Options{State: t.TempDir()}).Served(); got != nil {
		t.Errorf("without a state: %v", got)
	}
}

// TestNamedModels: a model that only settings or the last state name has a cluster, of the replicas
// that have not said what they serve, or of none, and is in the list; a listed replica's word counts.
func TestNamedModels(t *testing.T) {
	for name, c := range map[string]struct {
		in   []*fleet.Replica
		want []envoy.Endpoint
	}{
		"no replica":                  {[]*fleet.Replica{replica("1:1", true, "a", "a")}, nil},
		"one that was never asked":    {[]*fleet.Replica{replica("1:1", true, "a", "a"), replica("2:1", false, "")}, []envoy.Endpoint{{Addr: "2:1", Down: true}}},
		"one that serves it, too":     {[]*fleet.Replica{replica("1:1", true, "a", "a"), replica("2:1", true, "b", "b"), replica("3:1", false, "")}, []envoy.Endpoint{{Addr: "2:1"}}},
		"one that served it, is away": {[]*fleet.Replica{replica("1:1", true, "a", "a"), replica("2:1", false, "b", "b")}, []envoy.Endpoint{{Addr: "2:1", Down: true}}},
	} {
		s := fleet.NewSnapshot(c.in...)
		s.Named = []*fleet.Replica{replica("", false, "b", "b"), {Configured: fleet.Configured{Tenant: "t"}, Reported: fleet.Reported{Models: []fleet.Model{{ID: "own", Base: "own"}}}}}
		f := Plan(s, true)
		at := slices.IndexFunc(f.Groups, func(g envoy.Group) bool { return slices.Contains(g.Models, "b") })
		if at < 0 || !slices.Equal(f.Groups[at].Replicas, c.want) || !strings.Contains(f.Listing, `"id":"b"`) || strings.Contains(f.Listing, `"own"`) {
			t.Errorf("%s: %+v", name, f)
		}
	}
}
