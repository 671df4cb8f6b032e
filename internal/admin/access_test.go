package admin

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"warmroute/internal/bearer"
	"warmroute/render/testkit/must"
)

// guarded serves a page that changes state and a page of files, and returns the
// status of a request to it.
func guarded(t *testing.T, a Access) func(method, path, host string, header ...string) int {
	t.Helper()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") })
	url, stop := serve(t, Options{
		Access: a, Pprof: true, Handlers: map[string]http.Handler{"PATCH /policy": ok, "POST /debug/explain": ok, "GET /policy": ok},
		Static: map[string]http.Handler{"GET /dashboard/": ok},
	})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return func(method, path, host string, header ...string) int {
		t.Helper()
		req := must.Get(http.NewRequest(method, url+path, strings.NewReader("{}")))(t)
		if host != "" {
			req.Host = host
		}
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		resp := must.Get((&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req))(t)
		resp.Body.Close()
		return resp.StatusCode
	}
}

// TestToken: pages that change state or show requests need the token; health and
// files do not.
func TestToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file, []byte("secret"), 0o600))
	token := must.Get(bearer.File(file))(t)
	try := guarded(t, Access{Token: token})
	for _, page := range [][2]string{{"PATCH", "/policy"}, {"GET", "/policy"}, {"POST", "/debug/explain"}, {"GET", "/debug/pprof/"}, {"GET", "/debug/pprof/cmdline"}, {"POST", "/debug/pprof/symbol"}} {
		for header, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer ": 401, "Basic c2VjcmV0": 401, "Bearer secret": 200} {
			if got := try(page[0], page[1], "", "Authorization", header); got != want {
				t.Errorf("%v with %q: %d, want %d", page, header, got, want)
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/dashboard/", "/"} {
		if got := try("GET", path, ""); got != 200 {
			t.Errorf("%s: %d", path, got)
		}
	}
}

// TestBrowsers: a page of another site can use the server neither by a name of its
// own nor by a request across sites.
func TestBrowsers(t *testing.T) {
	try := guarded(t, Access{Hosts: []string{"router.example"}})
	for host, want := range map[string]int{
		"": 200, "localhost:9090": 200, "[::1]:9090": 200, "127.0.0.1": 200, "router.example:9090": 200, "Router.Example": 200,
		"evil.example": 421, "evil.example:9090": 421, "127.0.0.1.evil.example": 421, "10.9.8.7:9090": 421,
	} {
		for _, page := range [][2]string{{"PATCH", "/policy"}, {"GET", "/policy"}, {"GET", "/readyz"}} {
			if got := try(page[0], page[1], host); got != want {
				t.Errorf("%v as %q: %d, want %d", page, host, got, want)
			}
		}
	}
	for _, page := range [][2]string{{"PATCH", "/policy"}, {"POST", "/debug/explain"}} {
		if got := try(page[0], page[1], "", "Origin", "http://evil.example"); got != 403 {
			t.Errorf("%v from another origin: %d", page, got)
		}
		if got := try(page[0], page[1], "", "Sec-Fetch-Site", "cross-site"); got != 403 {
			t.Errorf("%v across sites: %d", page, got)
		}
		if got := try(page[0], page[1], "", "Sec-Fetch-Site", "same-origin"); got != 200 {
			t.Errorf("%v of the page itself: %d", page, got)
		}
	}
}

// TestHealthHasEveryName: Prometheus and probes reach health and metrics of another
// machine by any name, but not a server with more than that, nor one of the loopback.
func TestHealthHasEveryName(t *testing.T) {
	page := map[string]http.Handler{"GET /policy": http.NotFoundHandler()}
	for name, c := range map[string]struct {
		o    Options
		want int
	}{
		"health":                {Options{Listen: "0.0.0.0:9006"}, 200},
		"health, loopback":      {Options{Listen: "127.0.0.1:9006"}, 421},
		"admin":                 {Options{Listen: "0.0.0.0:9090", Handlers: page}, 421},
		"health, with profiles": {Options{Listen: "0.0.0.0:9006", Pprof: true}, 421},
	} {
		mux := must.Get(c.o.mux())(t)
		answer := httptest.NewRecorder()
		c.o.browsers(mux).ServeHTTP(answer, httptest.NewRequest("GET", "http://warmroute.svc:9006/readyz", nil))
		if answer.Code != c.want {
			t.Errorf("%s: %d, want %d", name, answer.Code, c.want)
		}
	}
}
