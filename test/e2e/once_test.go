package e2e

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// script is an ext_proc server that gives every body the same answer: a ranked list, and
// transfer parameters for the replica to.
type script struct {
	extprocv3.UnimplementedExternalProcessorServer
	list []string
	to   string
	wait time.Duration // asked of Envoy, and spent
	said metadata.MD   // what Envoy's configuration sends with the stream
	gone chan struct{} // is closed when a stream ends during its wait
}

const scripted = `,"kv_transfer_params":{"nonce":"once"}`

// Process implements extprocv3.ExternalProcessorServer.
func (s *script) Process(ss extprocv3.ExternalProcessor_ProcessServer) error {
	for {
		m, err := ss.Recv()
		if err != nil {
			return nil
		}
		body := m.GetRequestBody()
		if body == nil {
			_ = ss.Send(&extprocv3.ProcessingResponse{Response: &extprocv3.ProcessingResponse_RequestHeaders{RequestHeaders: &extprocv3.HeadersResponse{}}})
			continue
		}
		s.said, _ = metadata.FromIncomingContext(ss.Context())
		if s.wait > 0 {
			_ = ss.Send(&extprocv3.ProcessingResponse{OverrideMessageTimeout: durationpb.New(s.wait + time.Second)})
			select {
			case <-time.After(s.wait):
			case <-ss.Context().Done():
				close(s.gone)
				return nil
			}
		}
		_ = ss.Send(s.answer(body.GetBody()))
	}
}

func (s *script) answer(body []byte) *extprocv3.ProcessingResponse {
	list := strings.Join(s.list, ",")
	split, _ := structpb.NewStruct(map[string]any{
		envoy.MetadataSplit: map[string]any{
			envoy.KeySplitTo: s.to, envoy.KeySplitAt: bytes.LastIndexByte(body, '}'), envoy.KeySplitSize: len(body), envoy.KeySplitParams: scripted,
		},
		envoy.MetadataLB: map[string]any{envoy.HeaderDestination: list},
	})
	header := &corev3.HeaderValueOption{
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
		Header:       &corev3.HeaderValue{Key: envoy.HeaderDestination, RawValue: []byte(list)},
	}
	return &extprocv3.ProcessingResponse{
		DynamicMetadata: split,
		Response: &extprocv3.ProcessingResponse_RequestBody{RequestBody: &extprocv3.BodyResponse{Response: &extprocv3.CommonResponse{
			HeaderMutation: &extprocv3.HeaderMutation{SetHeaders: []*corev3.HeaderValueOption{header}},
		}}},
	}
}

// serve starts s at addr and reports to Envoy's health checks.
func (s *script) serve(t *testing.T, addr string) {
	t.Helper()
	l := must.Get(net.Listen("tcp", addr))(t)
	g := grpc.NewServer(grpc.MaxRecvMsgSize(128 << 20))
	extprocv3.RegisterExternalProcessorServer(g, s)
	h := health.NewServer()
	h.SetServingStatus("liveness", healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(g, h)
	var wg sync.WaitGroup
	wg.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); wg.Wait() })
}

// keeper is an upstream that keeps the bodies it gets.
type keeper struct {
	addr string
	mu   sync.Mutex
	got  [][]byte
}

// keep returns an upstream that answers by h after it has read a body.
func keep(t *testing.T, h http.HandlerFunc) *keeper {
	t.Helper()
	k := new(keeper)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength >= 0 && r.ContentLength != int64(len(body)) {
			t.Errorf("%d bytes of %d arrived: %v", len(body), r.ContentLength, err)
		}
		k.mu.Lock()
		k.got = append(k.got, body)
		k.mu.Unlock()
		h(w, r)
	}))
	t.Cleanup(srv.Close)
	k.addr = srv.Listener.Addr().String()
	return k
}

// take returns the bodies that came since the last call.
func (k *keeper) take() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	got := k.got
	k.got = nil
	return got
}

