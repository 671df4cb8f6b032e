package envoy_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// upstream keeps the requests that it answers.
type upstream struct {
	*httptest.Server
	mu   sync.Mutex
	last *http.Request
	n    int
}

func serve(t *testing.T) *upstream {
	u := &upstream{}
	u.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.last, u.n = r, u.n+1
		fmt.Fprint(w, "replica")
	}))
	t.Cleanup(u.Close)
	return u
}

// seen returns the last request, and the number of all.
func (u *upstream) seen() (*http.Request, int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last, u.n
}

// start runs Envoy without a router, which changes none of what is tested here.
func start(t *testing.T, o envoy.Options, u *upstream) *testenv.Envoy {
	t.Helper()
	at := testenv.Addresses(t, 3)
	o.Listen, o.Admin, o.ExtProc, o.Replicas = at[0], at[1], []string{at[2]}, []string{u.Listener.Addr().String()}
	var boot bytes.Buffer
	must.Do(t, envoy.WriteBootstrap(&boot, o))
	e := must.Get(testenv.StartEnvoy(t.TempDir(), "envoy", boot.Bytes(), o.Listen, o.Admin))(t)
	t.Cleanup(e.Stop)
	return e
}

// raw sends bytes as they are and returns the whole answer.
func raw(t *testing.T, e *testenv.Envoy, text string) (status int, body string) {
	t.Helper()
	conn := must.Get(net.Dial("tcp", strings.TrimPrefix(e.URL, "http://")))(t)
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute)) // a bound on a hang
	must.Get(io.WriteString(conn, text))(t)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	defer resp.Body.Close()
	b := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(b)
}

