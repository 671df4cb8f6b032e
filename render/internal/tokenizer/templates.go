package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// Template returns the chat template of requests with or without tools, "" if there is none:
// vLLM takes the processor's, and for requests with tools the tokenizer's.
func (c Config) Template(tools bool) string {
	if !tools && c.Processor != nil {
		return *c.Processor
	}
	if t, ok := c.Templates["tool_use"]; ok && tools {
		return t
	}
	return c.Templates["default"]
}

// template reads chat_template: one text, or a list of named texts.
func (c *Config) template(raw json.RawMessage) error {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		c.Templates["default"] = text
		return nil
	}
	var list []struct {
		Name     *string `json:"name"`
		Template *string `json:"template"`
	}
	if json.Unmarshal(raw, &list) == nil {
		for i, t := range list {
			if t.Name == nil || t.Template == nil {
				return fmt.Errorf("chat_template %d has no name or no template", i)
			}
			c.Templates[*t.Name] = *t.Template
		}
		return nil
	}
	var named map[string]string
	if err := json.Unmarshal(raw, &named); err != nil {
		return errors.New("chat_template is neither a text nor a list of named templates")
	}
	for name, t := range named {
		c.Templates[name] = t
	}
	return nil
}

// templates reads the template files. If there are any, the configuration's templates do
// not count.
func (c *Config) templates(dir string) error {
	files := map[string]string{}
	raw, err := readOptional(filepath.Join(dir, "chat_template.jinja"))
	if err != nil {
		return err
	}
	if raw != nil {
		files["default"] = string(raw)
	}
	more, err := filepath.Glob(filepath.Join(dir, "additional_chat_templates", "*.jinja"))
	if err != nil {
		return err
	}
	for _, path := range more {
		if raw, err = readOptional(path); err != nil {
			return err
		}
		files[strings.TrimSuffix(filepath.Base(path), ".jinja")] = string(raw)
	}
	if len(files) > 0 {
		c.Templates = files
	}
	return c.processor(dir, len(more) > 0)
}

// processorFile has the fields of several files of a folder that tell of a processor.
type processorFile struct {
	Class    string          `json:"processor_class"`
	Vision   json.RawMessage `json:"vision_config"`
	Audio    json.RawMessage `json:"audio_config"`
	Template json.RawMessage `json:"chat_template"`
}

// processor reads the template of the model's processor, if transformers makes one.
// additional: the folder has template files for more than one case.
func (c *Config) processor(dir string, additional bool) error {
	files := map[string]*processorFile{}
	named, readsMedia := false, false
	for _, name := range []string{"config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json", "chat_template.json"} {
		raw, err := readOptional(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		f := &processorFile{}
		if raw == nil {
			continue
		} else if json.Unmarshal(raw, f) != nil {
			if name == "chat_template.json" { // the processor cannot be made
				return nil
			}
			f = &processorFile{}
		}
		files[name] = f
		named = named || f.Class != ""
		readsMedia = readsMedia || f.Vision != nil || f.Audio != nil
	}
	// The servers of a model that reads images or sound have its processor's files, even if
	// this folder lacks them.
	if !readsMedia && (!named || files["preprocessor_config.json"] == nil && files["processor_config.json"] == nil) {
		return nil
	}
	own, legacy := files["processor_config.json"], files["chat_template.json"]
	var template json.RawMessage
	switch {
	case legacy != nil && (additional || legacy.Template == nil): // the processor cannot be made
		return nil
	case own != nil && own.Template != nil && string(own.Template) != "null":
		template = own.Template
	case legacy != nil && string(legacy.Template) == "null":
		return nil
	case legacy != nil:
		template = legacy.Template
	case !additional: // it is the tokenizer's
		return nil
	}
	c.Processor = new(string)
	_ = json.Unmarshal(template, c.Processor) // vLLM fails with named templates: none counts
	return nil
}
