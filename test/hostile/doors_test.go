package hostile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"warmroute/internal/decision"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// quick is a replica that answers at once.
func quick() vllmsim.Options {
	return vllmsim.Options{Blocks: 1024, PrefillRate: -1, DecodeRate: -1}
}

// secret writes a token's file.
func secret(t *testing.T, token string) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	must.Do(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	return file
}

// ask sends a request to one of the router's HTTP ports, with headers as name and
// value in turn; a header Host is the request's.
func ask(t *testing.T, method, url, body string, headers ...string) (status int, text string) {
	t.Helper()
	req := must.Get(http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body)))(t)
	for i := 0; i < len(headers); i += 2 {
		if req.Header.Set(headers[i], headers[i+1]); headers[i] == "Host" {
			req.Host = headers[i+1]
		}
	}
	resp := must.Get(http.DefaultClient.Do(req))(t)
	defer resp.Body.Close()
	all := must.Get(io.ReadAll(resp.Body))(t)
	return resp.StatusCode, string(all)
}

// turnedOff is a change of the policy after which no request has a hint.
const turnedOff = `{"route_policy":"disabled"}`

// TestStrangersAtTheAdminPort: a client without the token can neither change the router
// nor read its decisions; and the health port has nothing to change or to read, with the
// token or without.
func TestStrangersAtTheAdminPort(t *testing.T) {
	const token = "admin-token-of-the-operator"
	at := testenv.Addresses(t, 2)
	s := &site{t: t, dir: t.TempDir(), admin: at[0]}
	_, port, _ := net.SplitHostPort(at[0])
	s.writeConfig("127.0.0.1:0", s.simulate(1, quick()), fmt.Sprintf("admin: {listen: \"0.0.0.0:%s\", token_file: %s, pprof: true}\nhealth: {listen: %q}\n", port, secret(t, token), at[1]))
	s.start(nil)
	admin, health := "http://"+at[0], "http://"+at[1]
	version := func() string {
		_, text := ask(t, "GET", admin+"/policy", "", "Authorization", "Bearer "+token)
		return text
	}
	before := version()
	if !strings.Contains(before, `"version"`) {
		t.Fatalf("the operator reads %q", before)
	}
	pages := [][2]string{
		{"PATCH", "/policy"}, {"PATCH", "/policy/sim"}, {"DELETE", "/pressure/sim"}, {"GET", "/policy"}, {"GET", "/pressure"}, {"POST", "/debug/explain"},
		{"GET", "/debug/explain"}, {"GET", "/debug/replicas"}, {"GET", "/debug/history"}, {"GET", "/debug/peers"}, {"GET", "/debug/pprof/cmdline"}, {"GET", "/debug/pprof/heap"},
	}
	for _, page := range pages {
		for _, header := range []string{"", "Bearer", "Bearer ", "Bearer admin-token-of-the-operato", "Bearer " + token + "x", "Basic " + token, token} {
			if status, text := ask(t, page[0], admin+page[1], turnedOff, "Authorization", header); status != http.StatusUnauthorized {
				t.Errorf("%v with %q: %d %.80s", page, header, status, text)
			}
		}
		if status, text := ask(t, page[0], health+page[1], turnedOff, "Authorization", "Bearer "+token); status != http.StatusNotFound {
			t.Errorf("%v on the health port: %d %.80s", page, status, text)
		}
	}
	if after := version(); after != before {
		t.Errorf("the policy was %s, and is %s", before, after)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, text := ask(t, "GET", health+path, ""); status != http.StatusOK {
			t.Errorf("a probe of %s: %d %.80s", path, status, text)
		}
	}
	if status, text := ask(t, "PATCH", admin+"/policy", turnedOff, "Authorization", "Bearer "+token); status != http.StatusOK || version() == before {
		t.Errorf("the operator cannot change the policy: %d %s", status, text)
	}
	if n := s.logLines(token); n != 0 {
		t.Errorf("%d lines of the log have the token", n)
	}
}

