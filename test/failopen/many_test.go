package failopen

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
)

// TestManyAtOnce: a fleet has more requests at once than Envoy's circuit
// breakers let through by default, 1,024. All are served, and no breaker, of
// the replicas or of the router, has stopped one.
func TestManyAtOnce(t *testing.T) {
	const many = 1500
	var inside sync.WaitGroup
	inside.Add(many)
	release := make(chan struct{})
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		inside.Done()
		<-release
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(upstream.Close)
	s := start(t, options{mode: envoy.Buffered, upstream: upstream.Listener.Addr().String()})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: many}, Timeout: time.Minute}
	t.Cleanup(client.CloseIdleConnections)
	var clients sync.WaitGroup
	status := make(chan int, many)
	for range many {
		clients.Go(func() {
			resp, err := client.Post(s.envoy.URL+"/v1/completions", "application/json", strings.NewReader(`{"model":"sim","prompt":[1,2,3]}`))
			if err != nil {
				status <- 0
				return
			}
			resp.Body.Close()
			status <- resp.StatusCode
		})
	}
	all := make(chan struct{})
	go func() { inside.Wait(); close(all) }()
	select {
	case <-all:
		// The router's streams count too; the machine decides how many it follows: requests that wait too long continue without it.
		for _, overflow := range []string{"upstream_rq_pending_overflow", "upstream_cx_overflow", "upstream_rq_retry_overflow"} {
			if n := s.stat(overflow); n > 0 {
				t.Errorf("%s: %d", overflow, n)
			}
		}
	case <-time.After(30 * time.Second):
		t.Errorf("%d requests were answered before all were served", len(status))
	}
	close(release)
	clients.Wait()
	close(status)
	count := map[int]int{}
	for code := range status {
		count[code]++
	}
	if count[http.StatusOK] != many {
		t.Errorf("statuses %v", count)
	}
}
