package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"warmroute/render"
)

// simVersion is the vLLM release of the simulated replicas.
const simVersion = "0.32.0"

// model computes token ids like a server of a real model: the simulator has a tokenizer
// of its own, which the router does not know.
type model struct {
	dir      string
	requests *render.Server
}

func loadModel(dir string) (*model, error) {
	m, err := render.Open(context.Background(), dir, render.Flags{})
	if err != nil {
		return nil, err
	}
	r, err := m.Server(context.Background(), simVersion, nil)
	return &model{dir, r}, err
}

// config makes the router compute ids with the model, as soon as the replicas have
// confirmed them.
func (m *model) config() string {
	return fmt.Sprintf("tokens: {models: [{id: sim, files: %q}]}\n", m.dir)
}

// ids returns a chat body's token ids.
func (m *model) ids(body []byte) ([]uint32, error) {
	list, err := m.requests.Tokenize("/v1/chat/completions", body)
	if err != nil {
		return nil, err
	}
	return list[0], nil
}

// answer answers /render and /tokenize, and leaves other requests to next.
func (m *model) answer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, render := strings.CutSuffix(r.URL.Path, "/render")
		if !render && path != "/tokenize" {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		if path == "/tokenize" {
			path = "/v1/completions"
			if bytes.Contains(body, []byte(`"messages":`)) {
				path = "/v1/chat/completions"
			}
		}
		list, err := m.requests.Tokenize(path, body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(tokenAnswer(list, path, render)) // the client has gone
	})
}

// tokenAnswer returns the answer in its route's form: a list of prompts from
// /v1/completions/render.
func tokenAnswer(list [][]uint32, path string, render bool) any {
	if !render {
		return map[string]any{"tokens": list[0], "count": len(list[0])}
	}
	out := make([]map[string]any, len(list))
	for i := range list {
		out[i] = map[string]any{"token_ids": list[i]}
	}
	if path == "/v1/completions" {
		return out
	}
	return out[0]
}
