package chattest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"warmroute/render/testkit/checkout"
)

const mistralConfig = `{"model_type":"mistral","architectures":["MistralForCausalLM"]}`

// mistralSource is a file of the package that reads Mistral's own formats.
func mistralSource(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(checkout.Root(), ".cache", "models", "mistral", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("make setup fetches the model's files: %v", err)
	}
	return path
}

// MistralFolder writes a folder with a SentencePiece model, or with a tekken.json of a
// version: the published vocabulary with that version's control tokens.
func MistralFolder(t testing.TB, version int, sentencepiece bool) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", []byte(mistralConfig))
	link := func(from, name string) {
		if err := os.Symlink(mistralSource(t, from), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	switch {
	case sentencepiece:
		from := map[int]string{1: "tokenizer.model.v1", 2: "mistral_instruct_tokenizer_240216.model.v2",
			3: "mistral_instruct_tokenizer_240323.model.v3", 7: "mistral_instruct_tokenizer_241114.model.v7"}[version]
		link(from, fmt.Sprintf("tokenizer.model.v%d", version))
		return dir
	case version == 3:
		link("tekken_240718.json", "tekken.json")
		return dir
	}
	raw, err := os.ReadFile(mistralSource(t, "tekken_240911.json"))
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	delete(file, "image")
	delete(file, "multimodal")
	file["config"].(map[string]any)["version"] = fmt.Sprintf("v%d", version)
	file["special_tokens"] = mistralSpecials(version)
	if version >= 15 {
		file["model_settings_builder"] = map[string]any{"reasoning_effort": map[string]any{
			"type": "enum", "values": []string{"none", "high"}, "accepts_none": true, "default": "none"}}
	}
	if raw, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	write("tekken.json", raw)
	return dir
}

func mistralSpecials(version int) []map[string]any {
	names := []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
		"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]",
		"[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}
	more := map[int]string{}
	if version >= 11 {
		more[32], more[33] = "[ARGS]", "[CALL_ID]"
	}
	if version >= 13 {
		more[34], more[35] = "[THINK]", "[/THINK]"
	}
	if version >= 15 {
		more[36], more[37] = "[MODEL_SETTINGS]", "[/MODEL_SETTINGS]"
	}
	var list []map[string]any
	for rank := range 1000 {
		name := fmt.Sprintf("<SPECIAL_%d>", rank)
		switch {
		case rank < len(names):
			name = names[rank]
		case more[rank] != "":
			name = more[rank]
		}
		list = append(list, map[string]any{"rank": rank, "token_str": name, "is_control": true})
	}
	return list
}
