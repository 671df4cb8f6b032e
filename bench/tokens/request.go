package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"warmroute/internal/chat"
	"warmroute/internal/openai"
	"warmroute/internal/tokens"
	"warmroute/test/oracle"
)

const (
	route = openai.Chat
	// turnSize is the text of one message in bytes; a turn is two of them.
	turnSize = 500
	// requestTokens is the prompt of the second measurement.
	requestTokens = 4000
	// server and transformers are what the replicas run, which some templates
	// are rendered by.
	server, transformers = "0.32.0", "5.19.0"
)

// message is one of a chat; the roles take turns, as some templates insist.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// dialogue is a chat of about n bytes of new text that ends with the user.
func (r *reader) dialogue(n int) []message {
	var list []message
	for size := 0; size < n || len(list)%2 == 0; size += turnSize {
		list = append(list, message{[2]string{"user", "assistant"}[len(list)%2], r.take(turnSize)})
	}
	return list
}

func body(list []message) ([]byte, error) {
	return json.Marshal(map[string]any{"model": "m", "messages": list})
}

// requests measures whole requests: from a body's bytes to ids, scanning,
// normalising and rendering included, through the model's own template.
func requests(ref *oracle.Process, name, text string) error {
	m, err := tokens.LoadFolder(filepath.Join(oracle.Root(), ".cache", "models", name), tokens.Flags{Transformers: transformers})
	if err != nil {
		return err
	}
	if m.Chat.Template == "" {
		fmt.Printf("| %s | no chat template |\n", name)
		return nil
	}
	q, err := m.Requests(server, nil)
	if err != nil {
		return err
	}
	r := &reader{text: text, at: 7} // other parts than the texts encoded before
	full, next := math.Inf(1), math.Inf(1)
	ratio := 0.0 // bytes a token
	for range rounds {
		list := r.dialogue(size)
		for turn := range 6 {
			raw, err := body(list)
			if err != nil {
				return err
			}
			took, n, err := ask(q, raw)
			if err != nil {
				return err
			}
			if turn == 0 {
				full, ratio = min(full, took), size/float64(n)
			} else {
				next = min(next, took)
			}
			list = append(list, message{"assistant", r.take(turnSize)}, message{"user", r.take(turnSize)})
		}
	}
	short, err := shortRequests(ref, q, m, r, name, int(requestTokens*ratio))
	if err != nil {
		return err
	}
	fmt.Printf("| %s | %.2f | %.3f | 1/%.0f | %d | %.2f | %.3f | %.3f | %.1f |\n", name, full, next, full/next, short.tokens, short.rust, short.cold, short.warm, short.rust/short.cold)
	return nil
}

// shortTimes are milliseconds; rust is the encoding of the rendered text alone.
type shortTimes struct {
	tokens           int
	rust, cold, warm float64
}

func shortRequests(ref *oracle.Process, q *tokens.Requests, m tokens.Model, r *reader, name string, n int) (shortTimes, error) {
	out := shortTimes{rust: math.Inf(1), cold: math.Inf(1), warm: math.Inf(1)}
	m.Chat.Version = server
	renderer, err := chat.New(m.Chat)
	if err != nil {
		return out, err
	}
	for range 2 * rounds {
		raw, err := body(r.dialogue(n))
		if err != nil {
			return out, err
		}
		req, err := openai.Parse(route, raw)
		if err != nil {
			return out, err
		}
		rendered, err := renderer.Render(nil, req, time.Now())
		if err != nil {
			return out, err
		}
		var t timing
		if err := ref.Ask(map[string]any{"op": "time", "name": name, "text": string(rendered.Text)}, &t); err != nil {
			return out, err
		}
		out.rust = min(out.rust, t.First*1e3)
		for i := range 3 {
			took, n, err := ask(q, raw)
			if err != nil {
				return out, err
			}
			if out.tokens = n; i == 0 {
				out.cold = min(out.cold, took)
			} else {
				out.warm = min(out.warm, took)
			}
		}
	}
	return out, nil
}

// ask computes a body's ids: how long it took in ms, and how many they are.
func ask(q *tokens.Requests, raw []byte) (ms float64, n int, err error) {
	start := time.Now()
	ids, err := q.Tokenize(route.String(), raw)
	ms = time.Since(start).Seconds() * 1e3
	if err != nil {
		return 0, 0, err
	}
	return ms, len(ids[0]), nil
}
