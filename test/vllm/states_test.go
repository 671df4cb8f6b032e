//go:build vllm

package vllm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// reloadedAdapter loads the adapter again under its name from another path: what the replica
// has cached of the first one is not counted for the second one.
func (f *fixture) reloadedAdapter(t *testing.T) {
	if !f.adapters {
		return
	}
	path := must.Get(testenv.TinyAdapter(filepath.Join(f.dir, "again")))(t)
	chat := completion(user(story(210)))
	chat["model"] = adapter
	for i := range 2 {
		f.send(t, "/v1/chat/completions", chat).exact(t, fmt.Sprintf("first path, %d", i))
	}
	reply := testenv.Post(t, "http://"+f.replicas[1].Addr+"/v1/load_lora_adapter", object{"lora_name": adapter, "lora_path": path, "load_inplace": true})
	if reply.Status != http.StatusOK {
		t.Fatalf("load_lora_adapter: %d %s", reply.Status, reply.Body)
	}
	f.until(t, "the router knows the other path", func() bool { return f.foreseen(t, chat) == 0 })
	for i := range 2 {
		o := f.send(t, "/v1/chat/completions", chat)
		o.exact(t, fmt.Sprintf("other path, %d", i))
		if (o.hits > 0) != (i > 0) {
			t.Errorf("other path, %d: hit %d tokens", i, o.hits)
		}
	}
}

// asleep puts a replica to sleep: its warm prompts go to the other one until it is awake.
func (f *fixture) asleep(t *testing.T) {
	chat := completion(user(story(220)))
	first := f.send(t, "/v1/chat/completions", chat)
	testenv.Post(t, "http://"+first.replica+"/sleep?level=0", []byte(nil)).Into(t, nil)
	passed := "replica " + first.replica + " is passed over: asleep"
	f.until(t, "the router passes it over", func() bool { return strings.Contains(f.ready(t), passed) })
	for i := range 3 {
		if o := f.send(t, "/v1/chat/completions", chat); o.status != http.StatusOK || o.replica == first.replica {
			t.Errorf("request %d: status %d from %s, which is asleep", i, o.status, o.replica)
		}
	}
	testenv.Post(t, "http://"+first.replica+"/wake_up", []byte(nil)).Into(t, nil)
	f.until(t, "the router names it again", func() bool { return !strings.Contains(f.ready(t), passed) })
	f.send(t, "/v1/chat/completions", chat).exact(t, "awake")
}

// paused pauses a replica that has just answered. Its page shows nothing of it, but a request
// that waits does: the next ones go to the other replica, until the first one is answered.
func (f *fixture) paused(t *testing.T) {
	chat := completion(user(story(230)))
	first := f.send(t, "/v1/chat/completions", chat)
	testenv.Post(t, "http://"+first.replica+"/pause?mode=keep", []byte(nil)).Into(t, nil)
	waits := make(chan outcome)
	raw := must.Get(json.Marshal(chat))(t)
	go func() { waits <- f.post(t, "/v1/chat/completions", raw) }()
	passed := "replica " + first.replica + " is passed over: stalled"
	f.until(t, "the router passes it over", func() bool { return strings.Contains(f.ready(t), passed) })
	if r := testenv.Post(t, f.envoy.URL+"/v1/chat/completions", raw); r.Status != http.StatusOK || r.Header.Get(envoy.HeaderServed) == first.replica {
		t.Errorf("status %d from %s, which is paused", r.Status, r.Header.Get(envoy.HeaderServed))
	}
	testenv.Post(t, "http://"+first.replica+"/resume", []byte(nil)).Into(t, nil)
	if o := <-waits; o.status != http.StatusOK || o.replica != first.replica {
		t.Errorf("the request that waited: status %d from %s", o.status, o.replica)
	}
	f.until(t, "the router names it again", func() bool { return !strings.Contains(f.ready(t), passed) })
}

// until waits for a state of the router.
func (f *fixture) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	testenv.Until(t, time.Minute, what, is, func() any { return f.ready(t) })
}

// ready returns the router's /readyz.
func (f *fixture) ready(t *testing.T) string {
	t.Helper()
	text := must.Get(testenv.Get(t.Context(), "http://"+f.admin+"/readyz"))(t)
	return text
}

// foreseen returns the cached tokens that the router would predict for a chat now.
func (f *fixture) foreseen(t *testing.T, chat object) int {
	t.Helper()
	raw := must.Get(json.Marshal(chat))(t)
	var v struct {
		Decision struct {
			Predicted int `json:"predicted_cached_tokens"`
		}
	}
	testenv.Post(t, "http://"+f.admin+"/debug/explain?path=/v1/chat/completions", raw).Into(t, &v)
	return v.Decision.Predicted
}
