package chattest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"warmroute/render/openai"
)

// Vector is a server's answer to a generated request.
type Vector struct {
	Path string `json:"path"`
	Body string `json:"body"`
	// IDs has one list per prompt. Texts has their decoded texts (in composed form, NFC).
	// A capture has one of the two, and neither if the server refused the request.
	IDs   [][]uint32 `json:"ids,omitempty"`
	Texts []string   `json:"texts,omitempty"`
	// Status is the HTTP status of a refusal.
	Status int `json:"status,omitempty"`
}

// Vectors is a capture file: gzipped JSON.
type Vectors struct {
	Version string   `json:"version"` // vLLM's
	Vectors []Vector `json:"vectors"`
}

// Read reads a capture.
func Read(file string) (Vectors, error) {
	var v Vectors
	f, err := os.Open(file)
	if err != nil {
		return v, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return v, fmt.Errorf("%s: %w", file, err)
	}
	if err := json.NewDecoder(z).Decode(&v); err != nil {
		return v, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

// Write writes a capture.
func Write(file string, v Vectors) error {
	var b bytes.Buffer
	z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err := json.NewEncoder(z).Encode(v); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}

// Ask sends a case to a server's /render and returns its answer.
func Ask(ctx context.Context, client *http.Client, server string, c Case) (Vector, error) {
	v := Vector{Path: c.Route.String(), Body: c.Body}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server+v.Path+"/render", strings.NewReader(c.Body))
	if err != nil {
		return v, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return v, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return v, err
	}
	if resp.StatusCode != http.StatusOK {
		v.Status = resp.StatusCode
		return v, nil
	}
	type prompt struct {
		IDs []uint32 `json:"token_ids"`
	}
	var prompts []prompt
	if c.Route == openai.Completions {
		err = json.Unmarshal(body, &prompts)
	} else {
		prompts = make([]prompt, 1)
		err = json.Unmarshal(body, &prompts[0])
	}
	for _, p := range prompts {
		v.IDs = append(v.IDs, p.IDs)
	}
	return v, err
}
