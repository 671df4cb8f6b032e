package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/lab/vllmsim"
)

// TestABrokenResponseLeavesNothing: a request whose response begins with 200 and
// breaks off before a first token counts as cached while it lasts, and no longer,
// whether Envoy shows the router nothing of responses or all of them.
func TestABrokenResponseLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]struct {
		envoy  envoy.Options
		bodies bool // Envoy sends bodies of responses, too
	}{
		"no response phase":   {envoy.Options{Mode: envoy.Buffered}, false},
		"duplex, bodies, too": {envoy.Options{Mode: envoy.FullDuplex}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakOff := make(chan struct{})
			st := start(t, setup{
				replicas: 1, sim: fast(), envoy: o.envoy,
				front: func(replica string) string { return breaking(t, replica, breakOff) },
				bootstrap: func(boot string) string {
					if !o.bodies {
						return boot
					}
					mode := streamed
					if o.envoy.Mode == envoy.FullDuplex {
						mode = string(envoy.FullDuplex)
					}
					return strings.Replace(boot, "response_body_mode: NONE", "response_body_mode: "+mode, 1)
				},
			})
			msgs := firstTurn(0)
			matched := func() (n int) {
				for _, stretch := range st.explain(msgs).Candidates[0].State.Match {
					n += stretch.Tokens
				}
				return n
			}
			if n := matched(); n != 0 {
				t.Fatalf("%d tokens count as cached before the request", n)
			}
			body, err := json.Marshal(map[string]any{"model": "sim", "messages": msgs, "stream": true})
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.Post(st.envoy.URL+chatPath, "application/json", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if n := matched(); n == 0 || resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %d tokens count as cached where the request was sent", resp.Status, n)
			}
			close(breakOff)
			if b, err := io.ReadAll(resp.Body); err == nil {
				t.Errorf("the response did not break off: %q", b)
			}
			st.until("the stream ends", func() bool { return st.metrics()["warmroute_streams"] == 0 })
			if n := matched(); n != 0 {
				t.Errorf("%d tokens count as cached after the response broke off", n)
			}
		})
	}
}

// breaking is a replica whose chat answers begin with 200 and break off at a
// signal on breakOff. It returns its address.
func breaking(t *testing.T, replica string, breakOff <-chan struct{}) string {
	t.Helper()
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: replica})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != chatPath {
			proxy.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {}\n\n")
		w.(http.Flusher).Flush()
		<-breakOff
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// TestEnvoyWaitsNoLonger: a decision that takes longer than message_timeout costs
// its request the hint and nothing else; it has a reason, and nothing is charged.
func TestEnvoyWaitsNoLonger(t *testing.T) {
	st := start(t, setup{replicas: 2, sim: fast(), config: "filter: {" + patient + "}\n", envoy: envoy.Options{Mode: envoy.Buffered, MessageTimeout: 50 * time.Millisecond}})
	faults(st, vllmsim.Faults{NoRender: true})
	if a := st.chat(firstTurn(0), 1); a.status != http.StatusOK {
		t.Errorf("%+v", a)
	}
	st.until("the stream ends", func() bool { return st.metrics()["warmroute_streams"] == 0 })
	if r := st.wantReasons(1, 0); r[string(decision.ReasonUnfinished)] != 1 {
		t.Errorf("reasons %v", r)
	}
	for name, v := range st.metrics() {
		if strings.HasPrefix(name, "warmroute_in_flight_requests{") && v != 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
}
