package vllmsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxBody bounds a request's body: enough for a few images as data URLs.
const maxBody = 64 << 20

// apiError is an answer other than 200, in vLLM's form.
type apiError struct {
	status  int
	kind    string
	param   string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(format string, args ...any) *apiError {
	return &apiError{http.StatusBadRequest, "BadRequestError", "", fmt.Sprintf(format, args...)}
}

func (s *Sim) handler() http.Handler {
	mux := http.NewServeMux()
	routes := map[string]parser{
		"/v1/chat/completions": s.parseChat,
		"/v1/completions":      s.parseCompletions,
		"/v1/responses":        s.parseResponses,
		"/v1/messages":         s.parseMessages,
	}
	for path, parse := range routes {
		mux.HandleFunc("POST "+path, s.generate(parse))
		// 0.21 renders only chat and completions.
		if s.o.Version == V032 || strings.HasSuffix(path, "completions") {
			mux.HandleFunc("POST "+path+"/render", s.render(parse))
		}
	}
	mux.HandleFunc("POST /tokenize", s.tokenize)
	mux.HandleFunc("POST /detokenize", s.detokenize)
	mux.HandleFunc("GET /v1/models", s.models)
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"version": s.o.Version})
	})
	mux.HandleFunc("GET /load", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"server_load": s.load.Load()})
	})
	if s.o.Version == V032 {
		mux.HandleFunc("GET /kv_event_sources", s.eventSources)
	}
	if s.o.Connector == Nixl {
		mux.HandleFunc("POST "+claimPath, s.claim)
		mux.HandleFunc("POST "+pulledPath, s.pulled)
	}
	if !s.o.NoDevMode {
		mux.HandleFunc("POST /reset_prefix_cache", s.resetPrefixCache)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f := s.faults.Load()
		if f.Stall || f.NoRender && (r.URL.Path == "/tokenize" || strings.HasSuffix(r.URL.Path, "/render")) {
			<-r.Context().Done()
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client left
}

func writeError(w http.ResponseWriter, err error) {
	var e *apiError
	if !errors.As(err, &e) {
		e = badRequest("%v", err)
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": param, "code": e.status,
	}})
}

// readJSON decodes the request's body into v.
func readJSON(r *http.Request, v any) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return badRequest("the body cannot be read: %v", err)
	}
	if len(body) > maxBody {
		return &apiError{http.StatusRequestEntityTooLarge, "BadRequestError", "", fmt.Sprintf("the body is over %d bytes", maxBody)}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return badRequest("the body cannot be decoded: %v", err)
	}
	return nil
}

func (s *Sim) models(w http.ResponseWriter, _ *http.Request) {
	type card struct {
		ID          string  `json:"id"`
		Object      string  `json:"object"`
		Created     int64   `json:"created"`
		OwnedBy     string  `json:"owned_by"`
		Root        string  `json:"root"`
		Parent      *string `json:"parent"`
		MaxModelLen *int    `json:"max_model_len"`
		Permission  []any   `json:"permission"`
	}
	var cards []card
	now := s.started.Unix()
	for _, name := range append([]string{s.o.Model}, s.o.Aliases...) {
		cards = append(cards, card{name, "model", now, "vllm", s.o.Root, nil, &s.o.MaxModelLen, []any{}})
	}
	for _, l := range s.o.LoRAs {
		cards = append(cards, card{l.Name, "model", now, "vllm", l.Path, &s.o.Model, nil, []any{}})
	}
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": cards})
}

// eventSources answers 0.32's GET /kv_event_sources: each rank's publisher settings.
func (s *Sim) eventSources(w http.ResponseWriter, _ *http.Request) {
	out := map[string]any{}
	for r, k := range s.ranks {
		if k.events == nil {
			continue
		}
		var replay any
		if e := s.ReplayEndpoint(r); e != "" {
			replay = wildcard(e)
		}
		out[strconv.Itoa(r)] = map[string]any{
			"enable_kv_cache_events": true, "publisher": "zmq",
			"endpoint": wildcard(s.EventEndpoint(r)), "replay_endpoint": replay,
			"buffer_steps": s.o.BufferSteps, "hwm": 100_000, "max_queue_size": 100_000, "topic": s.o.Topic,
		}
	}
	writeJSON(w, http.StatusOK, out)
}

// wildcard writes an endpoint bound to every address as vLLM's settings do.
func wildcard(endpoint string) string {
	for _, any := range []string{"tcp://[::]:", "tcp://0.0.0.0:"} {
		if port, ok := strings.CutPrefix(endpoint, any); ok {
			return "tcp://*:" + port
		}
	}
	return endpoint
}

func (s *Sim) resetPrefixCache(w http.ResponseWriter, _ *http.Request) {
	ok := s.ResetPrefixCache()
	if s.o.Version == V032 {
		writeJSON(w, http.StatusOK, map[string]any{"success": ok})
	}
}

// tokenize answers for the body's prompt or messages.
func (s *Sim) tokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Model  string  `json:"model"`
		Prompt *string `json:"prompt"`
		chatRequest
		ReturnTokenStrs bool `json:"return_token_strs"`
	}
	if err := readJSON(r, &req); err != nil {
		writeError(w, err)
		return
	}
	if _, err := s.lora(req.Model); err != nil {
		writeError(w, err)
		return
	}
	var tokens []uint32
	if req.Prompt != nil {
		tokens = encode([]uint32{}, *req.Prompt)
	} else {
		p, err := s.chatPrompt(&req.chatRequest)
		if err != nil {
			writeError(w, err)
			return
		}
		tokens = p.tokens
	}
	out := map[string]any{"count": len(tokens), "max_model_len": s.o.MaxModelLen, "tokens": tokens, "token_strs": nil}
	if req.ReturnTokenStrs {
		strs := make([]string, len(tokens))
		for i, t := range tokens {
			strs[i] = string(decode(nil, t))
		}
		out["token_strs"] = strs
	}
	writeJSON(w, http.StatusOK, out)
}

func (s *Sim) detokenize(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Tokens []uint32 `json:"tokens"`
	}
	if err := readJSON(r, &req); err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"prompt": decodeAll(req.Tokens)})
}

// lora returns the adapter of a model name: nil for the base model, its aliases and, as in
// vLLM, an empty name.
func (s *Sim) lora(model string) (*adapter, error) {
	if a, ok := s.adapters[model]; ok {
		return a, nil
	}
	if model == "" || model == s.o.Model {
		return nil, nil
	}
	for _, a := range s.o.Aliases {
		if a == model {
			return nil, nil
		}
	}
	return nil, &apiError{http.StatusNotFound, "NotFoundError", "model", fmt.Sprintf("The model `%s` does not exist.", model)}
}
