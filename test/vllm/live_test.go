//go:build vllm

package vllm

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// pairs are the replicas that are booted, two of each, and their tests: one pair shows
// all that a model can show, the others what differs in their release or model. The
// longest first.
var pairs = []struct {
	version
	shows func(*fixture, *testing.T)
}{
	{version{name: "0.32.0", model: "qwen3", blockSize: 32, blocks: 512, adapters: true, sources: true, nixl: true}, (*fixture).everything},
	{version{name: "0.21.0", model: "qwen3", blockSize: 16, blocks: 1024}, (*fixture).tokens},
	// Models whose layers keep different parts of a prompt. One replica of the first
	// drafts with n-grams, which drops no block.
	{version{name: "0.32.0", model: "gemma3", blockSize: 32, blocks: 2000, sources: true,
		second: []string{"--speculative-config", `{"method":"ngram","num_speculative_tokens":2,"prompt_lookup_max":3,"prompt_lookup_min":2}`}}, (*fixture).conversations},
	{version{name: "0.32.0", model: "qwen3-next", blockSize: 32, blocks: 400, sources: true}, (*fixture).conversations},
	// One at a time, the second replica by priority.
	{version{name: "0.32.0", model: "qwen3", blockSize: 32, blocks: 512, sources: true, holds: true,
		flags: []string{"--max-num-seqs", "1"}, second: []string{"--scheduling-policy", "priority"}}, (*fixture).order},
	// A release between the others.
	{version{name: "0.27.0", model: "qwen3", blockSize: 32, blocks: 512}, (*fixture).dense},
}

// TestLive boots each pair once. Two pairs are up at a time: while one gets its
// requests, the other boots.
func TestLive(t *testing.T) {
	next := make(chan int, len(pairs))
	for i := range pairs {
		next <- i
	}
	close(next)
	var lanes sync.WaitGroup
	for range 2 {
		lanes.Go(func() {
			for i := range next {
				p := pairs[i]
				t.Run(strings.Join(append([]string{p.name, p.model}, p.flags...), " "), func(t *testing.T) { p.shows(boot(t, p.version), t) })
			}
		})
	}
	lanes.Wait()
}

// everything tests all that a dense model can show.
func (f *fixture) everything(t *testing.T) {
	t.Run("alone", f.everythingAlone)
	t.Run("prefill and decode apart", f.apart)
}

// everythingAlone is all of it where each replica computes its own prompts.
func (f *fixture) everythingAlone(t *testing.T) {
	f.awaitTrust(t)
	before := f.tokenSources(t)
	t.Run("second turns", f.secondTurns)
	t.Run("every route is exact", f.everyRoute)
	t.Run("official clients", f.clients)
	t.Run("adapters", f.adapterRequests)
	t.Run("an adapter from another path", f.reloadedAdapter)
	t.Run("usage", f.usage)
	f.mostlyInProcess(t, before, 0.05)
	f.launchAlone() // boots while the next part waits for events
	t.Run("generated requests", f.generated)
	t.Run("sidecar", f.sidecar)
	t.Run("reset", f.reset)
	t.Run("asleep", f.asleep)
	t.Run("paused", f.paused)
	t.Run("router killed under load", f.killRouter)
	t.Run("replica restart", f.restart)
}

// dense is the first of it.
func (f *fixture) dense(t *testing.T) {
	f.awaitTrust(t)
	before := f.tokenSources(t)
	t.Run("second turns", f.secondTurns)
	t.Run("usage", f.usage)
	f.mostlyInProcess(t, before, 0.05)
}

// tokens is what depends on how a release renders requests.
func (f *fixture) tokens(t *testing.T) {
	f.dense(t)
	t.Run("every route is exact", f.everyRoute)
	t.Run("generated requests", f.generated)
}

type object = map[string]any

func user(text string) object      { return object{"role": "user", "content": text} }
func assistant(text string) object { return object{"role": "assistant", "content": text} }

func story(n int) string {
	return fmt.Sprintf("Story number %d. ", n) + strings.Repeat(fmt.Sprintf("The %dth traveller counts the stones on the road and writes them down. ", n), 12)
}

func completion(messages ...object) object {
	return object{"model": served, "messages": messages, "max_tokens": 8, "temperature": 0}
}

