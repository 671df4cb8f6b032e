package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// TestRequestsWithoutHintsSurviveDeadReplicas: Envoy alone balances a request
// without a hint, and detects dead replicas only by trying them. None may fail: one
// at a time, and many at once.
func TestRequestsWithoutHintsSurviveDeadReplicas(t *testing.T) {
	t.Parallel()
	const requests = 400 // least_request prefers the idle dead: without another host per retry about one in four fails
	refuses, resets := refusing(t), resetting(t)
	for name, c := range map[string]struct {
		dead []string
		at   int
	}{"one refuses, one at a time": {[]string{refuses}, 1}, "one resets, many at once": {[]string{resets}, 64}, "two are dead": {[]string{refuses, resets}, 64}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := start(t, setup{replicas: 1, sim: fast(), envoy: envoy.Options{Replicas: c.dead}})
			if failed := getModels(t, st.envoy.URL, requests, c.at); failed > 0 {
				t.Errorf("%d of %d requests failed", failed, requests)
			}
		})
	}
}

// TestEveryReplicaDeadIsAnAnswer: a retry that finds no other host ends in an
// answer, soon.
func TestEveryReplicaDeadIsAnAnswer(t *testing.T) {
	t.Parallel()
	st := start(t, setup{replicas: 1, sim: fast(), upstreamOnly: true, envoy: envoy.Options{Replicas: []string{refusing(t), refusing(t)}}})
	if failed := getModels(t, st.envoy.URL, 20, 1); failed != 20 {
		t.Errorf("%d of 20 requests failed, there was nobody to serve them", failed)
	}
}

// TestRetriesFollowTheRankedList: the list is walked in its order, independent of
// earlier attempts, and every other replica follows its end.
func TestRetriesFollowTheRankedList(t *testing.T) {
	t.Parallel()
	var live []string
	for _, name := range []string{"a", "b"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, name) }))
		t.Cleanup(srv.Close)
		live = append(live, srv.Listener.Addr().String())
	}
	dead, reset := refusing(t), resetting(t)
	url := openEnvoy(t, append([]string{dead, reset}, live...))
	for _, c := range []struct {
		list []string
		want string
	}{
		{[]string{live[1]}, "b"},
		{[]string{dead, live[1], live[0]}, "b"},
		{[]string{reset, dead, live[0]}, "a"},
		{[]string{"127.0.0.1:1", dead, live[1]}, "b"}, // Envoy does not know the first
		{[]string{dead}, "ab"},
		{[]string{dead, reset}, "ab"},
	} {
		for range 20 {
			req := must.Get(http.NewRequest("POST", url, strings.NewReader("{}")))(t)
			req.Header.Set(envoy.HeaderDestination, strings.Join(c.list, ","))
			resp := must.Get(http.DefaultClient.Do(req))(t)
			by, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(c.want, string(by)) {
				t.Fatalf("list %v: status %d by %q, want %q (%v)", c.list, resp.StatusCode, by, c.want, err)
			}
		}
	}
}

// openEnvoy is an Envoy of the shipped configuration, except that it accepts a
// client's own list. No router runs.
func openEnvoy(t *testing.T, replicas []string) (url string) {
	t.Helper()
	listen, admin := refusing(t), refusing(t)
	var boot bytes.Buffer
	must.Do(t, envoy.WriteBootstrap(&boot, envoy.Options{Listen: listen, Admin: admin, ExtProc: []string{refusing(t)}, Replicas: replicas}))
	text, rule := boot.String(), "- remove: "+envoy.HeaderDestination
	if !strings.Contains(text, rule) {
		t.Fatal("the configuration does not remove a client's own list")
	}
	e := must.Get(testenv.StartEnvoy(t.TempDir(), "envoy", []byte(strings.Replace(text, rule, "- remove: x-nothing", 1)), listen, admin))(t)
	t.Cleanup(e.Stop)
	return e.URL
}

// getModels sends requests that get no hint, at most at of them at once, and counts the
// answers other than 200.
func getModels(t *testing.T, url string, requests, at int) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: at}}
	defer client.CloseIdleConnections()
	work := make(chan struct{}, requests)
	for range requests {
		work <- struct{}{}
	}
	close(work)
	var wg sync.WaitGroup
	var mu sync.Mutex
	failed := 0
	for range at {
		wg.Go(func() {
			for range work {
				resp, err := client.Get(url + "/v1/models")
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				if err != nil || resp.StatusCode != http.StatusOK {
					mu.Lock()
					failed++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// refusing is an address without a listener.
func refusing(t *testing.T) string {
	t.Helper()
	return testenv.Addresses(t, 1)[0]
}

// resetting is a listener that ends every connection at once.
func resetting(t *testing.T) string {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}
