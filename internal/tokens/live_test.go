//go:build vllm

package tokens

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"
	"time"

	"warmroute/render/testkit/chattest"
)

// TestLive compares with the running server whose URL is in VLLM_RENDER (served model qwen-tiny, Qwen3 tokenizer, tool parser on)
func TestLive(t *testing.T) {
	server := os.Getenv("VLLM_RENDER")
	if server == "" {
		t.Fatal("VLLM_RENDER names no server, for instance http://127.0.0.1:8000")
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	resp, err := http.Get(server + "/version")
	if err != nil {
		t.Fatal(err)
	}
	var v chattest.Vectors
	err = json.NewDecoder(resp.Body).Decode(&v)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	m := qwen(t)
	m.MaxLen = 4000 // what the test servers are started with
	endpoints := func(string) []Endpoint { return []Endpoint{{URL: server, Version: v.Version, Render: true}} }
	asked := func(s Served) []Endpoint { return endpoints(s.Model) }
	l := NewLocal(LocalOptions{Reference: newRemote(t, RemoteOptions{Endpoints: asked}), Endpoints: endpoints, LocalSettings: LocalSettings{SampleEvery: -1}})
	if err := l.Load("qwen-tiny", m); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	l.CheckAll(t.Context())
	t.Logf("vLLM %s verified in %v: %+v", v.Version, time.Since(start), l.Status())
	m.Chat.Version = v.Version
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range chattest.Generate(uint64(time.Now().UnixNano()), 500, "qwen-tiny") {
		answer, err := chattest.Ask(t.Context(), client, server, c)
		if err != nil || answer.Status == http.StatusNotFound || answer.Status == http.StatusMethodNotAllowed {
			continue // 0.21 closes the connection on what it does not expect
		}
		v.Vectors = append(v.Vectors, answer)
	}
	compareIDs(t, m, v.Vectors)
}
