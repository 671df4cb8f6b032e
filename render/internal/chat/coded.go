package chat

import (
	"slices"
	"time"

	"warmroute/render/internal/tokenizer"
)

// coder writes the prompts of models that vLLM renders in code instead of a
// template. It is immutable, and made for one Renderer.
type coder interface {
	// write appends the request's prompt to out.Text: with out.Pieces if vLLM
	// encodes the text in pieces, without them if vLLM encodes it as a whole and
	// finds added tokens in it. On /v1/completions write may replace out.TextPrompts.
	// now is the server's time, in its zone. The error is a *NotInProcess; for a 4xx
	// of vLLM it comes from [objection].
	write(out *Rendered, req *request, now time.Time) error
}

// Model has facts about a model in addition to its tokenizer, from its config.json
// and the server's flags. Empty fields are unknown.
type Model struct {
	// Type is config.json's model_type.
	Type string
	// TokenizerMode is vLLM's --tokenizer-mode; "", "auto" and "hf" select the template.
	TokenizerMode string
	// MistralFormat: the folder has tekken.json or tokenizer.model.v*, which
	// vLLM prefers in tokenizer mode auto for Mistral's own models.
	MistralFormat bool
	// Architecture is the first of config.json's architectures.
	Architecture string
	// Mistral has the settings of the tokenizer file in Mistral's own format; an unknown
	// Version is 0.
	Mistral tokenizer.Mistral
	// Vision: config.json describes a part that reads images.
	Vision bool
}

// coded is the table of models that vLLM renders in code, by the tokenizer mode that
// selects the renderer (renderers/registry.py and tokenizers/registry.py of 0.32) or by
// the model type. docs/tokens.md shows it; a test keeps them equal.
var coded = []struct {
	name     string   // as in the documentation
	mode     string   // tokenizer mode that selects it
	types    []string // model types and architectures
	mistral  bool
	renderer string
	// coder makes the writer of these prompts; nil: this package has none.
	coder func(*Renderer) coder
}{
	{name: "gpt-oss", types: []string{"gpt_oss"}, renderer: "harmony (openai_harmony)", coder: newHarmony},
	{name: "Mistral's own format", mode: "mistral", mistral: true, renderer: "mistral-common", coder: newMistral},
	{name: "DeepSeek V3.2", mode: "deepseek_v32", types: []string{"deepseek_v32", "DeepseekV32ForCausalLM"},
		renderer: "deepseek_v32_encoding", coder: newDeepSeekV32},
	{name: "DeepSeek V4", mode: "deepseek_v4", types: []string{"deepseek_v4", "DeepseekV4ForCausalLM", "DeepseekV4ForConditionalGeneration"},
		renderer: "deepseek_v4_encoding", coder: newDeepSeekV4},
	{name: "DeepSeek V4.1", mode: "deepseek_v41", types: []string{"deepseek_v41", "DeepseekV41ForCausalLM"},
		renderer: "deepseek_v41_encoding", coder: newDeepSeekV41},
	{name: "Kimi K3", mode: "kimi_k3", types: []string{"kimi_k3"}, renderer: "kimi_k3"},
	{name: "Kimi Audio", mode: "kimi_audio", types: []string{"kimi_audio"}, renderer: "template, own tokenizer"},
	{name: "Cohere", mode: "cohere", renderer: "melody"},
	{name: "Inkling", mode: "inkling", types: []string{"inkling"}, renderer: "inkling_encoding"},
	{name: "Terratorch", mode: "terratorch", types: []string{"terratorch"}, renderer: "no text"},
	{name: "Grok 2", mode: "grok2", types: []string{"grok2"}, renderer: "own tokenizer (0.21)"},
}

// Coded names the code of vLLM that renders this model's chats; "": vLLM renders them
// with the chat template.
func (m Model) Coded() string {
	if i := m.code(); i >= 0 {
		return coded[i].renderer
	}
	return ""
}

// code returns the index of the model's row in coded; -1: it has none. A tokenizer mode
// that selects a row takes precedence over the files.
func (m Model) code() int {
	auto := m.TokenizerMode == "" || m.TokenizerMode == "auto"
	found := -1
	for i, c := range coded {
		if c.mode != "" && c.mode == m.TokenizerMode {
			return i
		}
		if found < 0 && (slices.Contains(c.types, m.Type) || slices.Contains(c.types, m.Architecture) || c.mistral && m.MistralFormat && auto) {
			found = i
		}
	}
	return found
}

// InMistralFormat reports whether vLLM reads the model's tokenizer from Mistral's own files.
func (m Model) InMistralFormat() bool {
	i := m.code()
	return i >= 0 && coded[i].mistral && m.MistralFormat
}

// newCoder makes the writer of the model's prompts. isCoded: vLLM renders them in code;
// the writer is nil if this package has no writer for that code.
func newCoder(r *Renderer) (c coder, isCoded bool) {
	i := r.o.Model.code()
	if i < 0 {
		return nil, false
	}
	if coded[i].coder == nil {
		return nil, true
	}
	return coded[i].coder(r), true
}

// from33 reports whether the server is known to be of version 0.33 or later.
func (r *Renderer) from33() bool {
	major, minor, ok := majorMinor(r.o.Version)
	return ok && (major > 0 || minor >= 33)
}

// older reports whether the server may be of a version before 0.32, whose code this
// package does not follow.
func (r *Renderer) older() bool { return len(r.dialects) > 1 || !r.dialects[0].mergeItems }