// secondTurns: of each of 20 conversations the second turn lands where the
// first did, and every prediction is exact.
func (f *fixture) secondTurns(t *testing.T) {
	const conversations = 20
	var first [conversations]outcome
	for i := range first {
		first[i] = f.send(t, "/v1/chat/completions", completion(user(story(i))))
		first[i].exact(t, fmt.Sprintf("first turn %d", i))
	}
	spread := map[string]int{}
	for i, a := range first {
		b := f.send(t, "/v1/chat/completions", completion(user(story(i)), assistant(a.text), user("And what did the next one do?")))
		b.exact(t, fmt.Sprintf("second turn %d", i))
		if b.replica != a.replica {
			t.Errorf("conversation %d: first turn on %s, second on %s", i, a.replica, b.replica)
		}
		if b.hits == 0 || b.decision.Reason != "warm" {
			t.Errorf("conversation %d: second turn hit %d tokens, reason %s", i, b.hits, b.decision.Reason)
		}
		spread[b.replica]++
	}
	if len(spread) != 2 {
		t.Errorf("all conversations went to one replica: %v", spread)
	}
}

// everyRoute sends each kind of request twice; both must be predicted exactly.
func (f *fixture) everyRoute(t *testing.T) {
	ids := make([]int, 300)
	for i := range ids {
		ids[i] = 1000 + i
	}
	tools := []object{{"type": "function", "function": object{"name": "weather", "description": "of a city",
		"parameters": object{"type": "object", "properties": object{"city": object{"type": []string{"string", "null"}}}}}}}
	with := func(o object, more object) object {
		for k, v := range more {
			o[k] = v
		}
		return o
	}
	text := func(o object) object { return with(object{"model": served, "max_tokens": 1, "temperature": 0}, o) }
	tests := []struct {
		name, path string
		body       object
	}{
		{"completion text", "/v1/completions", text(object{"prompt": story(100)})},
		{"completion ids", "/v1/completions", text(object{"prompt": ids})},
		{"completion of many texts", "/v1/completions", text(object{"prompt": []string{story(101), story(102), story(110)}})},
		{"completion of many ids", "/v1/completions", text(object{"prompt": [][]int{ids[100:170], ids[170:250], ids[250:]}})},
		{"prompt logprobs", "/v1/completions", text(object{"prompt": story(100), "prompt_logprobs": 1})},
		{"echo with logprobs", "/v1/completions", text(object{"prompt": story(100), "echo": true, "logprobs": 1})},
		{"salt", "/v1/chat/completions", with(completion(user(story(103))), object{"cache_salt": "blue"})},
		{"another salt", "/v1/chat/completions", with(completion(user(story(103))), object{"cache_salt": "red"})},
		{"no salt", "/v1/chat/completions", completion(user(story(103)))},
		{"tools", "/v1/chat/completions", with(completion(user(story(104))), object{"tools": tools})},
		{"parts", "/v1/chat/completions", completion(object{"role": "user", "content": []object{{"type": "text", "text": story(105)}, {"type": "text", "text": "ünï 漢字 🙂"}}})},
		{"no thinking", "/v1/chat/completions", with(completion(user(story(106))), object{"chat_template_kwargs": object{"enable_thinking": false}})},
		{"streamed", "/v1/chat/completions", with(completion(user(story(107))), object{"stream": true})},
		{"responses", "/v1/responses", object{"model": served, "input": story(108), "max_output_tokens": 16, "temperature": 0}},
		{"messages", "/v1/messages", object{"model": served, "max_tokens": 1, "messages": []object{user(story(109))}}},
		// 0.21 does not read the salt of this route: the second salt hits the first one's
		// blocks.
		{"messages with salt", "/v1/messages", object{"model": served, "max_tokens": 1, "messages": []object{user(story(111))}, "cache_salt": "blue"}},
		{"messages with another salt", "/v1/messages", object{"model": served, "max_tokens": 1, "messages": []object{user(story(111))}, "cache_salt": "red"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sent := map[string]bool{}
			again := f.send(t, tt.path, tt.body)
			again.exact(t, "first")
			for !sent[again.replica] { // on a busy machine the load can move the second
				sent[again.replica] = true
				again = f.send(t, tt.path, tt.body)
				again.exact(t, "again")
			}
			if noRead := strings.Contains(tt.name, "logprobs"); (again.hits == 0) != noRead {
				t.Errorf("sent again to the same replica (%s) it hit %d tokens", again.decision.Reason, again.hits)
			}
		})
	}
}

