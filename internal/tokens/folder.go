package tokens

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"warmroute/internal/chat"
	"warmroute/internal/pyvalue"
	"warmroute/internal/tokenizer"
)

// Flags are what a model's servers were started with, as far as it decides
// prompts. The zero value is a server with its defaults.
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
	// DisabledThinkingEffort, Transformers and ResponsesToolFields are as in
	// chat.Options.
	DisabledThinkingEffort string
	Transformers           string
	ResponsesToolFields    []string
	// Location is the servers' time zone; nil means UTC.
	Location *time.Location
	// StartDate and SystemInstructions are as in chat.Options.
	StartDate          string
	SystemInstructions bool
	// MaxLen is --max-model-len; 0: not known.
	MaxLen int
	// StoreBytes bounds what is remembered of prompts' beginnings; 0 means
	// DefaultStoreBytes, negative nothing.
	StoreBytes int64
}

// DefaultStoreBytes remembers about twelve million tokens of conversations: what
// a hundred long system prompts and some thousand sessions take. It is used as it
// fills.
const DefaultStoreBytes = 64 << 20

// LoadFolder loads a model from a folder in the Hugging Face layout:
// tokenizer.json, tokenizer_config.json, chat templates, and config.json for the
// model's type.
func LoadFolder(dir string, f Flags) (Model, error) {
	kind, err := modelKind(dir, f.TokenizerMode)
	if err != nil {
		return Model{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	if kind.InMistralFormat() {
		return loadMistral(dir, kind, f)
	}
	encoder, config, err := loadEncoder(dir, "", f)
	if err != nil {
		return Model{}, err
	}
	m := Model{Encoder: encoder}
	if class := config.Classed(kind.Type); class != "" {
		m.Alternative = func() (Encoder, error) {
			encoder, _, err := loadEncoder(dir, class, f)
			return encoder, err
		}
	}
	return m, m.configure(chat.Options{
		Template: config.Templates["default"], ToolTemplate: config.Templates["tool_use"], SpecialTokens: config.Special, Model: kind,
	}, f)
}

// configure sets how the model's servers render: its files' settings in o, and the flags.
func (m *Model) configure(o chat.Options, f Flags) error {
	o.ContentFormat, o.ExcludeToolsWhenToolChoiceNone = f.ContentFormat, f.ExcludeTools
	o.DisabledThinkingEffort, o.Transformers = f.DisabledThinkingEffort, f.Transformers
	o.ResponsesToolFields, o.Location = f.ResponsesToolFields, f.Location
	o.StartDate, o.SystemInstructions = f.StartDate, f.SystemInstructions
	m.MaxLen = f.MaxLen
	if f.ChatTemplate != "" {
		source, err := tokenizer.ReadFile(f.ChatTemplate)
		if err != nil {
			return fmt.Errorf("chat template: %w", err)
		}
		o.Template, o.ToolTemplate = string(source), ""
	}
	if f.DefaultKwargs != nil {
		v, err := pyvalue.Parse(f.DefaultKwargs)
		kwargs, ok := v.(*pyvalue.Dict)
		if err != nil || !ok {
			return errors.New("default chat template kwargs are not a JSON object")
		}
		o.DefaultKwargs = kwargs
	}
	m.Chat = o
	return nil
}

// loadEncoder loads the folder's tokenizer by its file or by a class.
func loadEncoder(dir, class string, f Flags) (Encoder, tokenizer.Config, error) {
	tok, err := tokenizer.Load(dir, tokenizer.Options{Class: class})
	if err != nil {
		return nil, tokenizer.Config{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	if f.StoreBytes < 0 {
		return tok, tok.Config(), nil
	}
	store, err := tokenizer.NewStore(tok, either(f.StoreBytes, DefaultStoreBytes))
	if err != nil {
		return nil, tokenizer.Config{}, fmt.Errorf("model folder %s: %w", dir, err)
	}
	return storeEncoder{store}, tok.Config(), nil
}

// modelKind reads what selects vLLM's renderer. A folder without config.json
// (a tokenizer alone) has no type.
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

// storeEncoder encodes through a prefix store: a conversation's next turn costs
// its new text.
type storeEncoder struct{ store *tokenizer.Store }

func (e storeEncoder) Append(dst []uint32, text []byte, addSpecial bool) []uint32 {
	return e.store.Append(dst, text, addSpecial)
}

func (e storeEncoder) AppendPieces(dst []uint32, text []byte, pieces []tokenizer.Piece) ([]uint32, bool) {
	return e.store.AppendPieces(dst, text, pieces)
}
