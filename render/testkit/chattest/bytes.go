package chattest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// BytesFolder writes the folder of a model whose token ids are the bytes of the text, and
// whose chats the template renders.
func BytesFolder(t testing.TB, template string) string {
	t.Helper()
	vocab := map[string]int{}
	beyond := rune(256)
	for b := range 256 { // GPT-2's letters for bytes
		letter := rune(b)
		if b <= ' ' || b >= 0x7f && b <= 0xa0 || b == 0xad {
			letter = beyond
			beyond++
		}
		vocab[string(letter)] = b
	}
	dir := t.TempDir()
	for name, content := range map[string]any{
		"tokenizer.json": map[string]any{
			"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
			"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
		},
		"tokenizer_config.json": map[string]any{"chat_template": template},
	} {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
