package predict

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// configs are the config.json of models with the groups of the captures.
var configs = map[string]string{
	"full":               `{"model_type": "qwen3", "num_hidden_layers": 4, "use_sliding_window": false, "sliding_window": null}`,
	"full-eagle":         `{"model_type": "llama", "num_hidden_layers": 4}`,
	"gemma3-b16-w512":    `{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 12, "sliding_window": 512}}`,
	"gemma4-unequal":     `{"model_type": "gemma4", "text_config": {"model_type": "gemma4_text", "num_hidden_layers": 8, "sliding_window": 256, "layer_types": [` + strings.TrimSuffix(strings.Repeat(`"sliding_attention", "sliding_attention", "sliding_attention", "full_attention", `, 2), ", ") + `]}}`,
	"gptoss-b16":         `{"model_type": "gpt_oss", "num_hidden_layers": 8, "sliding_window": 128}`,
	"gptoss-eagle-dense": `{"model_type": "gpt_oss", "num_hidden_layers": 8}`,
	"llama4-chunked":     `{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_hidden_layers": 12, "attention_chunk_size": 256, "no_rope_layers": []}}`,
	"mamba-only":         `{"model_type": "mamba2", "num_hidden_layers": 4}`,
	"next-b96":           `{"model_type": "qwen3_next", "num_hidden_layers": 8, "full_attention_interval": 4}`,
	"next-mtp":           `{"model_type": "qwen3_next", "num_hidden_layers": 9, "full_attention_interval": 3}`,
	"swa-only":           `{"model_type": "mistral", "num_hidden_layers": 4, "sliding_window": 128}`,
}

// with returns a header with a model's config.json, and with the settings that
// events do not contain, except the kinds of groups.
func (c *capture) with(t *testing.T, config string) []byte {
	t.Helper()
	var told map[string]json.RawMessage
	if err := json.Unmarshal(c.header["assume"], &told); err != nil {
		t.Fatal(err)
	}
	delete(told, "groups")
	delete(told, "chunk")
	assumed, err := json.Marshal(told)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"version": %s, "hash_algo": %s, "none_hash": %s, "cache_config_info": %s, "assume": %s, "model_config": %s}`,
		c.header["version"], c.header["hash_algo"], c.header["none_hash"], c.header["cache_config_info"], assumed, config)
}

// TestCapturesByTheModelsFiles: where events name no kinds, the model's config.json
// does, and every lookup is right and called so; Llama 4's chunk is in it for later
// releases, too.
func TestCapturesByTheModelsFiles(t *testing.T) {
	taken := map[string]bool{}
	for name, c := range captures(t) {
		var of string
		if err := json.Unmarshal(c.header["config"], &of); err != nil {
			t.Fatal(err)
		}
		config, ok := configs[of]
		if !ok || !strings.HasPrefix(name, "0.21") && of != "llama4-chunked" {
			continue
		}
		taken[of] = true
		s := c.play(t, c.with(t, config), false)
		if s.right != s.queries {
			t.Errorf("%s: %d of %d right, %d too much, %d too little", name, s.right, s.queries, s.over, s.under)
		}
		if s.exactWrong > 0 || s.exact < s.queries*9/10 {
			t.Errorf("%s: %d of %d called exact, %d of them wrong", name, s.exact, s.queries, s.exactWrong)
		}
	}
	if len(taken) != len(configs) {
		t.Errorf("of %d models %d have a capture", len(configs), len(taken))
	}
}

// TestCapturesOfAnotherModel: a config.json that does not fit the events is not
// believed: one of more groups or of fewer, one with full attention in a group that
// leaves blocks out. Nothing is called exact, and nothing credited too much.
func TestCapturesOfAnotherModel(t *testing.T) {
	const turned = `{"model_type": "bamba", "num_hidden_layers": 8, "attn_layer_indices": [0, 4]}`
	for name, c := range captures(t) {
		if !c.untold(t) {
			continue
		}
		others := []string{
			`{"model_type": "gemma3_text", "num_hidden_layers": 37}`, // seven groups
			`{"model_type": "qwen3", "num_hidden_layers": 4}`,        // one
		}
		if strings.Contains(name, "next-b96") {
			others = append(others, turned)
		}
		for _, config := range others {
			if s := c.play(t, c.with(t, config), false); s.exact > 0 || s.over > 0 {
				t.Errorf("%s: %d of %d called exact, %d credited too much, by %s", name, s.exact, s.queries, s.over, config)
			}
		}
	}
}
