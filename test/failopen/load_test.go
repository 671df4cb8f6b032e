package failopen

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/internal/testenv"
)

const (
	clients = 16 // at once; a request takes some 25 ms, so two cores are busy, not flooded
	groups  = 16 // shared prefixes
	prefix  = 768
	tail    = 64 // tokens of a request's own
	answer  = 4  // tokens
	// patience ends a request that hangs: 150 times message_timeout.
	patience = 30 * time.Second
)

// result is a load's view of its requests.
type result struct {
	requests int
	failed   int // no answer, or another status than 200
	cut      int // answers that had begun and did not end
	p50, p99 time.Duration
	max      time.Duration
	causes   map[string]int
	// first and last are when requests failed, counted from the fault; their
	// begin counts. last-first is how long the outage was.
	first, last time.Duration
}

func (r result) String() string {
	s := fmt.Sprintf("%d requests, %d failed, %d cut, p50 %v, p99 %v, max %v", r.requests, r.failed, r.cut,
		r.p50.Round(time.Millisecond), r.p99.Round(time.Millisecond), r.max.Round(time.Millisecond))
	if len(r.causes) > 0 {
		s += fmt.Sprintf(", %v from %v to %v after the fault", r.causes, r.first.Round(time.Millisecond), r.last.Round(time.Millisecond))
	}
	return s
}

// load sends requests to url for d; a quarter of d into it, fault is called. Faults wait for requests,
// so a load goes on for a quarter of d after fault has returned.
type load func(t *testing.T, url string, d time.Duration, fault func()) result

// prompts are groups that share a prefix, as token ids.
type prompts struct {
	models []string // names in requests, in turns
	begin  []string // nil: a prompt shares nothing, and has a longer answer
	next   atomic.Uint64
}

func newPrompts(models []string) *prompts {
	p := &prompts{models: models}
	for g := range groups {
		p.begin = append(p.begin, testenv.Tokens(uint64(g), prefix))
	}
	return p
}

// body is the next request; every second one requests a streamed answer.
func (p *prompts) body() string {
	n := p.next.Add(1)
	if p.begin == nil {
		return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"prompt":[%s]}`, p.models[0], 8*answer, n%2 == 0, testenv.Tokens(1000+n, prefix))
	}
	return fmt.Sprintf(`{"model":%q,"max_tokens":%d,"stream":%t,"prompt":[%s,%s]}`, p.models[n/groups%uint64(len(p.models))], answer, n%2 == 0, p.begin[n%groups], testenv.Tokens(1000+n, tail))
}

// sample is one request.
type sample struct {
	at, took time.Duration // at: from the load's start
	cause    string        // of a failure, "" = none
	cut      bool
}

// closedLoop sends requests for the only model.
func closedLoop(t *testing.T, url string, d time.Duration, fault func()) result {
	t.Helper()
	return loop("sim")(t, url, d, fault)
}

// loop is a load of clients that each send one request after the other,
// over HTTP/1.1 connections that are kept. Requests under way at the end of d
// are waited for.
func loop(models ...string) load {
	return func(t *testing.T, url string, d time.Duration, fault func()) result {
		t.Helper()
		return run(t, newPrompts(models), url, d, fault)
	}
}

// cold is a load of prompts that no replica has in its cache.
func cold(t *testing.T, url string, d time.Duration, fault func()) result {
	t.Helper()
	return run(t, &prompts{models: []string{"sim"}}, url, d, fault)
}

func run(t *testing.T, p *prompts, url string, d time.Duration, fault func()) result {
	t.Helper()
	client := &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: clients, DisableCompression: true}}
	defer client.CloseIdleConnections()
	start := time.Now()
	p.next.Store(uint64(start.UnixNano()) &^ (groups - 1)) // tails that no earlier load sent
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var samples []sample
	for range clients {
		wg.Go(func() {
			for ctx.Err() == nil {
				s := send(client, url, p.body())
				s.at = time.Since(start) - s.took
				mu.Lock()
				samples = append(samples, s)
				mu.Unlock()
			}
		})
	}
	time.Sleep(d / 4)
	at := time.Since(start)
	fault()
	time.Sleep(max(d/4, d-time.Since(start)))
	cancel()
	wg.Wait()
	return summarize(samples, at)
}

// send sends one request and reads its answer to the end.
func send(client *http.Client, url, body string) sample {
	start := time.Now()
	resp, err := client.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
	if err != nil {
		cause := "no answer"
		if time.Since(start) >= patience {
			cause = fmt.Sprintf("no answer in %v", patience)
		}
		return sample{took: time.Since(start), cause: cause}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	s := sample{took: time.Since(start)}
	switch {
	case resp.StatusCode != http.StatusOK:
		s.cause = strconv.Itoa(resp.StatusCode)
	case err != nil || !complete(b):
		s.cut = true
	}
	return s
}

// complete reports whether an answer has its end.
func complete(b []byte) bool {
	if bytes.HasPrefix(b, []byte("data:")) {
		return bytes.HasSuffix(bytes.TrimSpace(b), []byte("[DONE]"))
	}
	return bytes.HasSuffix(bytes.TrimSpace(b), []byte("}"))
}

func summarize(samples []sample, fault time.Duration) result {
	r := result{requests: len(samples), causes: map[string]int{}}
	var took []time.Duration
	for _, s := range samples {
		took = append(took, s.took)
		if s.cut {
			r.cut++
		}
		if s.cause == "" {
			continue
		}
		at := s.at - fault
		if r.failed == 0 {
			r.first, r.last = at, at
		}
		r.first, r.last = min(r.first, at), max(r.last, at)
		r.failed++
		r.causes[s.cause]++
	}
	if len(took) > 0 {
		slices.Sort(took)
		r.p50, r.p99, r.max = took[len(took)/2], took[len(took)*99/100], took[len(took)-1]
	}
	return r
}
