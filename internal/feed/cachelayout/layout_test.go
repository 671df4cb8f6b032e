package cachelayout

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestModels: the kinds of published models, by values of the models' own files.
func TestModels(t *testing.T) {
	const full, mamba, windows, chunks = "full", "Mamba state", "sliding window", "chunked attention 8192"
	for _, c := range []struct{ config, want string }{
		{`{"model_type": "llama", "num_hidden_layers": 32}`, full},
		{`{"model_type": "mistral", "num_hidden_layers": 32, "sliding_window": 4096}`, windows},
		{`{"model_type": "mistral", "num_hidden_layers": 32, "sliding_window": null}`, full},
		{`{"model_type": "mistral", "num_hidden_layers": 32}`, ""},
		{`{"model_type": "qwen2", "num_hidden_layers": 28, "sliding_window": 32768, "use_sliding_window": false}`, full},
		{`{"model_type": "qwen2", "num_hidden_layers": 28, "sliding_window": 32768, "use_sliding_window": true}`, ""},
		{`{"model_type": "deepseek_v3", "num_hidden_layers": 61}`, full},
		{`{"model_type": "gemma2", "num_hidden_layers": 26, "sliding_window": 4096}`, windows + " " + full},
		{`{"model_type": "gemma3_text", "num_hidden_layers": 26, "sliding_window": 512, "sliding_window_pattern": 6}`, windows + " " + full},
		{`{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024}}`, windows + " " + full},
		{`{"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text", "num_hidden_layers": 30, "num_kv_shared_layers": 10}}`, windows + " " + full},
		{`{"model_type": "gpt_oss", "num_hidden_layers": 24, "sliding_window": 128}`, windows + " " + full},
		{`{"model_type": "cohere2", "num_hidden_layers": 32, "sliding_window": 4096, "sliding_window_pattern": 4}`, windows + " " + full},
		{`{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_hidden_layers": 48, "attention_chunk_size": 8192}}`, chunks + " " + full},
		{`{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": null, "no_rope_layers": [1, 1, 1, 0]}}`, full},
		{`{"model_type": "llama4_text", "num_hidden_layers": 4, "attention_chunk_size": 0}`, full},
		{`{"model_type": "qwen3_next", "num_hidden_layers": 48, "full_attention_interval": 4}`, mamba + " " + full},
		{`{"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text", "num_hidden_layers": 32}}`, mamba + " " + full},
		{`{"model_type": "jamba", "num_hidden_layers": 32, "attn_layer_period": 8, "attn_layer_offset": 4}`, mamba + " " + full},
		{`{"model_type": "bamba", "num_hidden_layers": 32, "attn_layer_indices": [9, 18, 27]}`, mamba + " " + full},
		{`{"model_type": "granitemoehybrid", "num_hidden_layers": 4, "layer_types": ["mamba", "mamba", "attention", "mamba"]}`, mamba + " " + full},
		{`{"model_type": "falcon_h1", "num_hidden_layers": 24}`, full + " " + mamba},
		{`{"model_type": "lfm2", "num_hidden_layers": 5, "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]}`, mamba + " " + full},
		{`{"model_type": "kimi_linear", "num_hidden_layers": 4, "linear_attn_config": {"kda_layers": [1, 2, 3], "full_attn_layers": [4]}}`, mamba + " " + full},
		{`{"model_type": "falcon_mamba", "num_hidden_layers": 64}`, mamba},

		{`{"model_type": "nemotron_h", "num_hidden_layers": 8, "hybrid_override_pattern": "M-M-M*-M"}`, mamba + " " + full},
		{`{"model_type": "llama", "num_hidden_layers": 2, "layer_types": ["full_attention", "sliding_attention"]}`, ""},
		{`{"model_type": "a new one", "num_hidden_layers": 2}`, ""},
		{`{}`, ""},
	} {
		l, err := Parse([]byte(c.config))
		switch {
		case c.want == "" && !errors.Is(err, ErrUnknown):
			t.Errorf("%s: %v, %v, want ErrUnknown", c.config, l, err)
		case c.want != "" && err != nil:
			t.Errorf("%s: %v", c.config, err)
		case c.want != "":
			got := strings.Join(l.Kinds, " ")
			if l.Chunk > 0 {
				got = strings.Replace(got, chunked, fmt.Sprint(chunked, " ", l.Chunk), 1)
			}
			if got != c.want {
				t.Errorf("%s: %s, want %s", c.config, got, c.want)
			}
		}
	}
	if _, err := Parse([]byte(`[]`)); err == nil || errors.Is(err, ErrUnknown) {
		t.Errorf("no configuration: %v", err)
	}
	for given, want := range map[int]int{0: 64, 8: 8} {
		if got := (&Layout{Chunk: 64}).ChunkOr(given); got != want {
			t.Errorf("with a configured chunk of %d: %d, want %d", given, got, want)
		}
	}
	if got := (*Layout)(nil).ChunkOr(0); got != 0 {
		t.Errorf("a model without files has a chunk of %d", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"model_type": "gemma3_text", "num_hidden_layers": 26, "sliding_window": 512}`))
	f.Add([]byte(`{"text_config": {"model_type": "llama4_text", "num_hidden_layers": 4, "no_rope_layers": [1, 0]}}`))
	f.Add([]byte(`{"model_type": "mistral", "sliding_window": null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		l, err := Parse(raw)
		if err == nil && len(l.Kinds) == 0 {
			t.Error("no kinds, and no error")
		}
	})
}