// adapterRequests: an adapter's blocks are its own, and only the replica that
// serves it is hinted.
func (f *fixture) adapterRequests(t *testing.T) {
	if !f.adapters {
		f.send(t, "/v1/chat/completions", completion(user(story(200)))).exact(t, "base alone")
		return
	}
	lora := func(o object) object { o["model"] = adapter; return o }
	f.send(t, "/v1/chat/completions", completion(user(story(201)))).exact(t, "base")
	for i := range 2 {
		o := f.send(t, "/v1/chat/completions", lora(completion(user(story(201)))))
		o.exact(t, fmt.Sprintf("adapter, %d", i))
		if o.replica != f.replicas[1].Addr {
			t.Errorf("adapter request went to %s, which does not serve it", o.replica)
		}
		if (o.hits > 0) != (i > 0) {
			t.Errorf("adapter request %d hit %d tokens", i, o.hits)
		}
	}
	salted := lora(completion(user(story(201))))
	salted["cache_salt"] = "green"
	f.send(t, "/v1/chat/completions", salted).exact(t, "adapter with salt")
	f.send(t, "/v1/chat/completions", completion(user(story(201)))).exact(t, "base again")
}

// reset empties both caches. The clear travels with each replica's next batch,
// so at most the one request that carries it is mispredicted.
func (f *fixture) reset(t *testing.T) {
	f.send(t, "/v1/chat/completions", completion(user(story(300)))).exact(t, "before")
	clears := f.clears(t)
	for _, r := range f.replicas {
		testenv.Post(t, "http://"+r.Addr+"/reset_prefix_cache", []byte(nil)).Into(t, nil)
	}
	carried := map[string]bool{}
	for i := range 8 {
		o := f.send(t, "/v1/chat/completions", completion(user(story(300+i%2))))
		if !carried[o.replica] {
			carried[o.replica] = true // this one carried the clear
			if o.hits != 0 {
				t.Errorf("vLLM hit %d tokens right after the reset", o.hits)
			}
			continue
		}
		o.exact(t, fmt.Sprintf("after, %d", i))
	}
	if got := f.clears(t) - clears; got != len(carried) {
		t.Errorf("%v clears were counted, %d replicas carried one", got, len(carried))
	}
}

// killRouter kills extproc while requests run: none fails.
func (f *fixture) killRouter(t *testing.T) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	status := map[int]int{}
	stop := make(chan struct{})
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				raw, _ := json.Marshal(completion(user(story(1000 + w*100 + i))))
				resp, err := http.Post(f.envoy.URL+"/v1/chat/completions", "application/json", bytes.NewReader(raw))
				code := 0
				if err == nil {
					code = resp.StatusCode
					resp.Body.Close()
				}
				mu.Lock()
				status[code]++
				mu.Unlock()
			}
		})
	}
	reach := func(n int) {
		for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			done := status[200] >= n
			mu.Unlock()
			if done || time.Now().After(end) {
				return
			}
		}
	}
	reach(10)
	f.extproc.Kill()
	reach(30)
	close(stop)
	wg.Wait()
	if len(status) != 1 || status[200] < 30 {
		t.Errorf("statuses %v", status)
	}
	f.startExtproc()
	must.Do(t, f.envoy.WaitHealthy(t.Context(), "warmroute"))
	f.quiet(t)
	// The blocks that were cached while the router was dead are learned by replay.
	f.send(t, "/v1/chat/completions", completion(user(story(1000)))).exact(t, "after the router's restart")
}

// restart kills a replica and starts another in its place on the same address:
// while it is away nothing names it, and nothing it held is believed afterwards.
func (f *fixture) restart(t *testing.T) {
	var victim outcome
	for i := 0; ; i++ {
		victim = f.send(t, "/v1/chat/completions", completion(user(story(400+i))))
		victim.exact(t, "before")
		if victim.replica == f.replicas[0].Addr {
			break
		}
		if i == 20 {
			t.Fatal("no prompt in 20 went to the first replica")
		}
	}
	body := completion(user(story(400)))
	f.replicas[0].Kill()
	testenv.Until(t, 10*time.Second, "the dead replica is not ready", func() bool { return sum(testenv.Metrics(t, f.admin), `warmroute_fleet_replicas{state="ready"}`) == 1 })
	for i := range 5 {
		raw, _ := json.Marshal(completion(user(story(500 + i))))
		o := f.post(t, "/v1/chat/completions", raw)
		d := f.decision(t, o.decision.ID)
		if o.status != 200 || strings.Contains(d.Chosen, f.replicas[0].Addr) {
			t.Errorf("with the replica dead: status %d, hint %q", o.status, d.Chosen)
		}
	}
	f.relaunch(0)
	f.quiet(t)
	for i := range 4 {
		f.send(t, "/v1/chat/completions", body).exact(t, fmt.Sprintf("after the restart, %d", i))
	}
	// New prompts spread again, each predicted exactly.
	used := map[string]bool{}
	for i := range 12 {
		o := f.send(t, "/v1/chat/completions", completion(user(story(600+i))))
		o.exact(t, fmt.Sprintf("new prompt %d", i))
		used[o.replica] = true
	}
	if len(used) != 2 {
		t.Errorf("only %v are used after the restart", used)
	}
}
