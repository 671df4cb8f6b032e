package render

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"warmroute/render/internal/chat"
	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
	"warmroute/render/work"
)

// Flags are the settings of a model's servers that decide prompts. The zero value has
// vLLM's defaults.
type Flags struct {
	// ChatTemplate is a file that replaces the model's own template.
	ChatTemplate string
	// ContentFormat is "", "auto", "string" or "openai".
	ContentFormat string
	// DefaultKwargs is the JSON object of --default-chat-template-kwargs.
	DefaultKwargs json.RawMessage
	// ExcludeTools is --exclude-tools-when-tool-choice-none.
	ExcludeTools bool
	// TokenizerMode is --tokenizer-mode.
	TokenizerMode string
	// EffortMap is --reasoning-effort-map: the efforts that requests name, and those that
	// their prompts get.
	EffortMap map[string]string
	// DisabledThinkingEffort is the reasoning effort that thinking.type "disabled" of
	// /v1/messages means; "": vLLM's probe of the template finds it.
	DisabledThinkingEffort string
	// Transformers is the version of the servers' transformers package, which prepares
	// messages, too: from 5.23 on it drops a message's null fields and copies its
	// reasoning to thinking, up to 5.19 it does not. "": not known, and both must give
	// the same text.
	Transformers string
	// ResponsesToolFields are the fields of the openai package's FunctionTool in its
	// order: up to vLLM 0.21, /v1/responses shows the template a dump of that class.
	// Empty: requests that need it are refused.
	ResponsesToolFields []string
	// Location is the servers' time zone; nil means UTC.
	Location *time.Location
	// StartDate is the servers' VLLM_SYSTEM_START_DATE: the date in gpt-oss's system
	// message. "": the date by their clock.
	StartDate string
	// SystemInstructions is the servers' VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS:
	// gpt-oss's instructions stand in the system message.
	SystemInstructions bool
	// MaxLen is --max-model-len; 0: not known.
	MaxLen int
	// StoreBytes bounds the memory for the beginnings of prompts; 0 means
	// DefaultStoreBytes, negative none.
	StoreBytes int64
}

// DefaultStoreBytes has room for about twelve million tokens of conversations: a
// hundred long system prompts and some thousand sessions. A store allocates it as it
// fills.
const DefaultStoreBytes = 64 << 20

// Open reads a model's folder in the Hugging Face layout (tokenizer.json,
// tokenizer_config.json, chat templates, and config.json for the model's type) or in
// Mistral's own. It may take a second; ctx ends it, and so does a file that costs more
// work than its size allows (package work).
func Open(ctx context.Context, dir string, f Flags) (*Model, error) {
	kind, err := modelKind(dir, f.TokenizerMode)
	if err != nil {
		return nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	if kind.InMistralFormat() {
		return openMistral(ctx, dir, kind, f)
	}
	tok, config, err := openTokenizer(ctx, dir, "", f)
	if err != nil {
		return nil, err
	}
	m, err := newModel(tok, chat.Options{
		Template: config.Template(false), ToolTemplate: new(config.Template(true)), SpecialTokens: config.Special, Model: kind,
	}, f)
	if class := config.Classed(kind.Type); err == nil && class != "" {
		m.byClass = sync.OnceValues(func() (encoder, error) {
			tok, _, err := openTokenizer(context.Background(), dir, class, f)
			return tok, err
		})
	}
	return m, err
}

// newModel returns a model with the settings of its files, in o, and those of its flags.
func newModel(e encoder, o chat.Options, f Flags) (*Model, error) {
	o.ContentFormat, o.ExcludeToolsWhenToolChoiceNone = f.ContentFormat, f.ExcludeTools
	o.EffortMap, o.DisabledThinkingEffort, o.Transformers = f.EffortMap, f.DisabledThinkingEffort, f.Transformers
	o.ResponsesToolFields, o.Location = f.ResponsesToolFields, f.Location
	o.StartDate, o.SystemInstructions = f.StartDate, f.SystemInstructions
	if f.ChatTemplate != "" {
		source, err := tokenizer.ReadFile(f.ChatTemplate)
		if err != nil {
			return nil, fmt.Errorf("chat template: %w", err)
		}
		o.Template, o.ToolTemplate = string(source), nil
	}
	if f.DefaultKwargs != nil {
		v, err := pyvalue.Parse(f.DefaultKwargs)
		kwargs, ok := v.(*pyvalue.Dict)
		if err != nil || !ok {
			return nil, errors.New("default chat template kwargs are not a JSON object")
		}
		o.DefaultKwargs = kwargs
	}
	return &Model{chat: o, encoder: e, maxLen: f.MaxLen}, nil
}

// openTokenizer loads the folder's tokenizer by its file or by a class.
func openTokenizer(ctx context.Context, dir, class string, f Flags) (encoder, tokenizer.Config, error) {
	tok, err := tokenizer.Load(dir, tokenizer.Options{Class: class, Work: loadWork(ctx, filepath.Join(dir, "tokenizer.json"))})
	if err != nil {
		return nil, tokenizer.Config{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	e, err := stored(tok, f)
	if err != nil {
		return nil, tokenizer.Config{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	return e, tok.Config(), nil
}

// stored gives the tokenizer a prefix store, unless the flags rule one out: the next turn
// of a conversation then costs its new text alone.
func stored(tok *tokenizer.Tokenizer, f Flags) (encoder, error) {
	if f.StoreBytes < 0 {
		return tok, nil
	}
	return tokenizer.NewStore(tok, cmp.Or(f.StoreBytes, DefaultStoreBytes))
}

// loadWork returns the budget for loading a file. Ordinary files cost a step a byte.
func loadWork(ctx context.Context, file string) *work.Budget {
	size := 0
	if info, err := os.Stat(file); err == nil {
		size = int(info.Size())
	}
	return work.New(ctx, work.Limits{}, size)
}

// modelKind reads the fields by which vLLM selects its renderer. A folder without
// config.json (a tokenizer alone) has no type.
func modelKind(dir, mode string) (chat.Model, error) {
	m := chat.Model{TokenizerMode: mode}
	raw, err := tokenizer.ReadFile(filepath.Join(dir, "config.json"))
	if err == nil {
		var config struct {
			Type          string          `json:"model_type"`
			Architectures []string        `json:"architectures"`
			Vision        json.RawMessage `json:"vision_config"`
		}
		if err := json.Unmarshal(raw, &config); err != nil {
			return m, fmt.Errorf("config.json: %w", err)
		}
		m.Type, m.Vision = config.Type, config.Vision != nil
		if len(config.Architectures) > 0 {
			m.Architecture = config.Architectures[0]
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	// vLLM also requires consolidated*.safetensors; a router's copy has no weights.
	for _, pattern := range []string{"tekken.json", "tokenizer.model.v*"} {
		if found, _ := filepath.Glob(filepath.Join(dir, pattern)); len(found) > 0 {
			m.MistralFormat = true
		}
	}
	return m, nil
}

// Files returns the paths of the files in a folder that Open may read.
func Files(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var paths []string
	for _, e := range entries {
		if slices.Contains(modelNames, e.Name()) || mistralFile.MatchString(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	more, err := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	return append(paths, more...), err
}

// modelNames are the names of the files that Open may read, besides names that
// mistralFile matches.
var modelNames = []string{
	"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json",
	"chat_template.jinja", "chat_template.json", "tekken.json", "added_tokens.json", "preprocessor_config.json", "processor_config.json",
}
