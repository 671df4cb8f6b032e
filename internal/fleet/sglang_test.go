package fleet

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/internal/sglang"
	"warmroute/prefixhash"
)

// fakeSGLang answers as an SGLang 0.5.23 that serves model "m", with all that is asked of it.
func fakeSGLang() *fakeReplica {
	return &fakeReplica{status: map[string]int{}, slow: map[string]bool{}, answer: map[string]string{
		"/v1/models": `{"data":[{"id":"m","root":"m","owned_by":"sglang","max_model_len":4096},{"id":"a","root":"/a","parent":"m","owned_by":"sglang","max_model_len":null}]}`,
		"/ready":     "",
		"/server_info": `{"version":"0.5.23","model_path":"/models/m","page_size":16,"max_total_num_tokens":1600,"enable_cache_report":true,"enable_metrics":true,
"kv_events_config":"{\"format\":\"dynamo\"}","kv_events":{"publisher":"zmq","endpoint_host":"*","endpoint_port_base":5557,"topic":"kv","block_size":16,"dp_size":2,"replay_endpoint_port_base":5657}}`,
		"/metrics": "sglang:num_running_reqs{model_name=\"m\",dp_rank=\"1\"} 3\nsglang:num_queue_reqs{model_name=\"m\",dp_rank=\"1\"} 2\nsglang:token_usage{model_name=\"m\",dp_rank=\"1\"} 0.25\n" +
			"sglang:prompt_tokens_total{model_name=\"m\"} 100\nsglang:cached_tokens_total{model_name=\"m\",cache_source=\"device\"} 30\nsglang:cached_tokens_total{model_name=\"m\",cache_source=\"host\"} 10\n",
	}}
}

// TestSGLang: an SGLang is recognised by its models, and its events, blocks, model and load are
// found without configuration. It is never asked for /health, which generates a token.
func TestSGLang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:30000"
		w := start(t, Options{Replicas: list(addr)}, map[string]*fakeReplica{addr: fakeSGLang()})
		w.expectServing(addr)
		w.pass(3 * time.Second) // its models are listed again
		r := w.fleet.Snapshot().Replica(addr)
		if r.SGLang == nil || !r.SGLang.Dynamo() || r.Version != "sglang 0.5.23" || r.BlockSize != 16 || r.Blocks != 100 {
			t.Errorf("%+v", r)
		}
		if m := r.Model("m"); m == nil || m.Root != "/models/m" || m.MaxLen != 4096 {
			t.Errorf("%+v", m)
		}
		if m := r.Model("m:a"); m == nil || m.LoRA != (prefixhash.LoRA{Name: "a", Path: "/a", Set: true}) || m.Base != "m" || r.Model("a") != nil {
			t.Errorf("%+v, all: %+v", m, r.Models)
		}
		if path := w.fleet.AdapterPath(t.Context(), addr, "a", false); path != "/a" {
			t.Errorf("the adapter is loaded from %q", path)
		}
		want := []EventSource{{0, "tcp://10.0.0.1:5557", "tcp://10.0.0.1:5657", "kv"}, {1, "tcp://10.0.0.1:5558", "tcp://10.0.0.1:5658", "kv"}}
		if len(r.Events) != 2 || r.Events[0] != want[0] || r.Events[1] != want[1] {
			t.Errorf("%+v", r.Events)
		}
		if l, ok := r.LoadOf(1); !ok || l.Running != 3 || l.Waiting != 2 || l.KVUsage != 0.25 {
			t.Errorf("%+v", l)
		}
		if l, ok := r.LoadOf(0); !ok || l.PrefixQueries != 100 || l.PrefixHits != 40 {
			t.Errorf("%+v", l)
		}
		w.pass(time.Minute)
		w.expectServing(addr)
		if n := w.net.count("/health"); n > 0 {
			t.Errorf("/health was requested %d times", n)
		}
	})
}

// TestSGLangWithoutFlags: without metrics, events and cache report an SGLang is served, by
// /ready, and the log says once what to set.
func TestSGLangWithoutFlags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:30000"
		bare := fakeSGLang()
		delete(bare.answer, "/metrics")
		bare.answer["/server_info"] = `{"version":"0.5.23","page_size":1,"kv_events":null}`
		var log bytes.Buffer
		w := start(t, Options{Replicas: list(addr), Logger: slog.New(slog.NewTextHandler(&log, nil))}, map[string]*fakeReplica{addr: bare})
		w.expectServing(addr)
		w.pass(2 * time.Minute)
		w.expectServing(addr)
		if w.net.count("/health") > 0 || w.net.count("/ready") == 0 {
			t.Errorf("/health %d times, /ready %d times", w.net.count("/health"), w.net.count("/ready"))
		}
		w.net.change(func() { bare.refuse = true })
		w.pass(10 * time.Second)
		w.expectServing()
		for _, flag := range []string{"--kv-events-config", "--enable-cache-report", "--enable-metrics"} {
			if n := strings.Count(log.String(), "start SGLang with "+flag); n != 1 {
				t.Errorf("the log names %s %d times:\n%s", flag, n, log.String())
			}
		}
	})
}

