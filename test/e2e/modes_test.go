package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"warmroute/envoy"
)

// TestEveryBodyModeGivesHints: second turns land where the first did, in every
// mode that can carry a hint, with the served endpoint reported or not.
func TestEveryBodyModeGivesHints(t *testing.T) {
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		for _, served := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, served %v", mode, served), func(t *testing.T) {
				st := start(t, setup{replicas: 3, sim: fast(), envoy: envoy.Options{Mode: mode, Served: served}})
				for i := range 4 {
					first := firstTurn(i)
					a := st.chat(first, 4)
					st.settled()
					b := st.chat(append(first, message{"assistant", a.text}, message{"user", "more"}), 4)
					if a.status != 200 || b.status != 200 || a.replica != b.replica || b.cached == 0 {
						t.Errorf("conversation %d: %+v then %+v\n%s", i, a, b, st.explained(2))
					}
				}
				st.wantReasons(8, 1)
			})
		}
	}
}

// explained is what the router says of its last n decisions.
func (st *stack) explained(n int) string {
	resp, err := http.Get(fmt.Sprintf("http://%s/debug/explain?n=%d", st.admin, n))
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

// recorder is an upstream that keeps the last body and headers it got.
type recorder struct {
	mu     sync.Mutex
	body   []byte
	header http.Header
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	b, err := io.ReadAll(req.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.body, r.header = b, req.Header.Clone()
	r.mu.Unlock()
	_, _ = w.Write([]byte("{}"))
}

// TestBodiesPassByteForByte: whatever a body is, the upstream gets its bytes;
// and nothing but the headers warmroute owns is added.
func TestBodiesPassByteForByte(t *testing.T) {
	long := strings.Repeat("a long prompt ", 200_000) // 2.8 MB
	bodies := []string{
		`{"seed":9223372036854775807,"b":1,"a":2,"model":"sim","messages":[{"role":"user","content":"<&>\u003c\/"}],"x":1e400,"y":-0.0}`,
		`{"model":"sim","model":"sim","messages":[]}`,
		"{\"model\":\"sim\",\"messages\":[{\"role\":\"user\",\"content\":\"\xff\xfe\"}]}",
		`{"model":"sim","messages":[{"role":"user","content":"\ud800"}]}`,
		" \n\t{\"model\" : \"sim\" , \"prompt\":[1,2,3]} \r\n",
		"not json at all", "", "[]", `{"model":"sim","prompt":"` + long + `"}`,
	}
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial, envoy.FullDuplex} {
		t.Run(string(mode), func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			rec := &recorder{}
			srv := &http.Server{Handler: rec}
			go func() { _ = srv.Serve(l) }()
			t.Cleanup(func() { _ = srv.Close() })
			st := start(t, setup{replicas: 1, sim: fast(), envoy: envoy.Options{Mode: mode, Replicas: []string{l.Addr().String()}}, upstreamOnly: true})
			for i, body := range bodies {
				resp, err := http.Post(st.envoy.URL+"/v1/completions", "application/json", strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				rec.mu.Lock()
				if resp.StatusCode != 200 || !bytes.Equal(rec.body, []byte(body)) {
					t.Errorf("body %d: status %d, %d of %d bytes arrived", i, resp.StatusCode, len(rec.body), len(body))
				}
				for name := range rec.header {
					switch name {
					case "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding", "X-Forwarded-Proto", "X-Request-Id", "X-Gateway-Destination-Endpoint":
					default:
						t.Errorf("body %d: the upstream got header %s", i, name)
					}
				}
				rec.mu.Unlock()
			}
		})
	}
}
