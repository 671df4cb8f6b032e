package tokenize

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// maxLine bounds a line: a request body of 64 MB.
const maxLine = 64 << 20

// Encoder appends the ids of text to dst; *render.Model is one.
type Encoder interface {
	Encode(dst []uint32, text []byte, addSpecial bool) []uint32
}

// Requests turns a request body into the ids of each of its prompts. An error
// with a method Refused means that vLLM may still serve the request.
type Requests interface {
	Tokenize(path string, body []byte) ([][]uint32, error)
}

// Model computes the answers. Requests may be nil: lines with a body are then errors.
type Model struct {
	Text     Encoder
	Requests Requests
}

// Run answers each line of in on out. With a route every line is a body for it, and
// without one each line names its kind. It returns when in ends, or with the first error
// of in or out.
func Run(in io.Reader, out io.Writer, m Model, route string) error {
	answer := m.answer
	if route != "" {
		answer = func(line []byte) []byte { return m.request(route, line) }
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	w := bufio.NewWriter(out)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if _, err := w.Write(answer(line)); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		// A caller may wait for each answer before it sends the next line.
		if err := w.Flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the next line: %w", err)
	}
	return nil
}

type question struct {
	Text    *string         `json:"text"`
	Special bool            `json:"add_special_tokens"`
	Path    string          `json:"path"`
	Body    json.RawMessage `json:"body"`
}

func (m Model) answer(line []byte) []byte {
	prompts, err := m.tokenize(line)
	switch {
	case err != nil:
		return errorLine("error", err.Error())
	case len(prompts) == 1:
		return append(appendIDs([]byte(`{"ids":`), prompts[0]), "}\n"...)
	}
	return append(appendPrompts([]byte(`{"prompts":`), prompts), "}\n"...)
}

// request answers a body with its ids (a list of lists for several prompts), with the
// reason for computing none here, or with vLLM's objection.
func (m Model) request(route string, body []byte) []byte {
	if m.Requests == nil {
		return errorLine("error", errNoRequests.Error())
	}
	prompts, err := m.Requests.Tokenize(route, body)
	var refusal interface{ Refused() string }
	switch {
	case errors.As(err, &refusal):
		return errorLine("refused", refusal.Refused())
	case err != nil:
		return errorLine("error", err.Error())
	case len(prompts) == 1:
		return append(appendIDs([]byte(`{"ids":`), prompts[0]), "}\n"...)
	}
	return append(appendPrompts([]byte(`{"ids":`), prompts), "}\n"...)
}

// errorLine returns an object of one key and one text.
func errorLine(key, text string) []byte {
	quoted, _ := json.Marshal(text) // a string always marshals
	return append(append([]byte(`{"`+key+`":`), quoted...), "}\n"...)
}

var errNoRequests = errors.New("request bodies need the model's chat template, which is not loaded")

func (m Model) tokenize(line []byte) ([][]uint32, error) {
	var q question
	if err := json.Unmarshal(line, &q); err != nil {
		return nil, fmt.Errorf("the line is not a JSON object with text or path and body: %w", err)
	}
	switch {
	case q.Text != nil && q.Body == nil:
		if loneSurrogate(line) {
			return nil, errors.New("the text holds half of a surrogate pair, which the reference refuses")
		}
		return [][]uint32{m.Text.Encode(nil, []byte(*q.Text), q.Special)}, nil
	case q.Body != nil && q.Text == nil:
		if m.Requests == nil {
			return nil, errNoRequests
		}
		return m.Requests.Tokenize(q.Path, q.Body)
	}
	return nil, errors.New("the line needs either text or path and body")
}

// loneSurrogate reports whether an escape in JSON text is half of a pair, which Go would
// silently replace.
func loneSurrogate(line []byte) bool {
	high := false
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' || i+1 == len(line) {
			if high {
				return true
			}
			continue
		}
		i++
		var v uint64
		if line[i] == 'u' && i+5 <= len(line) {
			v, _ = strconv.ParseUint(string(line[i+1:i+5]), 16, 32) // the JSON parser has checked the digits
			i += 4
		}
		isLow := v >= 0xDC00 && v < 0xE000
		if high != isLow {
			return true
		}
		high = v >= 0xD800 && v < 0xDC00
	}
	return high
}

func appendPrompts(dst []byte, prompts [][]uint32) []byte {
	dst = append(dst, '[')
	for i, ids := range prompts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendIDs(dst, ids)
	}
	return append(dst, ']')
}

func appendIDs(dst []byte, ids []uint32) []byte {
	dst = append(dst, '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}
