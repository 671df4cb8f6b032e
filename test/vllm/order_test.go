//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"warmroute/internal/testenv"
)

// order: a replica with --scheduling-policy priority takes a warm request before a cold one that
// came before it, as the router's order says; one without it takes both as they came, and answers them.
func (f *fixture) order(t *testing.T) {
	for i, first := range []string{"cold", "warm"} {
		asleep := f.replicas[1-i]
		testenv.Post(t, "http://"+asleep.Addr+"/sleep?level=0", []byte(nil)).Into(t, nil)
		f.until(t, "the router passes the other one over", func() bool { return strings.Contains(f.ready(t), asleep.Addr+" is passed over") })
		if got := f.firstAnswered(t, i); got != first {
			t.Errorf("replica %d, %v: the %s request is answered first, not the %s one", i, f.launched[i], got, first)
		}
		testenv.Post(t, "http://"+asleep.Addr+"/wake_up", []byte(nil)).Into(t, nil)
		f.until(t, "the router names it again", func() bool { return !strings.Contains(f.ready(t), "is passed over") })
	}
}

// firstAnswered sends a replica that is at work a cold request, then a warm one, and returns which
// it answers first.
func (f *fixture) firstAnswered(t *testing.T, i int) string {
	t.Helper()
	long := func(n int) object { return user(strings.Repeat(story(800+10*i+n), 5)) }
	begun := f.send(t, "/v1/chat/completions", completion(long(0)))
	busy, free := context.WithCancel(t.Context())
	defer free()
	answered := make(chan string, 2)
	ask := func(ctx context.Context, name string, tokens int, messages ...object) {
		body := completion(messages...)
		body["max_tokens"], body["ignore_eos"] = tokens, true
		raw, _ := json.Marshal(body)
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, f.envoy.URL+"/v1/chat/completions", bytes.NewReader(raw))
		req.Header.Set("Content-Type", "application/json")
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if ctx.Err() != nil {
				return
			}
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %v %v", name, resp, err)
			}
			answered <- name
		}()
	}
	queued := func(which string, n float64) {
		t.Helper()
		f.until(t, which, func() bool { return sum(testenv.Metrics(t, f.replicas[i].Addr), "vllm:num_requests_"+which) == n })
	}
	ask(busy, "", 2500, long(1))
	queued("running", 1)
	ask(t.Context(), "cold", 100, long(2))
	queued("waiting", 1)
	ask(t.Context(), "warm", 100, long(0), assistant(begun.text), user("And then?"))
	queued("waiting", 2)
	free()
	first := <-answered
	<-answered
	return first
}
