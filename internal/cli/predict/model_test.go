package predict

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

const (
	llama4     = `{"model_type": "llama4", "text_config": {"model_type": "llama4_text", "num_hidden_layers": 12, "attention_chunk_size": 256, "no_rope_layers": []}}`
	qwen3Next  = `{"model_type": "qwen3_next", "num_hidden_layers": 8, "full_attention_interval": 4}`
	mistralOld = `{"model_type": "mistral", "num_hidden_layers": 4, "sliding_window": 128}`
)

// with returns a header with a model's config.json, and with the settings that events do not
// contain, except the chunk.
func (c *capture) with(t *testing.T, config string) []byte {
	t.Helper()
	var told map[string]json.RawMessage
	must.Do(t, json.Unmarshal(c.header["assume"], &told))
	delete(told, "chunk")
	assumed := must.Get(json.Marshal(told))(t)
	return fmt.Appendf(nil, `{"version": %s, "hash_algo": %s, "none_hash": %s, "cache_config_info": %s, "assume": %s, "model_config": %s}`,
		c.header["version"], c.header["hash_algo"], c.header["none_hash"], c.header["cache_config_info"], assumed, config)
}

// TestCapturesByTheModelsFiles: Llama 4's chunk is in the model's config.json, and every lookup is
// right and called so.
func TestCapturesByTheModelsFiles(t *testing.T) {
	taken := 0
	for name, c := range captures(t) {
		if !strings.Contains(name, "llama4") {
			continue
		}
		taken++
		s := c.play(t, c.with(t, llama4))
		if s.right != s.queries {
			t.Errorf("%s: %d of %d right, %d too much, %d too little", name, s.right, s.queries, s.over, s.under)
		}
		if s.exactWrong > 0 || s.exact < s.queries*9/10 {
			t.Errorf("%s: %d of %d called exact, %d of them wrong", name, s.exact, s.queries, s.exactWrong)
		}
	}
	if taken < 2 {
		t.Errorf("%d captures", taken)
	}
}

// TestFilesNameNoKinds: where the events do not name the kinds, the model's files do not either:
// nothing is called exact, and nothing credited too much.
func TestFilesNameNoKinds(t *testing.T) {
	for name, config := range map[string]string{"0.21.0-next-b96-s2": qwen3Next, "0.21.0-swa-only-s2": mistralOld} {
		c := captures(t)[name]
		if s := c.play(t, c.with(t, config)); s.exact > 0 || s.over > 0 {
			t.Errorf("%s: %d of %d called exact, %d credited too much", name, s.exact, s.queries, s.over)
		}
	}
}
