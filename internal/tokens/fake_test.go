package tokens

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"warmroute/render/openai"
)

// someModel is the model of the tests' requests.
var someModel = Served{Model: "m"}

// fakeServer answers /render and /tokenize as a replica with the template and
// tokenizer of fakeModel: the text's bytes are the ids.
type fakeServer struct {
	*httptest.Server
	asked  atomic.Int64
	status atomic.Int64                              // when set, the answer
	block  chan struct{}                             // when not nil, answers wait for it
	answer func(path string, body []byte) [][]uint32 // nil: bytesOf the whole body
	last   atomic.Pointer[string]
}

func newFakeServer(t *testing.T) *fakeServer {
	t.Helper()
	f := &fakeServer{}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request) {
	f.asked.Add(1)
	body, _ := io.ReadAll(r.Body)
	text := string(body)
	f.last.Store(&text)
	if f.block != nil {
		<-f.block
	}
	if s := f.status.Load(); s != 0 {
		w.WriteHeader(int(s))
		return
	}
	prompts := [][]uint32{bytesOf(body)}
	if f.answer != nil {
		prompts = f.answer(r.URL.Path, body)
	}
	if prompts == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	list := make([]string, len(prompts))
	for i, ids := range prompts {
		b, _ := json.Marshal(ids)
		list[i] = fmt.Sprintf(`{"request_id":"x","token_ids":%s,"features":null,"tokens":%s}`, b, b)
	}
	if strings.HasPrefix(r.URL.Path, openai.Completions.String()) {
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
		return
	}
	_, _ = io.WriteString(w, list[0])
}

func (f *fakeServer) endpoints(render bool) func(Served) []Endpoint {
	return func(Served) []Endpoint { return []Endpoint{{URL: f.URL, Version: "0.32.0", Render: render}} }
}

func bytesOf(text []byte) []uint32 {
	ids := make([]uint32, 0, len(text))
	for _, b := range text {
		ids = append(ids, uint32(b))
	}
	return ids
}

func parse(t *testing.T, route openai.Route, body string) *openai.Request {
	t.Helper()
	req, err := openai.Parse(route, []byte(body))
	if err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return req
}

func chatRequest(t *testing.T, text string) *openai.Request {
	t.Helper()
	return parse(t, openai.Chat, `{"model":"m","messages":[{"role":"user","content":"`+text+`"}]}`)
}
