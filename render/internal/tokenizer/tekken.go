package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"warmroute/render/work"
)

// Mistral has the settings of a tokenizer file in Mistral's own format.
type Mistral struct {
	// Version numbers the instruct format: 1, 2, 3, 7, 11, 13 or 15.
	Version int
	// Settings: the file describes the model settings of prompts (version 15).
	Settings bool
	// Efforts are the reasoning efforts of the model; nil: prompts have none. Effort
	// is the effort of requests that name none.
	Efforts []string
	Effort  string
}

// mistralVersions maps the names of instruct formats to their numbers.
var mistralVersions = map[string]int{"v1": 1, "v2": 2, "v3": 3, "v7": 7, "v11": 11, "v13": 13, "v15": 15}

// tekken has the fields of a tekken.json that this package reads.
type tekken struct {
	Config struct {
		Pattern string `json:"pattern"`
		Size    int    `json:"default_vocab_size"`
		Special int    `json:"default_num_special_tokens"`
		Version string `json:"version"`
	} `json:"config"`
	Vocab []struct {
		Rank  int    `json:"rank"`
		Bytes []byte `json:"token_bytes"`
	} `json:"vocab"`
	Special []struct {
		Rank uint32 `json:"rank"`
		Text string `json:"token_str"`
	} `json:"special_tokens"`
	Settings *struct {
		Effort *struct {
			Values  []string `json:"values"`
			Default string   `json:"default"`
		} `json:"reasoning_effort"`
	} `json:"model_settings_builder"`
}

// oldSpecials are the special tokens of files that name none, by rank.
var oldSpecials = []string{"<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
	"[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]",
	"[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"}

// LoadTekken loads a tekken.json. Only [Tokenizer.AppendPieces] finds its special tokens:
// elsewhere their names are ordinary text.
func LoadTekken(path string, o Options) (*Tokenizer, Mistral, error) {
	data, free, err := readAside(path)
	if err != nil {
		return nil, Mistral{}, fmt.Errorf("load tokenizer: %w", err)
	}
	defer free()
	t, m, err := ParseTekken(data, o)
	if err != nil {
		return nil, m, fmt.Errorf("load tokenizer %s: %w", path, err)
	}
	return t, m, nil
}

// ParseTekken makes a tokenizer of the text of a tekken.json, which it does not keep.
func ParseTekken(data []byte, o Options) (_ *Tokenizer, _ Mistral, err error) {
	defer work.Catch(&err)
	b := o.budget()
	b.Step(len(data))
	b.Memory(2 * len(data))
	var f tekken
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, Mistral{}, fmt.Errorf("the file cannot be read: %w", err)
	}
	about, err := f.about()
	if err != nil {
		return nil, about, err
	}
	t := &Tokenizer{loading: b}
	split, _ := json.Marshal(map[string]any{"type": "Sequence", "pretokenizers": []any{ // of strings: cannot fail
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": f.Config.Pattern}, "behavior": "Isolated"},
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
	}})
	if err := t.addPreTokenizer(split, 0); err != nil {
		return nil, about, err
	}
	if err := f.model(b, &t.model); err != nil {
		return nil, about, err
	}
	t.modelSize = f.Config.Size
	if err := t.named(f.specials()); err != nil {
		return nil, about, err
	}
	t.loading = nil
	return t, about, t.newCache(o)
}

// about checks the file's settings as mistral-common does.
func (f *tekken) about() (Mistral, error) {
	m := Mistral{Version: mistralVersions[f.Config.Version]}
	switch inner := f.Config.Size - f.Config.Special; {
	case m.Version == 0:
		return m, fmt.Errorf("the version %q is none of Mistral's instruct formats", f.Config.Version)
	case f.Config.Special <= 0 || inner <= 0 || inner > len(f.Vocab) || f.Config.Size > maxID:
		return m, fmt.Errorf("the file has %d tokens, not %d beside %d special ones", len(f.Vocab), inner, f.Config.Special)
	case f.Special == nil && m.Version > 7:
		return m, errors.New("the file has no special_tokens")
	case f.Settings != nil && m.Version < 15:
		return m, errors.New("the file has model settings that its version does not know")
	}
	if f.Settings != nil {
		m.Settings = true
		if e := f.Settings.Effort; e != nil {
			m.Efforts, m.Effort = e.Values, e.Default
			if !slices.Contains(e.Values, e.Default) {
				return m, fmt.Errorf("the default reasoning effort %q is none of its values", e.Default)
			}
		}
	}
	return m, nil
}

