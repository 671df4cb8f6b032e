package tokenizer

import (
	"encoding/json"
	"fmt"
)

// templatePiece is one piece of a TemplateProcessing: exactly one field is set.
type templatePiece struct {
	Sequence *struct {
		ID string `json:"id"`
	}
	SpecialToken *struct {
		ID string `json:"id"`
	}
}

// addPostProcessor finds the special tokens before and after a single text. Only one
// processor of a file may add any.
func (t *Tokenizer) addPostProcessor(raw []byte, depth int) error {
	c, err := parseComponent(raw, "post_processor")
	if err != nil || c == nil {
		return err
	}
	if depth > maxNesting {
		return fmt.Errorf("the post-processor is nested deeper than %d", maxNesting)
	}
	var before, after []uint32
	switch c.Type {
	case "Sequence":
		for _, sub := range c.Processors {
			if err := t.addPostProcessor(sub, depth+1); err != nil {
				return err
			}
		}
		return nil
	case "ByteLevel": // moves offsets only
		return nil
	case "TemplateProcessing":
		before, after, err = template(c)
	case "BertProcessing", "RobertaProcessing":
		before, after, err = bracket(c)
	default:
		return fmt.Errorf("the post-processor %q is not supported", c.Type)
	}
	if err != nil {
		return err
	}
	if t.templated {
		return fmt.Errorf("two post-processors that add tokens are not supported")
	}
	t.templated = true
	t.before, t.after = before, after
	return nil
}

func template(c *component) (before, after []uint32, err error) {
	seen := false
	for _, p := range c.Single {
		switch {
		case p.Sequence != nil && p.SpecialToken == nil:
			if p.Sequence.ID != "A" || seen {
				return nil, nil, fmt.Errorf("the post-processor TemplateProcessing must hold the text A once in single")
			}
			seen = true
		case p.SpecialToken != nil && p.Sequence == nil:
			tok, ok := c.SpecialTokens[p.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("the post-processor TemplateProcessing names the token %q, which is not among its special_tokens", p.SpecialToken.ID)
			}
			if seen {
				after = append(after, tok.IDs...)
			} else {
				before = append(before, tok.IDs...)
			}
		default:
			return nil, nil, fmt.Errorf("the post-processor TemplateProcessing holds a piece that is neither Sequence nor SpecialToken")
		}
	}
	if !seen {
		return nil, nil, fmt.Errorf("the post-processor TemplateProcessing must hold the text A once in single")
	}
	return before, after, nil
}

func bracket(c *component) (before, after []uint32, err error) {
	id := func(pair []json.RawMessage, name string) ([]uint32, error) {
		var v uint32
		if len(pair) != 2 || json.Unmarshal(pair[1], &v) != nil {
			return nil, fmt.Errorf("the post-processor %s has no %s token with an id", c.Type, name)
		}
		return []uint32{v}, nil
	}
	if before, err = id(c.Cls, "cls"); err != nil {
		return nil, nil, err
	}
	after, err = id(c.Sep, "sep")
	return before, after, err
}
