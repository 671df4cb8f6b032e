package testenv

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Answer is a streamed answer as its client saw it.
type Answer struct {
	Text   string
	TTFT   time.Duration // to the first chunk with text: headers and a role come before any token
	Last   time.Duration // to the last chunk with text
	Prompt int           // tokens, where the request includes usage
	Cached int           // of them
}

// Ask posts a request for a stream, of a chat or a completion, and reads the stream to its
// end.
func Ask(ctx context.Context, client *http.Client, url string, body []byte) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return Answer{}, fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	return read(resp.Body, began)
}

// chunk has the fields of a streamed chunk that read uses.
type chunk struct {
	Choices []struct {
		Text  string `json:"text"` // of a completion
		Delta struct {
			Content string `json:"content"` // of a chat
		} `json:"delta"`
	} `json:"choices"`
	Usage *struct {
		Prompt  int `json:"prompt_tokens"`
		Details struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
}

// read reads a stream up to its [DONE].
func read(stream io.Reader, began time.Time) (Answer, error) {
	var a Answer
	var said strings.Builder
	for s := bufio.NewScanner(stream); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			a.Text = said.String()
			return a, nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return a, fmt.Errorf("a chunk that is no JSON: %w", err)
		}
		if len(c.Choices) > 0 && c.Choices[0].Text+c.Choices[0].Delta.Content != "" {
			if a.Last = time.Since(began); a.TTFT == 0 {
				a.TTFT = a.Last
			}
			said.WriteString(c.Choices[0].Text + c.Choices[0].Delta.Content)
		}
		if c.Usage != nil {
			a.Prompt, a.Cached = c.Usage.Prompt, c.Usage.Details.Cached
		}
	}
	return a, io.ErrUnexpectedEOF
}

// Quantile returns the q-quantile (nearest rank) of times, which it sorts; 0 if there are none.
func Quantile(times []time.Duration, q float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(q*float64(len(times))))]
}
