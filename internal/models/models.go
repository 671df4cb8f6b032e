package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"warmroute/internal/chat"
	"warmroute/internal/pyvalue"
	"warmroute/internal/tokenizer"
	"warmroute/internal/tokens"
)

// Options names a model's files and says how its servers were started. Only ID
// and Dir are needed; the rest mirrors vLLM's flags of the same names.
type Options struct {
	ID             string `yaml:"id"`                                     // the base model's served name
	Dir            string `yaml:"dir"`                                    // folder with tokenizer.json, tokenizer_config.json, config.json
	ChatTemplate   string `yaml:"chat_template,omitempty"`                // file given to --chat-template; "" = the folder's own
	ContentFormat  string `yaml:"chat_template_content_format,omitempty"` // auto, string or openai; "" = auto
	DefaultKwargs  string `yaml:"default_chat_template_kwargs,omitempty"` // a JSON object
	ExcludeTools   bool   `yaml:"exclude_tools_when_tool_choice_none,omitempty"`
	TokenizerMode  string `yaml:"tokenizer_mode,omitempty"`   // "" = auto
	Timezone       string `yaml:"timezone,omitempty"`         // of the servers, for templates that print the date; "" = UTC
	Transformers   string `yaml:"transformers,omitempty"`     // version of the servers' transformers package; "" = unknown
	MaxModelLen    int    `yaml:"max_model_len,omitempty"`    // tokens; 0 = unknown
	PrefixStoreMiB int    `yaml:"prefix_store_mib,omitempty"` // memory for prompts' beginnings; 0 = 64
}

// Validate returns every problem that can be seen without loading, joined.
func (o Options) Validate() error {
	var errs []error
	add := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.ID == "" {
		add("id: is missing")
	}
	if o.Dir == "" {
		add("dir: is missing; name the folder with tokenizer.json")
	}
	switch o.ContentFormat {
	case "", "auto", "string", "openai":
	default:
		add("chat_template_content_format: %q is none of auto, string, openai", o.ContentFormat)
	}
	if _, err := o.kwargs(); err != nil {
		add("default_chat_template_kwargs: %w", err)
	}
	if _, err := time.LoadLocation(o.Timezone); err != nil {
		add("timezone: %q is not known", o.Timezone)
	}
	if o.MaxModelLen < 0 {
		add("max_model_len: %d is negative", o.MaxModelLen)
	}
	if o.PrefixStoreMiB < 0 {
		add("prefix_store_mib: %d is negative", o.PrefixStoreMiB)
	}
	return errors.Join(errs...)
}

func (o Options) kwargs() (*pyvalue.Dict, error) {
	if o.DefaultKwargs == "" {
		return nil, nil
	}
	v, err := pyvalue.Parse([]byte(o.DefaultKwargs))
	if err != nil {
		return nil, err
	}
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return nil, errors.New("is not a JSON object")
	}
	return d, nil
}

// Load reads a model's files.
func Load(o Options) (tokens.Model, error) {
	if err := o.Validate(); err != nil {
		return tokens.Model{}, fmt.Errorf("model %q: %w", o.ID, err)
	}
	tok, err := tokenizer.Load(o.Dir, tokenizer.Options{})
	if err != nil {
		return tokens.Model{}, fmt.Errorf("model %q: %w", o.ID, err)
	}
	rendering, err := o.chat()
	if err != nil {
		return tokens.Model{}, fmt.Errorf("model %q: %w", o.ID, err)
	}
	return tokens.Model{Chat: rendering, Encoder: tok, MaxLen: o.MaxModelLen}, nil
}

// chat says how the model's servers render.
func (o Options) chat() (chat.Options, error) {
	c, err := tokenizer.ReadConfig(o.Dir)
	if err != nil {
		return chat.Options{}, err
	}
	out := chat.Options{
		Template: c.Templates["default"], ToolTemplate: c.Templates["tool_use"], SpecialTokens: c.Special,
		ContentFormat: o.ContentFormat, ExcludeToolsWhenToolChoiceNone: o.ExcludeTools, Transformers: o.Transformers,
	}
	if o.ChatTemplate != "" {
		b, err := os.ReadFile(o.ChatTemplate)
		if err != nil {
			return out, fmt.Errorf("chat_template: %w", err)
		}
		out.Template, out.ToolTemplate = string(b), ""
	}
	if out.DefaultKwargs, err = o.kwargs(); err != nil {
		return out, err
	}
	if out.Location, err = time.LoadLocation(o.Timezone); err != nil {
		return out, err
	}
	out.Model, err = o.model()
	return out, err
}

// model reads what config.json and the folder's other files say.
func (o Options) model() (chat.Model, error) {
	m := chat.Model{TokenizerMode: o.TokenizerMode}
	b, err := os.ReadFile(filepath.Join(o.Dir, "config.json"))
	if err == nil {
		var c struct {
			Type string `json:"model_type"`
		}
		if err := json.Unmarshal(b, &c); err != nil {
			return m, fmt.Errorf("config.json: %w", err)
		}
		m.Type = c.Type
	} else if !errors.Is(err, os.ErrNotExist) {
		return m, err
	}
	for _, pattern := range []string{"tekken.json", "tokenizer.model.v*"} {
		found, err := filepath.Glob(filepath.Join(o.Dir, pattern))
		if err != nil {
			return m, err
		}
		m.MistralFormat = m.MistralFormat || len(found) > 0
	}
	return m, nil
}
