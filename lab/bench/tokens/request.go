package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"warmroute/render"
	"warmroute/render/openai"
	"warmroute/render/testkit/oracle"
)

const (
	route = openai.Chat
	// turnSize is the text of one message in bytes; a turn is two of them.
	turnSize = 500
	// requestTokens is the prompt of the second measurement.
	requestTokens = 4000
	// server and transformers are the versions of vLLM and transformers in the
	// replicas, on which the rendering of some templates depends.
	server, transformers = "0.32.0", "5.19.0"
)

// message is one message of a chat; the roles alternate, as some templates require.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// dialogue returns a chat of about n bytes of new text that ends with the user.
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

// open reads a model for the server of the measurements.
func open(name string) (*render.Model, *render.Server, error) {
	m, err := render.Open(context.Background(), filepath.Join(models, name), render.Flags{Transformers: transformers})
	if err != nil {
		return nil, nil, err
	}
	s, err := m.Server(context.Background(), server, nil)
	return m, s, err
}

// requests measures whole requests from a body's bytes to ids: scanning, normalising and
// rendering included, through the model's own template.
func requests(ref *oracle.Process, name, text string) error {
	m, q, err := open(name)
	if err != nil {
		return err
	}
	if m.Info().Template == "" {
		fmt.Printf("| %s | no chat template |\n", name)
		return nil
	}
	r := &reader{text: text, at: 7} // starts at another part than the earlier measurements
	full, next := math.Inf(1), math.Inf(1)
	least := steps{scan: math.Inf(1), read: math.Inf(1), render: math.Inf(1), encode: math.Inf(1), bodies: openai.NewReader(openai.DefaultMemory)}
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
			if turn > 0 {
				if list, raw, err = r.grown(list); err != nil {
					return err
				}
				if err := least.measure(q, m, raw); err != nil {
					return err
				}
			}
			if list, _, err = r.grown(list); err != nil {
				return err
			}
		}
	}
	short, err := shortRequests(ref, q, r, name, int(requestTokens*ratio))
	if err != nil {
		return err
	}
	least.render -= least.scan + least.read // AppendText does both, too
	rendered := least.render + least.encode
	fmt.Printf("| %s | %.2f | %.3f | 1/%.0f | %.3f + %.3f | %.3f + %.3f | 1/%.0f | %d | %.2f | %.3f | %.3f | %.1f |\n", name, full, next, full/next,
		least.scan, least.read, least.render, least.encode, (full-least.scan-least.read)/rendered, short.tokens, short.rust, short.cold, short.warm, short.rust/short.cold)
	return nil
}

// grown returns the chat with another turn, and its body.
func (r *reader) grown(list []message) ([]message, []byte, error) {
	list = append(list, message{"assistant", r.take(turnSize)}, message{"user", r.take(turnSize)})
	raw, err := body(list)
	return list, raw, err
}

// steps are the shortest times of the parts of a request in ms: scanning the body,
// reading its messages, normalising and rendering them, encoding the text.
type steps struct {
	scan, read, render, encode float64

	bodies *openai.Reader

	text []byte
	ids  []uint32
}

func (s *steps) measure(server *render.Server, m *render.Model, raw []byte) error {
	t0 := time.Now()
	req, err := s.bodies.Parse(route, raw)
	if err != nil {
		return err
	}
	t1 := time.Now()
	if _, _, err := req.Values(nil, openai.FieldMessages); err != nil {
		return err
	}
	t2 := time.Now()
	text, special, err := server.AppendText(s.text[:0], route.String(), raw)
	if err != nil {
		return err
	}
	t3 := time.Now()
	s.text, s.ids = text, m.Encode(s.ids[:0], text, special)
	t4 := time.Now()
	ms := func(d time.Duration) float64 { return d.Seconds() * 1e3 }
	s.scan, s.read = min(s.scan, ms(t1.Sub(t0))), min(s.read, ms(t2.Sub(t1)))
	s.render, s.encode = min(s.render, ms(t3.Sub(t2))), min(s.encode, ms(t4.Sub(t3)))
	return nil
}

// shortTimes are milliseconds; rust is the encoding of the rendered text alone.
type shortTimes struct {
	tokens           int
	rust, cold, warm float64
}

func shortRequests(ref *oracle.Process, q *render.Server, r *reader, name string, n int) (shortTimes, error) {
	out := shortTimes{rust: math.Inf(1), cold: math.Inf(1), warm: math.Inf(1)}
	for range 2 * rounds {
		raw, err := body(r.dialogue(n))
		if err != nil {
			return out, err
		}
		rendered, _, err := q.AppendText(nil, route.String(), raw)
		if err != nil {
			return out, err
		}
		var t timing
		if err := ref.Ask(map[string]any{"op": "time", "name": name, "text": string(rendered)}, &t); err != nil {
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

// room is memory for ids, which a router also uses again.
var room []uint32

// ask computes a body's ids, and returns the time in ms and their number.
func ask(q *render.Server, raw []byte) (ms float64, n int, err error) {
	start := time.Now()
	ids, err := q.TokenizeInto(nil, &room, route.String(), raw)
	ms = time.Since(start).Seconds() * 1e3
	if err != nil {
		return 0, 0, err
	}
	return ms, len(ids[0]), nil
}
