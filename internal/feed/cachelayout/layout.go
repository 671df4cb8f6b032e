package cachelayout

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// ErrUnknown means that nobody has found out what the layers of such a model keep.
var ErrUnknown = errors.New("it is not known what the layers of this model keep in the cache")

// Layout is what the layers of a model keep in the KV cache.
type Layout struct {
	Kinds []string // of its layers, each once: "full", "sliding window", "chunked attention", "Mamba state"
	Chunk int      // tokens of a chunk of chunked attention; 0: the model has no such layers
}

// The kinds of layers; "" keeps nothing.
const (
	full    = "full"
	window  = "sliding window"
	chunked = "chunked attention"
	state   = "Mamba state"
)

// KindsOf returns the kinds, nil if there is no layout.
func (l *Layout) KindsOf() []string {
	if l == nil {
		return nil
	}
	return l.Kinds
}

// ChunkOr returns n, or the model's chunk size if n is 0.
func (l *Layout) ChunkOr(n int) int {
	if n == 0 && l != nil {
		return l.Chunk
	}
	return n
}

// maxConfig bounds a config.json.
const maxConfig = 16 << 20

// maxLayers exceeds the layers of any model.
const maxLayers = 4096

// Read reads the config.json of a model's folder.
func Read(dir string) (*Layout, error) {
	path := filepath.Join(dir, "config.json")
	if info, err := os.Stat(path); err == nil && info.Size() > maxConfig {
		return nil, fmt.Errorf("%s has %d bytes, more than a configuration", path, info.Size())
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	l, err := Parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Parse reads the text of a config.json.
func Parse(raw []byte) (*Layout, error) {
	c, err := parse(raw)
	if err != nil {
		return nil, err
	}
	layers, err := c.layers()
	if err != nil {
		return nil, err
	}
	out := &Layout{}
	for _, kind := range layers {
		if kind != "" && !slices.Contains(out.Kinds, kind) {
			out.Kinds = append(out.Kinds, kind)
		}
	}
	if out.Kinds == nil {
		return nil, ErrUnknown
	}
	if slices.Contains(out.Kinds, chunked) {
		out.Chunk = c.chunk()
	}
	return out, nil
}

// parse reads the configuration of the part that generates text.
func parse(raw []byte) (*config, error) {
	var c struct {
		config
		Text *config `json:"text_config"`
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, errors.New("it is not a model's configuration in JSON")
	}
	if c.Text != nil {
		return c.Text, nil
	}
	return &c.config, nil
}
