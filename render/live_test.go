//go:build vllm

package render_test

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
	url := os.Getenv("VLLM_RENDER")
	if url == "" {
		t.Fatal("VLLM_RENDER names no server, for instance http://127.0.0.1:8000")
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	resp, err := http.Get(url + "/version")
	if err != nil {
		t.Fatal(err)
	}
	var v chattest.Vectors
	err = json.NewDecoder(resp.Body).Decode(&v)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, c := range chattest.Generate(uint64(time.Now().UnixNano()), 500, "qwen-tiny") {
		answer, err := chattest.Ask(t.Context(), client, url, c)
		if err != nil || answer.Status == http.StatusNotFound || answer.Status == http.StatusMethodNotAllowed {
			continue // 0.21 closes the connection on unexpected input
		}
		v.Vectors = append(v.Vectors, answer)
	}
	compareIDs(t, server(t, qwen, qwenFlags("", 4000), v.Version, nil), v.Vectors) // the test servers' context
}