// Limits of the router, in connections, that docs/security.md lists.
const (
	httpConnections  = 64
	envoyConnections = 1024
)

// TestTrickledBodies: with few file descriptors, 300 clients that never finish their
// bodies hold no more connections than the admin port's limit, requests keep their hints,
// probes and new Envoys are answered, and the router ends trickling connections.
func TestTrickledBodies(t *testing.T) {
	health := testenv.Addresses(t, 1)[0]
	s := open(t, setup{replicas: 1, sim: quick(), config: fmt.Sprintf("health: {listen: %q}\n", health)})
	if out, err := exec.Command("prlimit", fmt.Sprintf("--pid=%d", s.router.PID()), "--nofile=200:200").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.hinted()
	before := s.connections(0)
	ended := make(chan error, 300)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range cap(ended) {
		go func() { ended <- trickle(ctx, s.admin) }()
	}
	s.await("trickled bodies", func() bool { return s.connections(0) >= before+httpConnections })
	for range 3 {
		s.hinted()
		s.newEnvoy()
		if status, text := ask(t, "GET", "http://"+health+"/readyz", ""); status != http.StatusOK {
			t.Fatalf("a probe: %d %s", status, text)
		}
	}
	const own = 8 // of this test: probes, the new Envoy
	if held := s.connections(0) - before; held > httpConnections+own {
		t.Errorf("%d connections are held, the limit is %d", held, httpConnections)
	}
	if err := <-ended; err == nil {
		t.Error("the first that ended was answered")
	}
	s.hinted()
}

// trickle sends a request whose body never ends, a byte at a time, until the router
// closes the connection.
func trickle(ctx context.Context, admin string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", admin)
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	if _, err := fmt.Fprintf(conn, "PATCH /policy HTTP/1.1\r\nHost: %s\r\nContent-Length: 1000000\r\n\r\n", admin); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if _, err := conn.Write([]byte("{")); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil { // the pace of the bytes
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		var slow net.Error
		if err != nil && !(errors.As(err, &slow) && slow.Timeout()) {
			return err
		}
	}
	return ctx.Err()
}

// hinted sends an ordinary request, which must have a hint.
func (s *site) hinted() {
	s.t.Helper()
	a, err := s.post(s.t.Context(), "/v1/completions", []byte(`{"model":"sim","prompt":[1,2,3,4],"max_tokens":1}`))
	if err != nil || a.status != http.StatusOK || a.reason != decision.ForClientsRouted {
		s.t.Fatalf("an ordinary request: %+v, %v\n%s", a, err, s.router.Tail())
	}
}

// newEnvoy connects to the port for Envoy and has it answer.
func (s *site) newEnvoy() {
	s.t.Helper()
	conn := must.Get(grpc.NewClient(s.extproc(), grpc.WithTransportCredentials(insecure.NewCredentials())))(s.t)
	defer conn.Close()
	s.await("an answer on the port for Envoy", func() bool {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		defer cancel()
		_, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
		return err == nil
	})
}

// extproc is the address of the port for Envoy.
func (s *site) extproc() string {
	s.t.Helper()
	text := must.Get(os.ReadFile(s.config))(s.t)
	return string(regexp.MustCompile(`(?m)^listen: (\S+)$`).FindSubmatch(text)[1])
}

// TestIdleConnectionsToThePortForEnvoy: a neighbour that opens connections and says
// nothing holds no more than the limit, and none for long: a new Envoy is answered.
func TestIdleConnectionsToThePortForEnvoy(t *testing.T) {
	s := open(t, setup{replicas: 1, sim: quick()})
	s.hinted()
	before := s.connections(0)
	for range envoyConnections + 200 {
		conn := must.Get(net.Dial("tcp", s.extproc()))(t)
		defer conn.Close()
	}
	s.hinted()
	if held := s.connections(0) - before; held > envoyConnections {
		t.Errorf("%d connections are held, the limit is %d", held, envoyConnections)
	}
	s.newEnvoy()
	s.await("the router to end connections that say nothing", func() bool { return s.connections(0)-before <= 200+1 })
	s.hinted()
}
