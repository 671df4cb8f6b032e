package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	"warmroute/render/internal/onig"
	"warmroute/render/internal/ucd"
	"warmroute/render/work"
)

// normalizer is one step: it appends the normalized text to dst (copied), or returns text
// or a part of it if that is the normalized text.
type normalizer interface {
	normalize(dst, text []byte, s *scratch) (out []byte, copied bool)
}

type formNormalizer struct{ form *ucd.Form }

func (n formNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	if n.form.Normal(s.work, text) {
		return text, false
	}
	return n.form.Append(s.work, dst, text, &s.ucd), true
}

type prependNormalizer struct{ text []byte }

func (n prependNormalizer) normalize(dst, text []byte, _ *scratch) (out []byte, copied bool) {
	if len(text) == 0 {
		return text, false
	}
	return append(append(dst, n.text...), text...), true
}

type replaceNormalizer struct{ old, new []byte }

// replacedBytes is the number of written bytes in one charge.
const replacedBytes = 1024

// charge charges for some replacements.
func (n replaceNormalizer) charge(b *work.Budget, count int) {
	b.Step(count * (1 + len(n.new)/32))
	b.Memory(count * max(len(n.new)-len(n.old), 0))
}

func (n replaceNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	s.work.Step(len(text) / 16)
	i := bytes.Index(text, n.old)
	if i < 0 {
		return text, false
	}
	together := 1 + replacedBytes/(1+len(n.new))
	unpaid := 0
	for i >= 0 {
		if unpaid++; unpaid == together {
			n.charge(s.work, unpaid)
			unpaid = 0
		}
		dst = append(append(dst, text[:i]...), n.new...)
		text = text[i+len(n.old):]
		i = bytes.Index(text, n.old)
	}
	n.charge(s.work, unpaid)
	return append(dst, text...), true
}

type regexNormalizer struct {
	re  *onig.Regexp
	new []byte
}

func (n regexNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	s.machine.Reset(s.work, n.re, text)
	pos := 0
	for {
		start, end, ok := s.machine.Next(pos)
		if !ok {
			break
		}
		s.work.Step(1 + len(n.new)/32)
		s.work.Memory(len(n.new))
		dst = append(append(dst, text[pos:start]...), n.new...)
		pos = end
	}
	return append(dst, text[pos:]...), true
}

type stripNormalizer struct{ left, right bool }

func (n stripNormalizer) normalize(_, text []byte, s *scratch) (out []byte, copied bool) {
	for n.left && len(text) > 0 {
		s.work.Step(1)
		r, size := utf8.DecodeRune(text)
		if !rustSpace().Has(r) {
			break
		}
		text = text[size:]
	}
	for n.right && len(text) > 0 {
		s.work.Step(1)
		r, size := utf8.DecodeLastRune(text)
		if !rustSpace().Has(r) {
			break
		}
		text = text[:len(text)-size]
	}
	return text, false
}

type mapNormalizer struct{}

func (mapNormalizer) normalize(dst, text []byte, s *scratch) (out []byte, copied bool) {
	s.work.Step(len(text))
	return appendMapped(dst, text), true
}

// pattern is the pattern of a Split or Replace: exactly one field is set.
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
		if n, err = newReplace(t.loading, c); err != nil {
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

func newReplace(b *work.Budget, c *component) (normalizer, error) {
	if c.Pattern == nil || c.Content == nil || (c.Pattern.String == nil) == (c.Pattern.Regex == nil) {
		return nil, fmt.Errorf("the normalizer Replace needs a pattern, String or Regex, and a content")
	}
	if c.Pattern.String != nil {
		if *c.Pattern.String == "" {
			return nil, fmt.Errorf("the normalizer Replace with an empty pattern is not supported")
		}
		return replaceNormalizer{[]byte(*c.Pattern.String), []byte(*c.Content)}, nil
	}
	re, err := onig.Compile(b, *c.Pattern.Regex)
	if err != nil {
		return nil, fmt.Errorf("the normalizer Replace: %w", err)
	}
	return regexNormalizer{re, []byte(*c.Content)}, nil
}

// normalized runs all steps. It returns text itself, or memory of s that the next call
// overwrites.
func (t *Tokenizer) normalized(text []byte, s *scratch) []byte {
	free := 0
	for _, n := range t.normalizers {
		s.work.Step(1 + len(text)/32)
		before := cap(s.norm[free])
		out, copied := n.normalize(s.norm[free][:0], text, s)
		if copied {
			work.Grown(s.work, before, out)
			s.norm[free] = out
			free = 1 - free
		}
		text = out
	}
	return text
}
