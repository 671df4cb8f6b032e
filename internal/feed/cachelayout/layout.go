package cachelayout

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// ErrUnknown means that nobody has found out what the layers of such a model keep.
var ErrUnknown = errors.New("it is not known what the layers of this model keep in the cache")

// Layout is what the layers of a model keep in the KV cache.
type Layout struct {
	Kinds []string // of its layers, each once: "full", "sliding window", "chunked attention", "Mamba state"
	Chunk int      // tokens of a chunk of chunked attention; 0: the model has no such layers
}

// The kinds of layers.
const (
	full    = "full"
	window  = "sliding window"
	chunked = "chunked attention"
	state   = "Mamba state"
)

// usual has the kinds of layers of the models whose code was read, by model_type.
var usual = map[string][]string{
	"llama": {full}, "mistral": {full}, "mixtral": {full}, "deepseek_v2": {full}, "deepseek_v3": {full},
	"qwen2": {full}, "qwen2_moe": {full}, "qwen3": {full}, "qwen3_moe": {full},

	"gemma2": {window, full}, "gemma3": {window, full}, "gemma3_text": {window, full}, "gemma3n_text": {window, full},
	"gemma4_text": {window, full}, "cohere2": {window, full}, "gpt_oss": {window, full}, "olmo3": {window, full}, "exaone4": {window, full},

	"llama4_text": {chunked, full},

	"qwen3_next": {state, full}, "qwen3_5_text": {state, full}, "qwen3_5_moe_text": {state, full}, "granitemoehybrid": {state, full},
	"lfm2": {state, full}, "lfm2_moe": {state, full}, "jamba": {state, full}, "bamba": {state, full}, "nemotron_h": {state, full},
	"kimi_linear": {state, full}, "falcon_h1": {full, state}, "mamba": {state}, "mamba2": {state}, "falcon_mamba": {state},
}

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

// config has the values of a config.json that decide the kinds.
type config struct {
	Type       string   `json:"model_type"`
	LayerTypes []string `json:"layer_types"`
	Window     number   `json:"sliding_window"`
	UseWindow  bool     `json:"use_sliding_window"`
	Chunk      number   `json:"attention_chunk_size"`
	Text       *config  `json:"text_config"` // of the part that generates text
}

// number is a number that may be absent, or null, which is 0.
type number struct {
	given bool
	n     int
}

// UnmarshalJSON implements json.Unmarshaler.
func (v *number) UnmarshalJSON(raw []byte) error {
	v.given = true
	return json.Unmarshal(raw, &v.n)
}

// Parse reads the text of a config.json.
func Parse(raw []byte) (*Layout, error) {
	var c config
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, errors.New("it is not a model's configuration in JSON")
	}
	if c.Text != nil {
		c = *c.Text
	}
	l := &Layout{Kinds: usual[c.Type]}
	switch c.Type {
	case "llama", "mistral", "mixtral":
		switch {
		case c.LayerTypes != nil, c.Type == "mistral" && !c.Window.given:
			l.Kinds = nil // some layers may have windows
		case c.Window.n > 0:
			l.Kinds = []string{window}
		}
	case "qwen2", "qwen2_moe", "qwen3", "qwen3_moe":
		if c.UseWindow {
			l.Kinds = nil
		}
	case "llama4_text":
		switch l.Chunk = max(0, c.Chunk.n); {
		case !c.Chunk.given:
			l.Chunk = defaultChunk
		case l.Chunk == 0:
			l.Kinds = []string{full}
		}
	}
	if l.Kinds == nil {
		return nil, fmt.Errorf("model_type %q: %w", c.Type, ErrUnknown)
	}
	return l, nil
}

// defaultChunk is the chunk of a Llama 4 whose configuration names none.
const defaultChunk = 8192
