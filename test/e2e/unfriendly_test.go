package e2e

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"warmroute/envoy"
	"warmroute/render/testkit/must"
)

// unfriendly are answers from which Envoy reads no usage, or reads it with effort, and
// how the router counts each.
var unfriendly = map[string]struct {
	state  string // "" = the answer's usage was not asked for, or the request failed
	status int
	header http.Header
	body   []byte
	cut    bool
}{
	"usage":            {"complete", 200, jsonType, usageOf(100, 64, ""), false},
	"no details":       {"partial", 200, jsonType, []byte(`{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"a"}}],"usage":{"prompt_tokens":100,"completion_tokens":1,"total_tokens":101}}`), false},
	"a liar":           {"failed", 200, jsonType, usageOf(100, 101, ""), false},
	"no usage":         {"none", 200, jsonType, []byte(`{"object":"chat.completion","choices":[]}`), false},
	"stream, no usage": {"none", 200, http.Header{"Content-Type": {"text/event-stream"}}, []byte("data: {\"choices\":[]}\n\ndata: [DONE]\n\n"), false},
	"gzip":             {"none", 200, http.Header{"Content-Type": {"application/json"}, "Content-Encoding": {"gzip"}}, zipped(usageOf(100, 64, "")), false},
	"10 MB":            {"failed", 200, jsonType, usageOf(100, 64, strings.Repeat("long ", 2<<20)), false},
	"3 MB":             {"complete", 200, jsonType, usageOf(100, 64, strings.Repeat("long ", 600_000)), false},
	"not JSON":         {"failed", 200, jsonType, []byte(`{"usage":`), false},
	"400":              {"", 400, jsonType, []byte(`{"error":{"message":"no"},"usage":{"prompt_tokens":1}}`), false},
	"500":              {"", 500, jsonType, usageOf(100, 64, ""), false},
	"cut":              {"none", 200, http.Header{"Content-Type": {"text/event-stream"}}, []byte("data: {\"choices\":[]}\n\n"), true},
}

var jsonType = http.Header{"Content-Type": {"application/json"}}

// usageOf is a chat's answer with a usage and a text.
func usageOf(prompt, cached int, text string) []byte {
	return fmt.Appendf(nil, `{"id":"a","object":"chat.completion","created":1,"model":"sim","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":1,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}}`, text, prompt, prompt+1, cached)
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

// answering puts a front before a replica that answers a chat as the header x-answer says.
func answering(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) func(string) string {
	return func(replica string) string {
		return inFront(t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			if r.URL.Path != chatPath {
				pass.ServeHTTP(w, r)
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			answer(w, r)
		}).addr
	}
}

// TestUnfriendlyAnswersPass: every answer reaches its client byte for byte, whether or
// not Envoy can read its usage; each is counted by the known part of its usage.
func TestUnfriendlyAnswersPass(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "access.json")
	st := start(t, setup{
		replicas: 1, sim: fast(), config: readAll,
		envoy: envoy.Options{UsageShare: new(100), AccessLog: log},
		front: answering(t, func(w http.ResponseWriter, r *http.Request) {
			a := unfriendly[r.Header.Get("X-Answer")]
			for name, v := range a.header {
				w.Header()[name] = v
			}
			if !a.cut {
				w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
			}
			w.WriteHeader(a.status)
			_, _ = w.Write(a.body)
			if a.cut {
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
		}),
	})
	want := map[string]float64{"complete": 0, "partial": 0, "failed": 0, "none": 0}
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	for name, a := range unfriendly {
		req := must.Get(http.NewRequest(http.MethodPost, st.envoy.URL+chatPath, bytes.NewReader(chatBody(t, firstTurn(0), 4))))(t)
		req.Header = http.Header{"Content-Type": {"application/json"}, "X-Answer": {name}}
		resp := must.Get(client.Do(req))(t)
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != a.status || !bytes.Equal(got, a.body) || (err != nil) != a.cut {
			t.Errorf("%s: status %d, %d of %d bytes, %v", name, resp.StatusCode, len(got), len(a.body), err)
		}
		if a.state != "" {
			want[a.state]++
		}
	}
	st.until("every answer is counted", func() bool {
		return st.metrics()[`warmroute_hint_outcomes_total{model="sim",served_by="first"}`] >= float64(len(unfriendly))
	})
	for state, n := range want {
		if got := st.metrics()[`warmroute_answer_usage_total{state="`+state+`"}`]; got != n {
			t.Errorf("%v answers are counted as %s, want %v", got, state, n)
		}
	}
	st.until("the access log has every request", func() bool { return strings.Count(readLog(t, log), "\n") >= len(unfriendly) })
	for name, states := range map[string]float64{"prompt": want["complete"] + want["partial"], "cached": want["complete"]} {
		// Those that Envoy has read, and a liar's.
		if n := len(regexp.MustCompile(`"actual_`+name+`_tokens":[0-9]`).FindAllString(readLog(t, log), -1)); n != int(states)+1 {
			t.Errorf("%d lines of the access log have the actual %s tokens:\n%s", n, name, readLog(t, log))
		}
	}
}

// TestUsageDelaysNoChunk: each event of a stream reaches the client before the replica
// sends the next one, and the bytes are the same.
func TestUsageDelaysNoChunk(t *testing.T) {
	t.Parallel()
	const events = 50
	got := make(chan struct{})
	var sent bytes.Buffer
	st := start(t, setup{
		replicas: 1, sim: fast(), config: readAll, envoy: envoy.Options{UsageShare: new(100)},
		front: answering(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			for i := range events {
				fmt.Fprintf(io.MultiWriter(w, &sent), "data: {\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1,\"total_tokens\":%d,\"prompt_tokens_details\":{\"cached_tokens\":%d}}}\n\n", 100+i, 101+i, i)
				w.(http.Flusher).Flush()
				select {
				case <-got: // the client has it
				case <-r.Context().Done():
					return
				}
			}
		}),
	})
	client := &http.Client{Timeout: patience} // of what hangs
	resp := must.Get(client.Post(st.envoy.URL+chatPath, "application/json", bytes.NewReader(chatBody(t, firstTurn(0), 4))))(t)
	defer resp.Body.Close()
	var received bytes.Buffer
	lines := bufio.NewReader(io.TeeReader(resp.Body, &received))
	for range events {
		for range 2 {
			must.Get(lines.ReadString('\n'))(t)
		}
		got <- struct{}{}
	}
	if _, err := io.Copy(io.Discard, lines); err != nil || !bytes.Equal(received.Bytes(), sent.Bytes()) {
		t.Errorf("%v; %d bytes were sent, %d received", err, sent.Len(), received.Len())
	}
	var rec known
	id := resp.Header.Get("X-Request-Id")
	st.until("the usage arrives", func() bool { rec = st.record(id); return rec.Cached != nil })
	if *rec.Prompt != 100+events-1 || *rec.Cached != events-1 {
		t.Errorf("the last event's usage is not the record's: %d, %d", *rec.Prompt, *rec.Cached)
	}
}
