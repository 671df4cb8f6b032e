package cachelayout

import (
	"encoding/json"
	"fmt"
	"slices"
)

// config has the values of a config.json that decide the layers' caches. A value is a
// number if its absence means something else than zero.
type config struct {
	Type   string `json:"model_type"`
	Layers int    `json:"num_hidden_layers"`

	LayerTypes    []string `json:"layer_types"`
	BlockTypes    []string `json:"layers_block_type"`
	Bidirectional any      `json:"use_bidirectional_attention"`
	windowValues
	chunkValues
	stateValues
}

// windowValues has the values of sliding windows.
type windowValues struct {
	Window        number `json:"sliding_window"`
	UseWindow     bool   `json:"use_sliding_window"`
	WindowPattern number `json:"sliding_window_pattern"`
}

// chunkValues has the values of chunked attention.
type chunkValues struct {
	Chunk        number `json:"attention_chunk_size"`
	RopeLayers   []int  `json:"no_rope_layers"` // 0 where a layer has none: it attends to everything
	RopeInterval number `json:"no_rope_layer_interval"`
}

// stateValues has the values of layers that keep a state.
type stateValues struct {
	FullInterval  number `json:"full_attention_interval"`
	AttnPeriod    number `json:"attn_layer_period"`
	AttnOffset    number `json:"attn_layer_offset"`
	AttnIndices   []int  `json:"attn_layer_indices"`
	HybridPattern string `json:"hybrid_override_pattern"`
	Linear        *struct {
		States []int `json:"kda_layers"` // from 1
	} `json:"linear_attn_config"`
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

// or returns the number, or absent if it is absent: the default of the model's own code.
func (v number) or(absent int) int {
	if v.given {
		return v.n
	}
	return absent
}

// layers returns the layers in vLLM's order, for the models whose code was read.
func (c *config) layers() ([]string, error) {
	if c.Layers < 0 || c.Layers > maxLayers || len(c.HybridPattern) > maxLayers {
		return nil, fmt.Errorf("num_hidden_layers %d: %w", c.Layers, ErrUnknown)
	}
	switch c.Type {
	case "llama", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral":
		return c.alike()
	case "deepseek_v2", "deepseek_v3":
		return c.each(func(int) string { return full })
	case "gemma2":
		return c.windows(4096, c.every(2))
	case "gemma3", "gemma3_text":
		return c.windows(4096, c.every(c.WindowPattern.or(6)))
	case "gemma3n_text":
		return c.windows(512, c.every(5))
	case "gemma4_text":
		sixth := c.every(6)
		return c.windows(512, func(i int) bool { return sixth(i) || i == c.Layers-1 })
	case "cohere2":
		return c.windows(4096, c.every(c.WindowPattern.or(4)))
	case "gpt_oss":
		c.LayerTypes = nil // vLLM does not read them
		return c.windows(128, c.every(2))
	case "olmo3", "exaone4":
		if c.LayerTypes != nil {
			return c.windows(4096, nil)
		}
	case "llama4_text":
		return c.chunks()
	case "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text":
		return c.states(c.LayerTypes, c.every(c.FullInterval.or(4)))
	case "granitemoehybrid", "lfm2", "lfm2_moe":
		if c.LayerTypes != nil {
			return c.states(c.LayerTypes, nil)
		}
	case "jamba":
		period, offset := c.AttnPeriod.or(8), c.AttnOffset.or(4)
		return c.states(nil, func(i int) bool { return period > 0 && i%period == offset })
	case "bamba":
		return c.states(nil, func(i int) bool { return slices.Contains(c.AttnIndices, i) })
	case "nemotron_h":
		return c.pattern()
	case "kimi_linear":
		if c.Linear != nil {
			return c.each(func(i int) string {
				if slices.Contains(c.Linear.States, i+1) {
					return state
				}
				return full
			})
		}
	case "falcon_h1": // each layer has both
		both, err := c.each(func(int) string { return full })
		return append(both, slices.Repeat([]string{state}, len(both))...), err
	case "mamba", "mamba2", "falcon_mamba":
		return c.each(func(int) string { return state })
	}
	return nil, fmt.Errorf("model_type %q: %w", c.Type, ErrUnknown)
}

// each makes every layer of the model.
func (c *config) each(of func(i int) string) ([]string, error) {
	if c.Layers == 0 {
		return nil, fmt.Errorf("num_hidden_layers is missing: %w", ErrUnknown)
	}
	out := make([]string, c.Layers)
	for i := range out {
		out[i] = of(i)
	}
	return out, nil
}

// every reports each n-th layer as one of full attention.
func (c *config) every(n int) func(i int) bool {
	return func(i int) bool { return n <= 0 || (i+1)%n == 0 }
}

// alike returns a model all of whose layers have one window, or full attention.
func (c *config) alike() ([]string, error) {
	qwen := c.Type != "llama" && c.Type != "mistral" && c.Type != "mixtral"
	switch {
	case qwen && c.UseWindow, !qwen && c.LayerTypes != nil, c.Type == "mistral" && !c.Window.given:
		return nil, fmt.Errorf("model_type %q with windows in some layers: %w", c.Type, ErrUnknown)
	case !qwen && c.Window.or(0) > 0:
		return c.each(func(int) string { return window })
	}
	return c.each(func(int) string { return full })
}

// windows returns a model with windows, except in the layers that layer_types or isFull
// names.
func (c *config) windows(absent int, isFull func(i int) bool) ([]string, error) {
	if c.Window.or(absent) <= 0 || c.Bidirectional != nil && c.Bidirectional != false && c.Bidirectional != "vision" {
		return nil, fmt.Errorf("model_type %q with unusual windows: %w", c.Type, ErrUnknown)
	}
	if c.LayerTypes != nil {
		return c.named(c.LayerTypes, map[string]string{"full_attention": full, "sliding_attention": window})
	}
	return c.each(func(i int) string {
		if isFull(i) {
			return full
		}
		return window
	})
}

// chunks returns a Llama 4: chunked attention in the layers with rotary embeddings.
func (c *config) chunks() ([]string, error) {
	if c.chunk() <= 0 {
		return c.each(func(int) string { return full })
	}
	interval := c.every(c.RopeInterval.or(4))
	if len(c.RopeLayers) > 0 && len(c.RopeLayers) < c.Layers {
		return nil, fmt.Errorf("no_rope_layers lists %d of %d layers: %w", len(c.RopeLayers), c.Layers, ErrUnknown)
	}
	return c.each(func(i int) string {
		if len(c.RopeLayers) > 0 && c.RopeLayers[i] == 0 || len(c.RopeLayers) == 0 && interval(i) {
			return full
		}
		return chunked
	})
}

// chunk returns the chunk size of a Llama 4.
func (c *config) chunk() int { return c.Chunk.or(8192) }

// states returns a model with Mamba states, except in the layers that types or isFull
// names.
func (c *config) states(types []string, isFull func(i int) bool) ([]string, error) {
	if types != nil {
		return c.named(types, map[string]string{"full_attention": full, "attention": full, "linear_attention": state, "mamba": state, "conv": state})
	}
	return c.each(func(i int) string {
		if isFull(i) {
			return full
		}
		return state
	})
}

// named returns layers by the names of their kinds.
func (c *config) named(types []string, kinds map[string]string) ([]string, error) {
	if c.Layers > 0 && len(types) < c.Layers {
		return nil, fmt.Errorf("layer_types lists %d of %d layers: %w", len(types), c.Layers, ErrUnknown)
	}
	if c.Layers > 0 {
		types = types[:c.Layers]
	}
	var out []string
	for _, name := range types {
		one, ok := kinds[name]
		if !ok {
			return nil, fmt.Errorf("a layer of the type %q: %w", name, ErrUnknown)
		}
		out = append(out, one)
	}
	return out, nil
}

// pattern returns a Nemotron-H, whose layers are Mamba states, attention, or cache nothing.
func (c *config) pattern() ([]string, error) {
	if c.HybridPattern == "" {
		c.Layers = len(c.BlockTypes)
		return c.named(c.BlockTypes, map[string]string{
			"mamba": state, "linear_attention": state, "attention": full, "full_attention": full, "mlp": "", "moe": "",
		})
	}
	var out []string
	for _, one := range c.HybridPattern {
		switch one {
		case 'M':
			out = append(out, state)
		case '*':
			out = append(out, full)
		case '-', 'E':
			out = append(out, "")
		default:
			return nil, fmt.Errorf("hybrid_override_pattern has %q: %w", one, ErrUnknown)
		}
	}
	return out, nil
}
