//go:build vllm

package vllm

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"warmroute/internal/cli/predict"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// talk is a conversation so far.
type talk []object

// conversations sends requests one after another: first turns, next turns,
// branches, repeats, some of them after a reset of both caches. On models with
// several KV cache groups every prediction equals vLLM's own count.
func (f *fixture) conversations(t *testing.T) {
	const n = 64
	r := rand.New(rand.NewPCG(20261122, uint64(n)))
	watch := f.watch(t)
	f.awaitTrust(t)
	before := f.tokenSources(t)
	defer f.mostlyInProcess(t, before, 0.05)
	var talks []talk
	var lastAnswer = map[int]string{}
	exact, offline, alone, hit := 0, 0, 0, 0
	for i := range n {
		if i == n*2/5 || i == n*3/4 {
			f.resetAll(t)
		}
		kind, c := f.turn(r, talks, lastAnswer)
		talks = append(talks, c)
		body := completion(c...)
		said := watch.ask(t, f.tokenize(t, body))
		o := f.send(t, "/v1/chat/completions", body)
		o.exact(t, fmt.Sprintf("request %d, %s", i, kind))
		lastAnswer[len(talks)-1] = o.text
		if o.decision.Predicted == o.hits {
			exact++
		}
		if o.hits > 0 {
			hit++
		}
		a := said[o.replica]
		if a.Cached == o.hits {
			offline++
		} else {
			t.Errorf("request %d, %s: predict says %d cached tokens on %s, vLLM counted %d", i, kind, a.Cached, o.replica, o.hits)
		}
		if a.FullOnly == o.hits {
			alone++
		}
	}
	t.Logf("%d of %d predictions equal vLLM's counts (%d found something cached); predict, from the events alone: %d; full attention alone: %d", exact, n, hit, offline, alone)
	t.Run("usage", f.usage)
	if hit < n/4 {
		t.Errorf("only %d of %d requests found something cached", hit, n)
	}
}

// turn returns the next request: its relation to earlier ones, and its messages.
func (f *fixture) turn(r *rand.Rand, talks []talk, answers map[int]string) (string, talk) {
	ask := func() object { return user(fmt.Sprintf("Question %d: %s", r.IntN(1_000_000), words(r, 3+r.IntN(60)))) }
	if len(talks) > 0 {
		k := r.IntN(len(talks))
		old := talks[k]
		switch p := r.IntN(100); {
		case p < 30 && len(old) < 7:
			return "a next turn", append(append(talk{}, old...), assistant(answers[k]), ask())
		case p < 50:
			last := old[len(old)-1]["content"].(string) // another end of the same text
			cut := strings.LastIndexByte(last[:len(last)*3/4+1], ' ') + 1
			return "a branch", append(append(talk{}, old[:len(old)-1]...), user(last[:cut]+words(r, 5+r.IntN(40))))
		case p < 72:
			return "a repeat", old
		}
	}
	first := user(words(r, 5+r.IntN(1100)))
	if r.IntN(2) == 0 { // documents that several conversations begin with
		first = user(words(rand.New(rand.NewPCG(7, r.Uint64()%3)), 900) + fmt.Sprintf(" What is said %d times?", r.IntN(1000)))
	}
	return "a first turn", talk{first}
}

func words(r *rand.Rand, n int) string {
	list := strings.Fields("stone road river bridge lantern morning wind letter window garden market winter silver paper music harbour valley copper engine signal")
	out := make([]string, n)
	for i := range out {
		out[i] = list[r.IntN(len(list))]
	}
	return strings.Join(out, " ")
}

// resetAll empties both caches, and sends a request too short to be cached, so that
// the reset's events are published. It waits until the router has applied them.
func (f *fixture) resetAll(t *testing.T) {
	t.Helper()
	before := f.clears(t)
	for _, rep := range f.replicas {
		for _, call := range []struct{ path, body string }{
			{"/reset_prefix_cache", ""},
			{"/v1/completions", `{"model":"` + served + `","prompt":[5,6,7],"max_tokens":1}`},
		} {
			testenv.Post(t, "http://"+rep.Addr+call.path, []byte(call.body)).Into(t, nil)
		}
	}
	testenv.Until(t, time.Minute, "the events of all resets", func() bool { return f.clears(t) >= before+len(f.replicas) })
	f.quiet(t)
}

// clears is how many resets the router has applied, over all replicas.
func (f *fixture) clears(t *testing.T) int {
	t.Helper()
	n := 0.0
	for name, v := range testenv.Metrics(t, f.admin) {
		if strings.HasPrefix(name, `warmroute_kv_events_total{kind="cleared"`) {
			n += v
		}
	}
	return int(n)
}

// watch follows the events of both replicas as they are on the wire.
type watch struct {
	mu     sync.Mutex
	frames map[string][][]byte
	judges map[string]*predict.Predictor
}

func (f *fixture) watch(t *testing.T) *watch {
	t.Helper()
	w := &watch{frames: map[string][][]byte{}, judges: map[string]*predict.Predictor{}}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	for _, rep := range f.replicas {
		sub := zmq4.NewSub(ctx)
		t.Cleanup(func() { _ = sub.Close() })
		must.Do(t, sub.Dial(rep.Events))
		must.Do(t, sub.SetOption(zmq4.OptionSubscribe, ""))
		p := must.Get(predict.New(nil))(t)
		t.Cleanup(p.Close)
		must.Get(p.Take([]byte(`{"version":"` + f.name + `"}`)))(t)
		w.judges[rep.Addr] = p
		running.Go(func() { w.follow(sub, rep.Addr) })
	}
	// A subscription gets its first batch some time after it was made: until each
	// has one, requests too short to leave anything are sent.
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		f.resetAll(t)
		w.mu.Lock()
		seen := len(w.frames)
		w.mu.Unlock()
		if seen == len(f.replicas) {
			return w
		}
		if time.Now().After(end) {
			t.Fatal("no events after a minute")
		}
	}
}

func (w *watch) follow(sub zmq4.Socket, addr string) {
	for {
		m, err := sub.Recv()
		if err != nil {
			return
		}
		if len(m.Frames) == 3 {
			w.mu.Lock()
			w.frames[addr] = append(w.frames[addr], m.Frames[2])
			w.mu.Unlock()
		}
	}
}

// ask predicts each replica's hit of a prompt.
func (w *watch) ask(t *testing.T, tokens []uint32) map[string]predict.Answer {
	t.Helper()
	query := must.Get(json.Marshal(object{"query": object{"tokens": tokens}}))(t)
	out := map[string]predict.Answer{}
	w.mu.Lock()
	defer w.mu.Unlock()
	for addr, p := range w.judges {
		for _, payload := range w.frames[addr] {
			frame := must.Get(json.Marshal(object{"frame": object{"payload": payload}}))(t)
			must.Get(p.Take(frame))(t)
		}
		w.frames[addr] = nil
		a := must.Get(p.Take(query))(t)
		out[addr] = *a
	}
	return out
}
