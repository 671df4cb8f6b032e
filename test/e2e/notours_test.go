package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// upgradesAndUploads is a replica's API with /v1/realtime, which echoes what an upgraded
// connection sends, and /v1/files, which returns an upload and reports its first bytes.
func upgradesAndUploads(first chan<- struct{}) func(http.Handler) http.Handler {
	return func(api http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/v1/realtime":
				conn, rw, err := http.NewResponseController(w).Hijack()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
				_, _ = io.Copy(conn, rw)
			case "/v1/files":
				var got bytes.Buffer
				if n, err := io.CopyN(&got, r.Body, 1); err == nil && n == 1 {
					first <- struct{}{}
				}
				_, _ = io.Copy(&got, r.Body)
				_, _ = w.Write(got.Bytes())
			default:
				api.ServeHTTP(w, r)
			}
		})
	}
}

// TestWhatCarriesNoPromptFlows: in every mode of bodies an upload reaches its replica while it
// is being sent, each byte once, and upgraded connections carry bytes both ways.
func TestWhatCarriesNoPromptFlows(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			first := make(chan struct{}, 100)
			sim := fast()
			sim.Front = upgradesAndUploads(first)
			st := start(t, setup{replicas: 1, sim: sim, envoy: envoy.Options{Mode: mode}})
			body, send := io.Pipe()
			go func() {
				_, _ = io.WriteString(send, "begin")
				select {
				case <-first:
				case <-time.After(patience):
					_ = send.CloseWithError(fmt.Errorf("the upload is held"))
					return
				}
				_, _ = io.WriteString(send, strings.Repeat("middle", 50_000))
				_ = send.Close()
			}()
			want := []string{"begin" + strings.Repeat("middle", 50_000)}
			uploads := []io.Reader{body}
			for n := 1; n < 500_000; n *= 9 { // whole at once: Envoy has the body before the router's answer
				want = append(want, strings.Repeat("x", n))
				uploads = append(uploads, strings.NewReader(strings.Repeat("x", n)), io.MultiReader(strings.NewReader(strings.Repeat("x", n))))
				want = append(want, strings.Repeat("x", n))
			}
			for i, upload := range uploads {
				resp := must.Get(http.Post(st.envoy.URL+"/v1/files", "application/octet-stream", upload))(t)
				got, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || string(got) != want[i] {
					t.Errorf("upload %d: %d bytes came back, %v; want %d", i, len(got), err, len(want[i]))
				}
			}
			conn := must.Get(net.DialTimeout("tcp", strings.TrimPrefix(st.envoy.URL, "http://"), patience))(t)
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(conn, "GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
			r := bufio.NewReader(conn)
			resp, err := http.ReadResponse(r, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("upgrade: %+v, %v", resp, err)
			}
			for _, text := range []string{"hello", "again"} {
				_, _ = io.WriteString(conn, text)
				got := make([]byte, len(text))
				if _, err := io.ReadFull(r, got); err != nil || string(got) != text {
					t.Errorf("%q came back as %q, %v", text, got, err)
				}
			}
		})
	}
}

// TestManyHeaders: a hint makes no request fail that an Envoy without one takes by default, of up to 100 headers and 60 KiB,
// also where a gateway has the default limits.
func TestManyHeaders(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]*strings.Replacer{
		"generated": strings.NewReplacer(),
		"default":   strings.NewReplacer("max_headers_count: 120", "max_headers_count: 100", "max_request_headers_kb: 64", "max_request_headers_kb: 60"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := start(t, setup{replicas: 1, sim: fast(), bootstrap: limits.Replace})
			for name, fields := range map[string][]string{"100 headers": make([]string, 95), "61,000 bytes": {strings.Repeat("x", 61_000)}, "61,240 bytes": {strings.Repeat("x", 61_240)}} {
				var headers []string
				for i, value := range fields {
					headers = append(headers, fmt.Sprintf("X-%d", i), value)
				}
				if a := testenv.Post(t, st.envoy.URL+chatPath, []byte(`{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`), headers...); a.Status != http.StatusOK {
					t.Errorf("%s: %d %s", name, a.Status, a.Body)
				}
			}
		})
	}
}
