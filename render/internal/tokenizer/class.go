package tokenizer

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// class is a tokenizer class of transformers 5. It takes vocabulary and merges of a
// tokenizer.json, and puts its own parts around them.
type class struct {
	normalizer string // JSON
	// preTokenizer is JSON; PREFIX in it stands for add_prefix_space.
	preTokenizer string
	// noPost: the class also ignores the file's post-processor.
	noPost bool
	model  *modelSettings
}

const (
	byteLevelClass = `{"type":"ByteLevel","add_prefix_space":PREFIX,"trim_offsets":true,"use_regex":true}`
	qwenClass      = `{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},` +
		`{"type":"ByteLevel","add_prefix_space":PREFIX,"trim_offsets":true,"use_regex":false}]}`
	cohereClass = `{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true},` + byteLevelClass + `]}`
	nfcClass    = `{"type":"NFC"}`
)

// The classes by their names.
const (
	classLlama = "LlamaTokenizer"
	classQwen  = "Qwen2Tokenizer"
)

var classes = map[string]class{
	classLlama:         {model: &modelSettings{Type: "BPE", FuseUnk: true, ByteFallback: true}},
	"GPT2Tokenizer":    {preTokenizer: byteLevelClass, model: &modelSettings{Type: "BPE"}},
	"CodeGenTokenizer": {preTokenizer: byteLevelClass, model: &modelSettings{Type: "BPE"}},
	classQwen:          {normalizer: nfcClass, preTokenizer: qwenClass, model: &modelSettings{Type: "BPE"}},
	"GPTNeoXTokenizer": {normalizer: nfcClass, preTokenizer: byteLevelClass, noPost: true, model: &modelSettings{Type: "BPE"}},
	"CohereTokenizer":  {normalizer: nfcClass, preTokenizer: cohereClass, model: &modelSettings{Type: "BPE"}},
	"GemmaTokenizer": {
		normalizer:   `{"type":"Replace","pattern":{"String":" "},"content":"▁"}`,
		preTokenizer: `{"type":"Split","pattern":{"String":" "},"behavior":"MergedWithPrevious","invert":false}`,
		model:        &modelSettings{Type: "BPE", FuseUnk: true, ByteFallback: true},
	},
}

// replace puts the class's parts in place of the file's.
func (k class) replace(fields map[string][]byte, c Config) {
	fields["pre_tokenizer"], fields["normalizer"] = k.parts(c)
	if k.noPost {
		fields["post_processor"] = nil
	}
}

// parts returns the class's pre-tokenizer and normalizer.
func (k class) parts(c Config) (preTokenizer, normalizer []byte) {
	pre := strings.ReplaceAll(k.preTokenizer, "PREFIX", strconv.FormatBool(c.prefix != nil && *c.prefix))
	if k.preTokenizer == "" { // Llama's; legacy defaults to false
		scheme := "first"
		switch {
		case c.prefix != nil && !*c.prefix:
			scheme = "never"
		case c.legacy != nil && *c.legacy:
			scheme = "always"
		}
		pre = fmt.Sprintf(`{"type":"Metaspace","replacement":"▁","prepend_scheme":%q,"split":false}`, scheme)
	}
	if k.normalizer != "" {
		normalizer = []byte(k.normalizer)
	}
	return []byte(pre), normalizer
}

// alike reports whether a file has the parts of the class, so that both give the same ids.
func (k class) alike(fields map[string][]byte, c Config, file modelSettings, added []addedToken) bool {
	preTokenizer, normalizer := k.parts(c)
	if !sameComponent(fields["pre_tokenizer"], preTokenizer) || !sameComponent(fields["normalizer"], normalizer) {
		return false
	}
	if k.noPost && !sameComponent(fields["post_processor"], nil) {
		return false
	}
	if file.IgnoreMerges || file.ByteFallback != k.model.ByteFallback || file.Prefix+file.Suffix != "" || k.model.FuseUnk != file.FuseUnk {
		return false
	}
	if len(c.decoder) == 0 {
		return true
	}
	known := map[addedToken]bool{}
	for _, a := range c.decoder {
		a.id = 0
		known[a] = true
	}
	for _, a := range added {
		a.id = 0
		if !known[a] {
			return false
		}
	}
	return true
}

// sameComponent compares the fields of two parts of a tokenizer.json that decide ids.
func sameComponent(a, b []byte) bool {
	read := func(raw []byte) any {
		var v any
		if len(raw) > 0 && json.Unmarshal(raw, &v) != nil {
			return raw
		}
		return bare(v)
	}
	return reflect.DeepEqual(read(a), read(b))
}

// bare returns a part without the fields that only decide offsets.
func bare(v any) any {
	switch v := v.(type) {
	case map[string]any:
		delete(v, "trim_offsets")
		if v["type"] == "ByteLevel" && v["use_regex"] == nil {
			v["use_regex"] = true
		}
		for key := range v {
			v[key] = bare(v[key])
		}
	case []any:
		for i := range v {
			v[i] = bare(v[i])
		}
	}
	return v
}
