package vllmsim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// WriteModel writes the files of the simulated model into a folder, as a hub has them:
// tokenizer.json, tokenizer_config.json with the chat template, config.json. A program that
// computes prompts from them gets the simulator's tokens.
func WriteModel(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("vllmsim: write the model: %w", err)
	}
	for name, v := range map[string]any{
		"tokenizer.json":        tokenizerFile(),
		"tokenizer_config.json": map[string]any{"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": chatTemplate},
		"config.json":           map[string]any{"model_type": "qwen3", "architectures": []string{"Qwen3ForCausalLM"}},
	} {
		b, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("vllmsim: write the model: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return fmt.Errorf("vllmsim: write the model: %w", err)
		}
	}
	return nil
}

// chatTemplate writes the same text as chatPrompt. It names the developer, or vLLM would
// turn a developer's messages into system messages.
const chatTemplate = `{%- if tools -%}
<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}{% set messages = messages[1:] %}{% endif %}
{%- for t in tools -%}
{{ '\n' + t.function.name + ': ' + (t.function.description or '') + ' ' }}{{ t.function.parameters | tojson }}
{%- endfor -%}
<|im_end|>
{% endif -%}
{%- for m in messages -%}
<|im_start|>{{ 'developer' if m.role == 'developer' else m.role }}
{{ m.content or '' }}
{%- for c in m.tool_calls or [] -%}
{{ '\n' + c.function.name + ' ' }}{{ c.function.arguments | tojson }}
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking -%}
<think>

</think>

{% endif -%}
{%- endif -%}`

// words are wordLen's, in Unicode; pieces are pieceLen's, in the byte-level
// alphabet, where the space is Ġ.
const (
	words = ` ?[^\x00-\x40\x5b-\x60\x7b-\x7f]+| ?[0-9]+| ?[\x00-\x08\x0b\x0c\x0e-\x1f\x21-\x2f\x3a-\x40\x5b-\x60\x7b-\x7f]+` +
		`|[ \n\t\r]+(?= [^ \n\t\r])|[ \n\t\r]+`
	pieces = `[Ġ0-9a-z]{3}|..?`
)

func tokenizerFile() map[string]any {
	vocab := make(map[string]uint32, firstMarker)
	for id := range uint32(firstMarker) {
		vocab[byteLevel(decode(nil, id))] = id
	}
	var added []map[string]any
	for i, m := range markers {
		added = append(added, map[string]any{"id": firstMarker + uint32(i), "content": m, "special": true,
			"single_word": false, "lstrip": false, "rstrip": false, "normalized": false})
	}
	split := func(pattern string) map[string]any {
		return map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated", "invert": false}
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}
	return map[string]any{
		"version": "1.0", "truncation": nil, "padding": nil, "added_tokens": added,
		"normalizer": nil, "post_processor": nil, "decoder": level,
		"pre_tokenizer": map[string]any{"type": "Sequence", "pretokenizers": []any{split(words), level, split(pieces)}},
		// Every piece is in the vocabulary.
		"model": map[string]any{"type": "BPE", "dropout": nil, "unk_token": nil, "continuing_subword_prefix": nil, "end_of_word_suffix": nil,
			"fuse_unk": false, "byte_fallback": false, "ignore_merges": true, "vocab": vocab, "merges": []string{}},
	}
}

// byteLevel writes bytes as tokenizer.json does: a byte that is printable in Latin-1 as
// that character, the other bytes in order from U+0100 on.
func byteLevel(b []byte) string {
	var out []rune
	for _, c := range b {
		switch {
		case c <= ' ':
			out = append(out, 0x100+rune(c))
		case c >= 0x7f && c <= 0xa0:
			out = append(out, 0x121+rune(c)-0x7f)
		case c == 0xad:
			out = append(out, 0x143)
		default:
			out = append(out, rune(c))
		}
	}
	return string(out)
}