// TestSGLangLoads: the load of an SGLang without /metrics is that of /v1/loads, which is then
// read in place of /metrics until it is refused.
func TestSGLangLoads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:30000"
		bare := fakeSGLang()
		metrics := bare.answer["/metrics"]
		delete(bare.answer, "/metrics")
		bare.answer["/v1/loads"] = "# TYPE sglang_num_running_reqs gauge\nsglang_num_running_reqs{dp_rank=\"0\"} 4\nsglang_num_running_reqs{dp_rank=\"1\"} 1\n" +
			"sglang_num_waiting_reqs{dp_rank=\"0\"} 2\nsglang_num_used_tokens{dp_rank=\"0\"} 400\nsglang_token_usage{dp_rank=\"0\"} 0.25\n"
		w := start(t, Options{Replicas: list(addr)}, map[string]*fakeReplica{addr: bare})
		w.pass(10 * time.Second)
		r := w.fleet.Snapshot().Replica(addr)
		if l, ok := r.LoadOf(0); !ok || l.Running != 4 || l.Waiting != 2 || l.KVUsage != 0.25 {
			t.Errorf("rank 0: %+v", l)
		}
		if l, ok := r.LoadOf(1); !ok || l.Running != 1 || l.Waiting != 0 {
			t.Errorf("rank 1: %+v", l)
		}
		before := w.net.count("/metrics")
		w.pass(time.Minute)
		if n := w.net.count("/metrics") - before; n != 0 {
			t.Errorf("/metrics was requested %d times more", n)
		}
		w.net.change(func() {
			delete(bare.answer, "/v1/loads")
			bare.answer["/metrics"] = metrics
		})
		w.pass(10 * time.Second)
		w.expectServing(addr)
		if l, ok := w.fleet.Snapshot().Replica(addr).LoadOf(1); !ok || l.Running != 3 {
			t.Errorf("rank 1 by /metrics: %+v", l)
		}
	})
}

// TestSGLangElsewhere: a publisher on another host needs fleet.event_hosts.
func TestSGLangElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:30000"
		far := fakeSGLang()
		far.answer["/server_info"] = strings.Replace(far.answer["/server_info"], `"endpoint_host":"*"`, `"endpoint_host":"10.9.9.9"`, 1)
		w := start(t, Options{Replicas: list(addr)}, map[string]*fakeReplica{addr: far})
		if r := w.fleet.Snapshot().Replica(addr); len(r.Events) != 0 || !strings.Contains(r.EventsRefused, "fleet.event_hosts") {
			t.Errorf("%+v, refused %q", r.Events, r.EventsRefused)
		}
	})
}

// TestSGLangWithConfiguredModels is recognised by the models that it lists, and remembered while it
// does not list them.
func TestSGLangWithConfiguredModels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const addr = "10.0.0.1:30000"
		o := ReplicaOptions{Address: addr, Models: []ModelOptions{{ID: "mine"}, {ID: "sql", Base: "mine", LoRA: true}}}
		r := fakeSGLang()
		w := start(t, Options{Replicas: []ReplicaOptions{o}}, map[string]*fakeReplica{addr: r})
		for _, status := range []int{0, 503} {
			w.net.change(func() { r.status["/v1/models"] = status })
			w.pass(2 * learnEvery)
			got := w.fleet.Snapshot().Replica(addr)
			if got.SGLang == nil || got.Version != "sglang 0.5.23" || len(got.Models) != 2 || got.Model("mine") == nil || got.Model("mine:sql") == nil || !got.Ready {
				t.Errorf("status %d: %+v", status, got)
			}
		}
	})
}

// TestAdaptersOfSGLangInTheFile: they are named there as vLLM's are, or as requests name them.
func TestAdaptersOfSGLangInTheFile(t *testing.T) {
	for _, id := range []string{"sql", "m:sql"} {
		models := configuredModels(ReplicaOptions{Models: []ModelOptions{{ID: "m"}, {ID: id, Base: "m", LoRA: true}}})
		got := modelsOf(models, &sglang.Server{ModelPath: "/models/m"})
		want := []Model{{ID: "m", Base: "m", Root: "/models/m"}, {ID: "m:sql", Base: "m", Root: "/models/m", LoRA: prefixhash.LoRA{Name: "sql", Set: true}}}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %+v", id, got)
		}
	}
}

// TestNamesOfSGLang: all names of an SGLang are of one model, though each is listed as its own root.
func TestNamesOfSGLang(t *testing.T) {
	models, _, err := decodeModels([]byte(`{"data":[{"id":"x","root":"x"},{"id":"y","root":"y"},{"id":"a","root":"/a","parent":"y"}]}`))
	got := modelsOf(models, &sglang.Server{ModelPath: "/models/m"})
	if err != nil || len(got) != 4 || len(bases(got)) != 1 {
		t.Errorf("%v: %+v", err, got)
	}
}

// TestAdaptersOfManyNames: each adapter has a name of each base model's, within a bound.
func TestAdaptersOfManyNames(t *testing.T) {
	var list []Model
	for i := range 100 {
		list = append(list, Model{ID: fmt.Sprintf("m%d", i), Base: "m0"}, Model{ID: fmt.Sprintf("a%d", i), Base: "m0", LoRA: prefixhash.LoRA{Name: fmt.Sprintf("a%d", i), Set: true}})
	}
	if got := modelsOf(list[:20], &sglang.Server{}); len(got) != 110 {
		t.Errorf("%d models of 10 names and 10 adapters", len(got))
	}
	if got := modelsOf(list, &sglang.Server{}); len(got) > MaxModels+100 {
		t.Errorf("%d models", len(got))
	}
}