// TestListener: what clients may ask of replicas and how, through real Envoy.
func TestListener(t *testing.T) {
	u := serve(t)
	e := start(t, envoy.Options{PathPrefixes: []string{"/openai"}, AccessLog: "none"}, u)
	open := start(t, envoy.Options{OperatorPaths: true, EngineHeaders: true, AccessLog: "none"}, u)

	for _, path := range []string{
		"/metrics", "/metrics/", "/metrics?x=1", "//metrics", "/%6detrics", "/x/../metrics", "/x/%2e%2e/metrics", "/./metrics", "/%2Fmetrics", "/metrics%2F", "/x/..%2fmetrics",
		"http://replica/metrics", "/load", "/reset_prefix_cache", "/reset_mm_cache?reset_external=true", "/sleep?level=2", "/wake_up", "/pause", "/server_info", "/collective_rpc",
		"/v1/load_lora_adapter", "/v1%2Fload_lora_adapter", "/v1/unload_lora_adapter", "/kv_event_sources", "/start_profile", "/scale_elastic_ep", "/flush_cache", "/abort_requests", "/inference/v1/abort_requests", "/openai/metrics", "/openai/v1/load_lora_adapter",
	} {
		_, before := u.seen()
		status, body := raw(t, e, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		if _, n := u.seen(); status != http.StatusForbidden || !json.Valid([]byte(body)) || !strings.Contains(body, "operator_paths") || n != before {
			t.Errorf("%s: %d %q, %d requests at the replica", path, status, body, n-before)
		}
	}
	for _, path := range []string{
		"/health", "/version", "/tokenize", "/detokenize", "/ping", "/v1/models", "/v1/models/org/name", "/v1/chat/completions", "/v1/responses/resp_1", "/v1/realtime", "/score", "/rerank", "/pooling",
		"/classify", "/invocations", "/inference/v1/generate", "/generate", "/openai/v1/models", "/x/metrics", "/get_model_info", "/tokenizer_info",
	} {
		status, body := raw(t, e, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
		if r, _ := u.seen(); status != http.StatusOK || body != "replica" || r.URL.Path != path {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}
	for _, path := range []string{"/metrics", "/reset_prefix_cache"} {
		if status, body := raw(t, open, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); status != http.StatusOK || body != "replica" {
			t.Errorf("with operator_paths %s: %d %q", path, status, body)
		}
	}

	const steering = "X-VLLM-PRIORITY: -9\r\nx-session-id: s\r\nX-Data-Parallel-Rank: 3\r\nX-Request-Id: r\r\n"
	for e, want := range map[*testenv.Envoy]string{e: "  ", open: "-9 s "} {
		raw(t, e, "GET /v1/models HTTP/1.1\r\nHost: x\r\n"+steering+"\r\n")
		r, _ := u.seen()
		if h := r.Header; h.Get("X-Vllm-Priority")+" "+h.Get("X-Session-Id")+" "+h.Get("X-Data-Parallel-Rank") != want || h.Get("X-Request-Id") != "r" {
			t.Errorf("headers at the replica: %v, want %q", h, want)
		}
	}

	for _, host := range []string{"Host: x\r\n", ""} { // nginx speaks 1.0 by default, and a client of 1.0 may name no host
		if status, body := raw(t, e, "POST /v1/chat/completions HTTP/1.0\r\n"+host+"Content-Length: 2\r\n\r\n{}"); status != http.StatusOK || body != "replica" {
			t.Errorf("HTTP/1.0: %d %q", status, body)
		}
	}
	for _, offer := range []string{"TLS/1.2", "TLS/1.2, foo", "h2c"} { // Apache's HttpClient makes the first one
		if status, body := raw(t, e, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: "+offer+"\r\nContent-Length: 2\r\n\r\n{}"); status != http.StatusOK || body != "replica" {
			t.Errorf("Upgrade: %s: %d %q", offer, status, body)
		}
	}
}

// TestListOfModels: Envoy's own list has the headers of vLLM's, so that pages in browsers read it,
// too; whether they may ask with headers of their own says a replica.
func TestListOfModels(t *testing.T) {
	u := serve(t)
	all := []envoy.Endpoint{{Addr: u.Listener.Addr().String()}}
	const list = `{"object":"list","data":[]}`
	e := start(t, envoy.Options{AccessLog: "none", Fleet: envoy.Fleet{Replicas: all, Listing: list,
		Groups: []envoy.Group{{Name: "model:a", Models: []string{"a"}, Replicas: all}, {Name: "model:b", Models: []string{"b"}, Replicas: all}}}}, u)
	for method, want := range map[string]string{http.MethodGet: list + " application/json *", http.MethodOptions: "replica text/plain; charset=utf-8 "} {
		r := must.Get(http.NewRequestWithContext(t.Context(), method, e.URL+"/v1/models", nil))(t)
		resp := must.Get(http.DefaultClient.Do(r))(t)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if got := string(body) + " " + resp.Header.Get("Content-Type") + " " + resp.Header.Get("Access-Control-Allow-Origin"); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", method, got, want, err)
		}
	}
}

// TestAccessLogOnASocket: a service's standard output may be a socket, which cannot be
// opened as a file.
func TestAccessLogOnASocket(t *testing.T) {
	binary := must.Get(testenv.EnvoyBinary())(t)
	for _, name := range []string{"/dev/stdout", "/dev/stderr", "/proc/self/fd/1"} {
		t.Run(name, func(t *testing.T) {
			u, at, file := serve(t), testenv.Addresses(t, 3), t.TempDir()+"/envoy.yaml"
			var boot bytes.Buffer
			must.Do(t, envoy.WriteBootstrap(&boot, envoy.Options{Listen: at[0], Admin: at[1], ExtProc: at[2:], Replicas: []string{u.Listener.Addr().String()}, AccessLog: name}))
			must.Do(t, os.WriteFile(file, boot.Bytes(), 0o600))
			pair := must.Get(syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0))(t)
			mine, its := os.NewFile(uintptr(pair[0]), "mine"), os.NewFile(uintptr(pair[1]), "its")
			defer mine.Close()
			cmd := exec.Command(binary, "-c", file, "--concurrency", "1", "--use-dynamic-base-id", "-l", "error", "--file-flush-interval-msec", "50")
			cmd.Stdout, cmd.Stderr = its, its
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			must.Do(t, cmd.Start())
			its.Close()
			defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
			logged := make(chan bool)
			go func() {
				seen := false
				for s := bufio.NewScanner(mine); !seen && s.Scan(); {
					seen = strings.Contains(s.Text(), `"route":"/v1/models"`)
				}
				logged <- seen
			}()
			for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) { // a bound on a hang
				resp, err := http.Get("http://" + at[0] + "/v1/models")
				if err == nil {
					resp.Body.Close()
					break
				}
				if time.Now().After(end) {
					t.Fatal(err)
				}
			}
			if !<-logged {
				t.Error("Envoy ended without an entry in its log")
			}
		})
	}
}