// model fills a bpe as tiktoken merges: two symbols merge if their text is a token, the
// lowest rank first.
func (f *tekken) model(b *work.Budget, m *bpe) error {
	vocab := f.Vocab[:f.Config.Size-f.Config.Special]
	size := 0
	for i, v := range vocab {
		if v.Rank != i || len(v.Bytes) == 0 || i < 256 && string(v.Bytes) != string([]byte{byte(i)}) {
			return fmt.Errorf("token %d is not the file's token of that rank", i)
		}
		size += len(v.Bytes)
	}
	b.Memory(size + 2*slotBytes*len(vocab))
	m.vocab = newVocabulary(len(vocab), size)
	for i, v := range vocab {
		b.Step(entrySteps + len(v.Bytes)/4)
		if m.vocab.put(v.Bytes, uint32(i+f.Config.Special)); m.vocab.crowded {
			return errCrowded
		}
	}
	if m.vocab.count != len(vocab) {
		return errors.New("two tokens have the same bytes")
	}
	m.unk, m.ignoreMerges = -1, true
	for i := range m.fallback {
		m.fallback[i] = -1
	}
	if err := m.mergeAll(b, func(merge func(text []byte, rank uint32)) {
		for i, v := range vocab {
			merge(v.Bytes, uint32(i))
		}
	}, func([]byte, int) bool { return true }); err != nil {
		return err
	}
	m.prepare(b)
	return nil
}

// mergeAll adds a merge for every pair of tokens whose texts make a token. tokens yields
// each token once with its rank; cut reports whether a token may be cut at a place.
func (m *bpe) mergeAll(b *work.Budget, tokens func(func(text []byte, rank uint32)), cut func(text []byte, at int) bool) error {
	count := func(text []byte, _ uint32, found func(a, b uint32)) {
		for i := 1; i < len(text); i++ {
			b.Step(1)
			if !cut(text, i) {
				continue
			}
			b.Step(wordSteps + len(text)/16)
			if a, ok := m.vocab.id(text[:i]); ok {
				if b, ok := m.vocab.id(text[i:]); ok {
					found(a, b)
				}
			}
		}
	}
	n := 0
	tokens(func(text []byte, rank uint32) { count(text, rank, func(_, _ uint32) { n++ }) })
	b.Memory(2 * slotBytes * n)
	m.merges = newMerges(n)
	tokens(func(text []byte, rank uint32) {
		id, _ := m.vocab.id(text)
		count(text, rank, func(a, b uint32) { m.merges.put(a, b, rank, id) })
	})
	if m.merges.crowded {
		return errCrowded
	}
	return nil
}

// specials returns the special tokens by name: the file's, then fillers.
func (f *tekken) specials() map[string]uint32 {
	named := map[string]uint32{}
	n := len(f.Special)
	for _, s := range f.Special {
		named[s.Text] = s.Rank
	}
	if f.Special == nil {
		n = len(oldSpecials)
		for i, text := range oldSpecials {
			named[text] = uint32(i)
		}
	}
	for ; n < f.Config.Special; n++ {
		named[fmt.Sprintf("<SPECIAL_%d>", n)] = uint32(n)
	}
	return named
}

// named makes tokens the added tokens of AppendPieces and TokenID; <s> stands before a text.
func (t *Tokenizer) named(tokens map[string]uint32) error {
	bos, ok := tokens["<s>"]
	if !ok {
		return errors.New("there is no token <s>")
	}
	t.added, t.before = tokens, []uint32{bos}
	return nil
}

func (t *Tokenizer) newCache(o Options) error {
	switch {
	case o.WordCache == 0:
		t.cache = newWordCache(cacheSlots)
	case o.WordCache > 0 && o.WordCache&(o.WordCache-1) == 0:
		t.cache = newWordCache(max(2, o.WordCache))
	case o.WordCache > 0:
		return fmt.Errorf("a word cache of %d slots is not a power of two", o.WordCache)
	}
	return nil
}
