package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Config has the settings of a model folder's other files than tokenizer.json, as
// transformers 5 reads them beside a tokenizer.json.
type Config struct {
	// Templates are the tokenizer's chat templates by name; a single template is "default".
	Templates map[string]string
	// Processor is the template of the processor for images or sound, "" if vLLM cannot use
	// it; nil: the model has no processor, or it has no other template.
	Processor *string
	// Special are the special tokens by their names: "bos_token", "eos_token",
	// "image_token", …
	Special map[string]string
	// Extra are the additional (extra) special tokens.
	Extra []string
	// AddBOS and AddEOS are the file's add_bos_token and add_eos_token, nil if not
	// set. They do not affect this tokenizer: transformers 5 ignores them if there is
	// a tokenizer.json, whose post-processor decides.
	AddBOS, AddEOS *bool
	// Class is tokenizer_class.
	Class string

	legacy       *bool // LlamaTokenizer only: how its pre-tokenizer prepends
	prefix       *bool // add_prefix_space
	splitSpecial bool  // split_special_tokens
	fixMistral   bool  // fix_mistral_regex

	added map[string]int // of added_tokens.json

	alike []string // classes that give the ids that the file gives

	named   []addedToken
	extra   []addedToken
	decoder []addedToken
}

// Classed returns the Options.Class by which transformers 5 may encode in place of the
// file, "" if there is none or the ids are the same. The version of transformers decides,
// too, so only a server's answer shows it. modelType is config.json's; Qwen 2's takes
// precedence over the class.
func (c Config) Classed(modelType string) string {
	name := strings.TrimSuffix(c.Class, "Fast")
	if modelType == "qwen2" {
		name = classQwen
	}
	if _, ok := classes[name]; ok && !slices.Contains(c.alike, name) {
		return name
	}
	return ""
}

// noteAlike sets alike to the classes that give the same ids as the file.
func (c *Config) noteAlike(fields map[string][]byte, file modelSettings, added []addedToken) {
	for _, name := range []string{strings.TrimSuffix(c.Class, "Fast"), classQwen} {
		if k, ok := classes[name]; ok && k.alike(fields, *c, file, added) {
			c.alike = append(c.alike, name)
		}
	}
}

// supported refuses settings that change how tokenizer.json is read.
func (c Config) supported() error {
	switch {
	case c.splitSpecial:
		return errors.New("split_special_tokens of tokenizer_config.json is not supported")
	case c.fixMistral:
		return errors.New("fix_mistral_regex of tokenizer_config.json is not supported")
	}
	return nil
}

// Config returns the configuration read by Load; LoadFile and Parse leave it empty.
func (t *Tokenizer) Config() Config { return t.config }

// specialNames are the names of the special tokens of every tokenizer, in transformers'
// order.
var specialNames = []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}

// configLimit bounds each configuration file; Gemma's is 1.2 MB.
const configLimit = 64 << 20

// ReadConfig reads tokenizer_config.json, special_tokens_map.json and the
// chat template files of a folder. Files that are missing are not errors.
func ReadConfig(dir string) (Config, error) {
	c := Config{Templates: map[string]string{}, Special: map[string]string{}}
	raw, err := readOptional(filepath.Join(dir, "tokenizer_config.json"))
	if err != nil {
		return c, err
	}
	fields := map[string]json.RawMessage{}
	if raw != nil {
		var kind *json.UnmarshalTypeError
		if err := json.Unmarshal(raw, &fields); errors.As(err, &kind) {
			return c, errors.New("tokenizer_config.json is not a JSON object")
		} else if err != nil {
			return c, fmt.Errorf("tokenizer_config.json cannot be read: %w", err)
		}
	}
	where := "tokenizer_config.json"
	if _, ok := fields["added_tokens_decoder"]; !ok {
		old, err := oldFile[json.RawMessage](dir, "special_tokens_map.json")
		if err != nil {
			return c, err
		}
		if len(old) > 0 {
			where += " with special_tokens_map.json"
			if err := override(fields, old); err != nil {
				return c, fmt.Errorf("special_tokens_map.json: %w", err)
			}
		}
		if c.added, err = oldFile[int](dir, "added_tokens.json"); err != nil {
			return c, err
		}
	}
	if err := c.read(fields); err != nil {
		return c, fmt.Errorf("%s: %w", where, err)
	}
	return c, c.templates(dir)
}