func answers(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"ok":true}`) }
func fails(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "transfer failed", http.StatusInternalServerError)
}
func refuses(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "bad request", http.StatusBadRequest)
}
func dies(w http.ResponseWriter, _ *http.Request) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		c.Close()
	}
}

// splitEnvoy starts the generated configuration for mode pull, with s as its router.
func splitEnvoy(t *testing.T, s *script, replicas ...string) *testenv.Envoy {
	t.Helper()
	a := testenv.Addresses(t, 3)
	s.gone = make(chan struct{})
	s.serve(t, a[2])
	var boot bytes.Buffer
	o := envoy.Options{Listen: a[0], Admin: a[1], ExtProc: a[2:], Replicas: replicas, MessageTimeout: patience, Split: envoy.Split{On: true, Wait: time.Minute}}
	if s.wait > 0 {
		o.MessageTimeout = 200 * time.Millisecond
	}
	must.Do(t, envoy.WriteBootstrap(&boot, o))
	e := must.Get(testenv.StartEnvoy(t.TempDir(), "envoy", boot.Bytes(), a[0], a[1]))(t)
	t.Cleanup(e.Stop)
	return e
}

// TestParamsAreSentOnce: whatever becomes of the replica that was to pull blocks, it alone
// gets the parameters, once, and the client an answer as from a plain request.
func TestParamsAreSentOnce(t *testing.T) {
	t.Parallel()
	good, failing, refusing1, dying := keep(t, answers), keep(t, fails), keep(t, refuses), keep(t, dies)
	all := []*keeper{good, failing, refusing1, dying}
	dead, resets, gone := refusing(t), resetting(t), "127.0.0.1:1"
	s := new(script)
	e := splitEnvoy(t, s, good.addr, failing.addr, refusing1.addr, dying.addr, dead, resets)
	bodies := map[string][]byte{"chat": chatOf(100), "with space behind": append(chatOf(10), " \r\n"...), "1 MB": sized(1 << 20), "12 MB": sized(12 << 20)}
	for name, c := range map[string]struct {
		list   []string
		to     string
		status int
		with   *keeper // the replica that gets the body with parameters; nil if none may
		plain  *keeper // the replica that gets the plain body after that; nil if none may
	}{
		"served":                   {list: []string{good.addr}, to: good.addr, status: 200, with: good},
		"transfer fails":           {list: []string{failing.addr, good.addr}, to: failing.addr, status: 200, with: failing, plain: good},
		"dies with the body":       {list: []string{dying.addr, good.addr}, to: dying.addr, status: 200, with: dying, plain: good},
		"refuses connections":      {list: []string{dead, good.addr}, to: dead, status: 200, plain: good},
		"resets connections":       {list: []string{resets, good.addr}, to: resets, status: 200, plain: good},
		"is no replica of Envoy's": {list: []string{gone, good.addr}, to: gone, status: 200, plain: good},
		"the second fails, too":    {list: []string{dying.addr, failing.addr}, to: dying.addr, status: 500, with: dying, plain: failing},
		"is asked again":           {list: []string{failing.addr, failing.addr}, to: failing.addr, status: 500, with: failing, plain: failing},
		"refuses the request":      {list: []string{refusing1.addr, good.addr}, to: refusing1.addr, status: 400, with: refusing1},
	} {
		for kind, body := range bodies {
			for _, chunked := range []bool{false, true} {
				s.list, s.to = c.list, c.to
				var from io.Reader = bytes.NewReader(body)
				if chunked {
					from = only{from}
				}
				resp := must.Get(http.Post(e.URL+chatPath, "application/json", from))(t)
				answer, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || resp.StatusCode != c.status || resp.Header.Get(envoy.HeaderRetry) != "" {
					t.Errorf("%s, %s: status %d: %.200s %v", name, kind, resp.StatusCode, answer, err)
				}
				at := bytes.LastIndexByte(body, '}')
				with := slices.Concat(body[:at], []byte(scripted), body[at:])
				for _, k := range all {
					var want [][]byte
					if k == c.with {
						want = append(want, with)
					}
					if k == c.plain {
						want = append(want, body)
					}
					if got := k.take(); !slices.EqualFunc(got, want, bytes.Equal) {
						t.Errorf("%s, %s: %d bodies arrived, not the expected %d", name, kind, len(got), len(want))
					}
				}
			}
		}
	}
	if s.said.Get(envoy.KeyWait)[0] != "60000" || s.said.Get(envoy.KeySplitBody)[0] != "16777216" {
		t.Errorf("Envoy says %v", s.said)
	}
}

// TestEnvoyWaitsForAPrefill: longer than message_timeout, if it is asked, and a client that
// leaves ends the wait.
func TestEnvoyWaitsForAPrefill(t *testing.T) {
	good := keep(t, answers)
	s := &script{list: []string{good.addr}, to: good.addr, wait: time.Second}
	e := splitEnvoy(t, s, good.addr)
	resp := must.Get(http.Post(e.URL+chatPath, "application/json", bytes.NewReader(chatOf(10))))(t)
	resp.Body.Close()
	if got := good.take(); resp.StatusCode != http.StatusOK || len(got) != 1 || !bytes.Contains(got[0], []byte(scripted)) {
		t.Errorf("status %d, %q", resp.StatusCode, got)
	}
	s.wait = time.Minute - time.Second
	client := &http.Client{Timeout: 500 * time.Millisecond, Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	if resp, err := client.Post(e.URL+chatPath, "application/json", bytes.NewReader(chatOf(10))); err == nil {
		resp.Body.Close()
		t.Errorf("status %d", resp.StatusCode)
	}
	<-s.gone
	if got := good.take(); len(got) > 0 {
		t.Errorf("%d requests arrived of a client that had left", len(got))
	}
}
