package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"warmroute/internal/tokenizer/onig"
	"warmroute/internal/tokenizer/ucd"
)

// normalizer is one step: it appends the normalized text to dst (copied), or
// returns text or a part of it when that is all there is to do.
type normalizer interface {
	normalize(dst, text []byte, s *scratch) (out []byte, copied bool)
}

type formNormalizer struct{ form *ucd.Form }

func (n formNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	if n.form.Normal(text) {
		return text, false
	}
	return n.form.Append(dst, text, &s.ucd), true
}

type prependNormalizer struct{ text []byte }

func (n prependNormalizer) normalize(dst, text []byte, _ *scratch) (out []byte, copied bool) {
	if len(text) == 0 {
		return text, false
	}
	return append(append(dst, n.text...), text...), true
}

type replaceNormalizer struct{ old, new []byte }

func (n replaceNormalizer) normalize(dst, text []byte, _ *scratch) (out []byte, copied bool) {
	i := bytes.Index(text, n.old)
	if i < 0 {
		return text, false
	}
	for i >= 0 {
		dst = append(append(dst, text[:i]...), n.new...)
		text = text[i+len(n.old):]
		i = bytes.Index(text, n.old)
	}
	return append(dst, text...), true
}

type regexNormalizer struct {
	re  *onig.Regexp
	new []byte
}

func (n regexNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	s.machine.Reset(n.re, text)
	pos := 0
	for {
		start, end, ok := s.machine.Next(pos)
		if !ok {
			break
		}
		dst = append(append(dst, text[pos:start]...), n.new...)
		pos = end
	}
	return append(dst, text[pos:]...), true
}

type stripNormalizer struct{ left, right bool }

func (n stripNormalizer) normalize(_, text []byte, _ *scratch) (out []byte, copied bool) {
	for n.left && len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if !rustSpace().Has(r) {
			break
		}
		text = text[size:]
	}
	for n.right && len(text) > 0 {
		r, size := utf8.DecodeLastRune(text)
		if !rustSpace().Has(r) {
			break
		}
		text = text[:len(text)-size]
	}
	return text, false
}

type mapNormalizer struct{}

func (mapNormalizer) normalize(dst, text []byte, _ *scratch) (out []byte, copied bool) {
	return appendMapped(dst, text), true
}

// pattern is a Split's or Replace's: exactly one of the two is set.
type pattern struct {
	String *string
	Regex  *string
}

// component is any node of the normalizer, pre_tokenizer and post_processor
// trees, with the fields of all their kinds.
type component struct {
	Type           string            `json:"type"`
	Normalizers    []json.RawMessage `json:"normalizers"`
	Pretokenizers  []json.RawMessage `json:"pretokenizers"`
	Processors     []json.RawMessage `json:"processors"`
	Prepend        *string           `json:"prepend"`
	Content        *string           `json:"content"`
	Pattern        *pattern          `json:"pattern"`
	Behavior       string            `json:"behavior"`
	Invert         bool              `json:"invert"`
	AddPrefixSpace *bool             `json:"add_prefix_space"`
	UseRegex       *bool             `json:"use_regex"`
	StripLeft      bool              `json:"strip_left"`
	StripRight     bool              `json:"strip_right"`
	Individual     bool              `json:"individual_digits"`
	Replacement    string            `json:"replacement"`
	PrependScheme  string            `json:"prepend_scheme"`
	Split          *bool             `json:"split"`
	Delimiter      string            `json:"delimiter"`
	Single         []templatePiece   `json:"single"`
	SpecialTokens  map[string]struct {
		IDs []uint32 `json:"ids"`
	} `json:"special_tokens"`
	Sep []json.RawMessage `json:"sep"`
	Cls []json.RawMessage `json:"cls"`
}

func parseComponent(raw []byte, where string) (*component, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	var c component
	if err := json.Unmarshal(raw, &c); err != nil {
		return nil, fmt.Errorf("the %s cannot be read: %w", where, err)
	}
	return &c, nil
}

// addNormalizer appends the steps of a normalizer tree.
func (t *Tokenizer) addNormalizer(raw []byte, depth int) error {
	c, err := parseComponent(raw, "normalizer")
	if err != nil || c == nil {
		return err
	}
	if depth > maxNesting {
		return fmt.Errorf("the normalizer is nested deeper than %d", maxNesting)
	}
	var n normalizer
	switch c.Type {
	case "Sequence":
		for _, sub := range c.Normalizers {
			if err := t.addNormalizer(sub, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "NFC":
		n = formNormalizer{ucd.NFC()}
	case "NFD":
		n = formNormalizer{ucd.NFD()}
	case "NFKC":
		n = formNormalizer{ucd.NFKC()}
	case "NFKD":
		n = formNormalizer{ucd.NFKD()}
	case "Prepend":
		if c.Prepend == nil {
			return fmt.Errorf("the normalizer Prepend has no text to prepend")
		}
		n = prependNormalizer{[]byte(*c.Prepend)}
	case "Replace":
		if n, err = newReplace(c); err != nil {
			return err
		}
	case "Strip":
		t.moves = true
		n = stripNormalizer{c.StripLeft, c.StripRight}
	case "ByteLevel":
		n = mapNormalizer{}
	default:
		return fmt.Errorf("the normalizer %q is not supported", c.Type)
	}
	if c.Type == "Replace" && *c.Content == "" {
		t.moves = true
	}
	t.normalizers = append(t.normalizers, n)
	return nil
}

func newReplace(c *component) (normalizer, error) {
	if c.Pattern == nil || c.Content == nil || (c.Pattern.String == nil) == (c.Pattern.Regex == nil) {
		return nil, fmt.Errorf("the normalizer Replace needs a pattern, String or Regex, and a content")
	}
	if c.Pattern.String != nil {
		if *c.Pattern.String == "" {
			return nil, fmt.Errorf("the normalizer Replace with an empty pattern is not supported")
		}
		return replaceNormalizer{[]byte(*c.Pattern.String), []byte(*c.Content)}, nil
	}
	re, err := onig.Compile(*c.Pattern.Regex)
	if err != nil {
		return nil, fmt.Errorf("the normalizer Replace: %w", err)
	}
	return regexNormalizer{re, []byte(*c.Content)}, nil
}

// normalized runs all steps. The result is text itself or in scratch memory
// that the next call overwrites.
func (t *Tokenizer) normalized(text []byte, s *scratch) []byte {
	free := 0
	for _, n := range t.normalizers {
		out, copied := n.normalize(s.norm[free][:0], text, s)
		if copied {
			s.norm[free] = out
			free = 1 - free
		}
		text = out
	}
	return text
}