// oldFile reads a file with which older models complete tokenizer_config.json.
func oldFile[T any](dir, name string) (map[string]T, error) {
	raw, err := readOptional(filepath.Join(dir, name))
	if raw == nil || err != nil {
		return nil, err
	}
	var old map[string]T
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", name, err)
	}
	return old, nil
}

// override puts the fields of special_tokens_map.json over those of tokenizer_config.json.
// Names that only the model gives its tokens keep their first meaning; lists of extra
// tokens are joined, but for one under its former name, which counts alone.
func override(fields, old map[string]json.RawMessage) error {
	const extra, former = "extra_special_tokens", "additional_special_tokens"
	if list, ok := fields[former]; ok && empty(fields[extra]) {
		fields[extra] = list
		delete(fields, former)
	}
	_, known := fields[extra]
	for name, value := range old {
		switch {
		case name == former && (known || old[extra] != nil):
		case name == extra && value[0] == '[' && len(fields[extra]) > 0 && fields[extra][0] == '[':
			var list, more []json.RawMessage
			if err := errors.Join(json.Unmarshal(fields[extra], &list), json.Unmarshal(value, &more)); err != nil {
				return err
			}
			joined, err := json.Marshal(append(list, more...))
			if err != nil {
				return err
			}
			fields[extra] = joined
		case name == extra && value[0] == '{' && len(fields[extra]) > 0 && fields[extra][0] == '{':
			var named map[string]json.RawMessage
			if err := errors.Join(json.Unmarshal(fields[extra], &named), json.Unmarshal(value, &named)); err != nil {
				return err
			}
			joined, err := json.Marshal(named)
			if err != nil {
				return err
			}
			fields[extra] = joined
		case name == extra && value[0] == '[' && len(fields[extra]) > 0 && fields[extra][0] == '{':
			fields[former] = value // beside the named ones
		case strings.HasSuffix(name, "_token") && !slices.Contains(specialNames, name) && len(fields[name]) > 0 && fields[name][0] == '"':
		default:
			fields[name] = value
		}
	}
	return nil
}

// empty reports whether Python takes a JSON value for false.
func empty(raw json.RawMessage) bool {
	return len(raw) == 0 || slices.Contains([]string{"null", "[]", "{}", "false", `""`}, string(raw))
}

func readOptional(path string) ([]byte, error) {
	raw, err := ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return raw, err
}

// ReadFile reads a file of settings or a template of at most configLimit bytes.
func ReadFile(path string) ([]byte, error) {
	size, err := fileSize(path)
	if err != nil {
		return nil, err
	}
	if size > configLimit {
		return nil, fmt.Errorf("%s has %d bytes, more than %d", path, size, configLimit)
	}
	return os.ReadFile(path)
}

// fileSize returns the size of a regular file and refuses others: reading a pipe could
// block for ever.
func fileSize(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, fmt.Errorf("%s is not a file", path)
	}
	return info.Size(), nil
}

