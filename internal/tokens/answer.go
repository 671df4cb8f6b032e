package tokens

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// rendered has the fields of vLLM's GenerateRequest that this package reads.
type rendered struct {
	IDs      []uint32  `json:"token_ids"`
	Features *features `json:"features"`
}

// features is vLLM's MultiModalFeatures: per modality, hashes and placeholders
// in parallel.
type features struct {
	Hashes       map[string][]string      `json:"mm_hashes"`
	Placeholders map[string][]placeholder `json:"mm_placeholders"`
}

type placeholder struct {
	Offset int `json:"offset"`
	Length int `json:"length"`
}

// parseRender returns what reads an answer of /render: one object, or a list of them for
// /v1/completions.
func parseRender(route openai.Route, multimodal bool) func(body []byte) ([]Prompt, error) {
	return func(body []byte) ([]Prompt, error) {
		list := make([]rendered, 1)
		into := any(&list[0])
		if route == openai.Completions {
			into = &list
		}
		if json.Unmarshal(body, into) != nil {
			return nil, errInvalid
		}
		prompts := make([]Prompt, 0, len(list))
		for _, r := range list {
			p, err := r.prompt(multimodal)
			if err != nil {
				return nil, err
			}
			prompts = append(prompts, p)
		}
		if len(prompts) == 0 {
			return nil, ErrNone
		}
		return prompts, nil
	}
}

// prompt places the multimodal items. The prompt ends before an item without a
// hash: the key of the item's block cannot be known.
func (r rendered) prompt(multimodal bool) (Prompt, error) {
	p := Prompt{Tokens: r.IDs}
	if len(r.IDs) == 0 || multimodal && r.Features == nil {
		return p, ErrNone
	}
	if r.Features == nil {
		return p, nil
	}
	end := len(r.IDs)
	for modality, places := range r.Features.Placeholders {
		hashes := r.Features.Hashes[modality]
		for i, at := range places {
			if at.Offset < 0 || at.Length <= 0 || at.Offset > len(r.IDs)-at.Length {
				return p, fmt.Errorf("a placeholder is outside the prompt: %w", errInvalid)
			}
			if i >= len(hashes) || hashes[i] == "" {
				end = min(end, at.Offset)
				continue
			}
			p.MM = append(p.MM, prefixhash.MM{ID: hashes[i], Offset: at.Offset, Length: at.Length})
		}
	}
	slices.SortFunc(p.MM, func(a, b prefixhash.MM) int { return cmp.Compare(a.Offset, b.Offset) })
	if end < len(r.IDs) {
		p.Tokens, p.Partial = slices.Clone(r.IDs[:end]), true // the rest need not stay in memory
		p.MM = slices.DeleteFunc(p.MM, func(m prefixhash.MM) bool { return m.Offset >= end })
	}
	if p.Partial && len(p.Tokens) == 0 {
		return p, ErrNone
	}
	return p, nil
}

// parseTokenize reads an answer of /tokenize.
func parseTokenize(body []byte) ([]Prompt, error) {
	var answer struct {
		IDs []uint32 `json:"tokens"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, errInvalid
	}
	if len(answer.IDs) == 0 {
		return nil, ErrNone
	}
	return []Prompt{{Tokens: answer.IDs}}, nil
}
