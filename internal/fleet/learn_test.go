package fleet

import (
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// The answer is vLLM 0.32's with one adapter loaded.
func TestDecodeModelsOfARealServer(t *testing.T) {
	data := must.Get(os.ReadFile("testdata/models-lora-0.32.0.json"))(t)
	got, _, err := decodeModels(data)
	want := []Model{
		{ID: "qwen-tiny", Base: "qwen-tiny", Root: "/models/qwen-tiny", MaxLen: 4000},
		{ID: "sql-lora", Base: "qwen-tiny", Root: "/models/qwen-tiny", LoRA: prefixhash.LoRA{Name: "sql-lora", Path: "/adapters/sql-lora", Set: true}, MaxLen: 4000},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestDecodeModels(t *testing.T) {
	for _, c := range []struct {
		name, data string
		want       []Model
	}{
		{"aliases share the first name", `{"data":[{"id":"z","root":"/m"},{"id":"a","root":"/m","parent":null},{"id":"b","root":"/other"}]}`,
			[]Model{{ID: "a", Base: "z", Root: "/m"}, {ID: "b", Base: "b", Root: "/other"}, {ID: "z", Base: "z", Root: "/m"}}},
		{"an adapter before its base", `{"data":[{"id":"l","root":"/l","parent":"a"},{"id":"z","root":"/m"},{"id":"a","root":"/m"}]}`,
			[]Model{{ID: "a", Base: "z", Root: "/m"}, {ID: "l", Base: "z", Root: "/m", LoRA: prefixhash.LoRA{Name: "l", Path: "/l", Set: true}}, {ID: "z", Base: "z", Root: "/m"}}},
		{"an unknown parent is the first model", `{"data":[{"id":"m","root":"/m"},{"id":"l","root":"/l","parent":"/m"}]}`,
			[]Model{{ID: "l", Base: "m", Root: "/m", LoRA: prefixhash.LoRA{Name: "l", Path: "/l", Set: true}}, {ID: "m", Base: "m", Root: "/m"}}},
		{"other servers say less", `{"object":"list","data":[{"id":"a"},{"id":"b"}]}`, []Model{{ID: "a", Base: "a"}, {ID: "b", Base: "b"}}},
		{"nameless, repeated and orphaned ids do not count", `{"data":[{"id":""},{"id":"a"},{"id":"a","root":"/x"},{"id":"a","parent":"a"}]}`, []Model{{ID: "a", Base: "a"}}},
		{"only an adapter", `{"data":[{"id":"l","parent":"gone"}]}`, []Model{}},
		{"values of other types are not known", `{"data":[{"id":"a","root":1,"max_model_len":4096.0,"owned_by":null},{"id":"b","parent":false,"max_model_len":"4k","owned_by":["x"]},{"id":"c","max_model_len":99999999999999999999}]}`,
			[]Model{{ID: "a", Base: "a"}, {ID: "b", Base: "b"}, {ID: "c", Base: "c"}}},
		{"models that are their own parents, or have an empty one", `{"data":[{"id":"a","parent":""},{"id":"b","parent":"b","root":"/b"}]}`, []Model{{ID: "a", Base: "a"}, {ID: "b", Base: "b", Root: "/b"}}},
		{"none", `{"data":null}`, []Model{}},
		{"too many", `{"data":[{"id":"a"}` + strings.Repeat(`,{}`, MaxModels) + `,{"id":"z"}]}`, []Model{{ID: "a", Base: "a"}}},
	} {
		if got, _, err := decodeModels([]byte(c.data)); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"data":{}}`, `{"data":[{"id":1}]}`, `{"data":[{"id":"a"},{"id":`, `{"data":[{"id":"a"}`, `{"data":[{"id":"a"}]`} {
		if got, _, err := decodeModels([]byte(bad)); err == nil {
			t.Errorf("%.40q: %+v", bad, got)
		}
	}
}

func TestDecodeEventSources(t *testing.T) {
	for _, c := range []struct {
		name, host, data string
		want             []EventSource
	}{
		{"ranks of vLLM 0.32", "10.0.0.7", `{"1":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5558","replay_endpoint":"tcp://*:5658","buffer_steps":10000,"hwm":100000,"max_queue_size":100000,"topic":"kv"},
			"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":"tcp://*:5557","replay_endpoint":null,"topic":""}}`,
			[]EventSource{{0, "tcp://10.0.0.7:5557", "", ""}, {1, "tcp://10.0.0.7:5558", "tcp://10.0.0.7:5658", "kv"}}},
		{"wildcards", "fd00::1", `{"0":{"endpoint":"tcp://0.0.0.0:1"},"1":{"endpoint":"tcp://[::]:2"},"2":{"endpoint":"tcp://:::3"},"3":{"endpoint":"tcp://10.9.9.9:4","replay_endpoint":"inproc://x"}}`,
			[]EventSource{{0, "tcp://[fd00::1]:1", "", ""}, {1, "tcp://[fd00::1]:2", "", ""}, {2, "tcp://[fd00::1]:3", "", ""}, {3, "tcp://10.9.9.9:4", "", ""}}},
		{"nothing to subscribe to", "h", `{"0":{"publisher":"null","endpoint":"tcp://*:1"},"1":{"enable_kv_cache_events":false,"endpoint":"tcp://*:1"},"4":{}}`, nil},
		{"nothing that can be reached", "h", `{"2":{"endpoint":"inproc://a"},"5":{"endpoint":"ipc:///run/s"}}`, []EventSource{{2, "inproc://a", "", ""}, {5, "ipc:///run/s", "", ""}}},
		{"a render-only server", "h", `{}`, nil},
	} {
		if got, err := decodeEventSources([]byte(c.data), c.host); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	for _, bad := range []string{"", "[]", `{"x":{}}`, `{"-1":{}}`, `{"9999":{}}`, `{"0":{"endpoint":1}}`} {
		if got, err := decodeEventSources([]byte(bad), "h"); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func FuzzDecodeModels(f *testing.F) {
	f.Add([]byte(`{"data":[{"id":"a","root":"/m"},{"id":"l","root":"/l","parent":"a","max_model_len":5}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		models, _, err := decodeModels(data)
		if err != nil {
			return
		}
		for i, m := range models {
			if m.ID == "" || m.Base == "" || m.MaxLen < 0 || i > 0 && models[i-1].ID >= m.ID || m.LoRA.Set != (m.LoRA.Name != "") {
				t.Fatalf("%+v", models)
			}
		}
	})
}

func FuzzDecodeEventSources(f *testing.F) {
	f.Add([]byte(`{"0":{"endpoint":"tcp://*:1","replay_endpoint":"tcp://[::]:2"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		sources, err := decodeEventSources(data, "::1")
		if err != nil {
			return
		}
		sources, _ = (&Options{EventHosts: []string{"::/0", "0.0.0.0/0"}}).admit(sources, "::1")
		for i, s := range sources {
			if checkEndpoint(s.Endpoint) != nil || i > 0 && sources[i-1].Rank >= s.Rank || s.ReplayEndpoint != "" && checkEndpoint(s.ReplayEndpoint) != nil {
				t.Fatalf("%+v", sources)
			}
		}
	})
}

// TestAServerWithoutAPrefixCache: a vLLM says by its page, an SGLang by its own report that it
// keeps nothing; a page that is unreadable for a while changes nothing.
func TestAServerWithoutAPrefixCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const c = "10.0.0.3:8000"
		off, sg := fake(1, 0), fakeSGLang()
		off.answer["/metrics"] = strings.Replace(off.answer["/metrics"], `block_size="16"`, `block_size="16",enable_prefix_caching="False"`, 1)
		sg.answer["/server_info"] = strings.Replace(sg.answer["/server_info"], `"version"`, `"disable_radix_cache":true,"version"`, 1)
		w := start(t, Options{Replicas: list(a, b, c)}, map[string]*fakeReplica{a: off, b: sg, c: fake(1, 0)})
		for range 2 {
			time.Sleep(2 * learnEvery)
			for addr, want := range map[string]bool{a: true, b: true, c: false} {
				if got := w.fleet.Snapshot().Replica(addr).CacheOff; got != want {
					t.Errorf("%s: off %t, want %t", addr, got, want)
				}
			}
			w.net.change(func() { off.status["/metrics"] = http.StatusInternalServerError })
		}
	})
}