func (c *Config) read(fields map[string]json.RawMessage) error {
	for name, dst := range map[string]any{"legacy": &c.legacy, "add_prefix_space": &c.prefix, "split_special_tokens": &c.splitSpecial,
		"fix_mistral_regex": &c.fixMistral, "add_bos_token": &c.AddBOS, "add_eos_token": &c.AddEOS, "tokenizer_class": &c.Class} {
		if raw, ok := fields[name]; ok {
			if err := json.Unmarshal(raw, dst); err != nil {
				return fmt.Errorf("%s cannot be read: %w", name, err)
			}
		}
	}
	if raw, ok := fields["chat_template"]; ok && string(raw) != "null" {
		if err := c.template(raw); err != nil {
			return err
		}
	}
	var decoder map[string]addedToken
	if raw, ok := fields["added_tokens_decoder"]; ok {
		if err := json.Unmarshal(raw, &decoder); err != nil {
			return fmt.Errorf("added_tokens_decoder cannot be read: %w", err)
		}
	}
	ids := make([]int, 0, len(decoder))
	for key := range decoder {
		id, err := strconv.Atoi(key)
		if err != nil {
			return fmt.Errorf("added_tokens_decoder has the key %q, not a token id", key)
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		c.decoder = append(c.decoder, decoder[strconv.Itoa(id)])
	}
	return c.specials(fields)
}

// specials reads the special tokens: first by the common names, then by the model's own
// names in their order, then the extra tokens, whose names count before those.
func (c *Config) specials(fields map[string]json.RawMessage) error {
	names := slices.Clone(specialNames)
	var own []string
	for name := range fields {
		if strings.HasSuffix(name, "_token") && !slices.Contains(specialNames, name) && name != "add_bos_token" && name != "add_eos_token" {
			own = append(own, name)
		}
	}
	slices.Sort(own)
	for _, name := range append(names, own...) {
		raw, ok := fields[name]
		if !ok || string(raw) == "null" || string(raw) == "true" || string(raw) == "false" {
			continue
		}
		a, err := specialToken(raw)
		if err != nil {
			return fmt.Errorf("%s %w", name, err)
		}
		c.name(name, a)
	}
	for _, name := range []string{"additional_special_tokens", "extra_special_tokens"} {
		if err := c.extras(name, fields[name]); err != nil {
			return err
		}
	}
	return nil
}

// name gives a special token its name, in place of another one that had it.
func (c *Config) name(name string, a addedToken) {
	before, ok := c.Special[name]
	c.Special[name] = a.Content
	if !ok {
		c.named = append(c.named, a)
		return
	}
	c.named[slices.IndexFunc(c.named, func(n addedToken) bool { return n.Content == before })] = a
}

func (c *Config) extras(name string, raw json.RawMessage) error {
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) == nil {
		for _, item := range list {
			a, err := specialToken(item)
			if err != nil {
				return fmt.Errorf("%s: an entry %w", name, err)
			}
			if !slices.Contains(c.Extra, a.Content) {
				c.Extra = append(c.Extra, a.Content)
				c.extra = append(c.extra, a)
			}
		}
		return nil
	}
	var named map[string]json.RawMessage
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf("%s is neither a list nor named tokens", name)
	}
	keys := make([]string, 0, len(named))
	for k := range named {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		a, err := specialToken(named[k])
		if err != nil {
			return fmt.Errorf("%s: %s %w", name, k, err)
		}
		c.name(k, a)
	}
	return nil
}

// specialToken reads a token written as a text or as an object.
func specialToken(raw json.RawMessage) (addedToken, error) {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return addedToken{Content: text, Special: true}, nil
	}
	var a struct {
		addedToken
		Content    *string `json:"content"`
		Normalized *bool   `json:"normalized"`
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Content == nil {
		return addedToken{}, errors.New("is neither a text nor a token with its content")
	}
	out := a.addedToken
	out.Content, out.Special = *a.Content, true
	out.Normalized = a.Normalized == nil || *a.Normalized
	return out, nil
}

// tokens returns the added tokens of a model: the file's, then the tokens that
// transformers adds from the configuration. Later tokens override the flags of earlier
// ones.
func (c *Config) tokens(file []addedToken) []addedToken {
	known := map[string]addedToken{}
	from := c.decoder
	if len(from) == 0 {
		from = file
	}
	for _, a := range from {
		known[a.Content] = a
	}
	out := append(slices.Clone(file), c.decoder...)
	for _, a := range c.oldAdded(file) {
		known[a.Content] = a
		out = append(out, a)
	}
	for _, a := range c.named {
		if a.Content == "" {
			continue
		}
		if k, ok := known[a.Content]; ok {
			a = k
			a.Special = true
		}
		out = append(out, a)
	}
	return append(out, c.extra...)
}

// oldAdded returns the tokens of added_tokens.json whose ids are none of the file's, by id.
func (c *Config) oldAdded(file []addedToken) (out []addedToken) {
	taken := map[int]bool{}
	for _, a := range file {
		taken[int(a.id)] = true
	}
	for text, id := range c.added {
		special := slices.ContainsFunc(append(c.named, c.extra...), func(a addedToken) bool { return a.Content == text })
		if !taken[id] {
			out = append(out, addedToken{Content: text, Special: special, Normalized: !special})
		}
	}
	slices.SortFunc(out, func(a, b addedToken) int { return cmp.Compare(c.added[a.Content], c.added[b.Content]) })
	return out
}
