package openai

import (
	"bytes"
	"math"
	"strconv"
)

// MaxPrompts bounds the prompts of one body: vLLM computes them one by one, and the router
// looks each up by itself.
const MaxPrompts = 4096

// completions reads the prompt of /v1/completions: a string, a list of strings,
// token ids, or lists of token ids. v is a scanned value.
func (r *Request) completions(within *scanner, v []byte) Reason {
	if r.TokenPrompts != nil { // tokenPrompt has read it
		return ""
	}
	if v[0] == '"' {
		within.budget.Make(len(v))
		r.TextPrompts = []string{stringOf(v)}
		return ""
	}
	s := scanner{b: v, budget: within.budget}
	var why Reason
	switch s.i = 1; s.peek() {
	case '"':
		s.i = 0
		why = s.array(func() Reason {
			if s.b[s.i] != '"' {
				return BadPrompt
			}
			start := s.i
			if _, _, why := s.text(); why != "" {
				return why
			}
			if len(r.TextPrompts) == MaxPrompts {
				return TooWide
			}
			s.budget.Make(s.i - start)
			r.TextPrompts = append(r.TextPrompts, stringOf(s.b[start:s.i]))
			return ""
		})
	case '[':
		s.i = 0
		why = s.array(func() Reason {
			if len(r.TokenPrompts) == MaxPrompts {
				return TooWide
			}
			ids, why := s.ids()
			r.TokenPrompts = append(r.TokenPrompts, ids)
			return why
		})
	default:
		s.i = 0
		var ids []uint32
		if ids, why = s.ids(); why == "" {
			r.TokenPrompts = [][]uint32{ids}
		}
	}
	return why
}

// readInputIDs reads SGLang's input_ids, which in a chat stand for the prompt of its messages.
func (r *Request) readInputIDs(within *scanner) {
	if v := r.raw[FieldInputIDs]; v != nil && v[0] == '[' {
		s := scanner{b: v, budget: within.budget}
		if ids, why := s.ids(); why == "" {
			r.given = ids
		}
	}
}

// TakeInputIDs makes a chat's input_ids its prompt, as SGLang does; vLLM does not know them.
func (r *Request) TakeInputIDs() {
	if len(r.given) > 0 {
		r.TokenPrompts, r.Multimodal = [][]uint32{r.given}, false
	}
}

// generate reads a body of Generate: one list of token ids, with what other routes have at
// their top in sampling_params.
func (r *Request) generate(within *scanner) Reason {
	v := r.raw[FieldTokenIDs]
	if why := wants(v, "["); why != "" {
		return why
	}
	if r.TokenPrompts == nil {
		s := scanner{b: v, budget: within.budget}
		ids, why := s.ids()
		if why != "" {
			return why
		}
		r.TokenPrompts = [][]uint32{ids}
	}
	if r.raw[FieldFeatures] != nil || r.raw[FieldContentParts] != nil {
		r.Multimodal, r.TokenPrompts = true, nil // the keys of their blocks have more than ids
	}
	params := r.raw[FieldSamplingParams]
	if params == nil || params[0] != '{' {
		return ""
	}
	s := scanner{b: params, budget: within.budget}
	logprobs, skips := false, ""
	why := s.object(func(key []byte) Reason {
		name, start := string(key), s.i
		if why := s.value(); why != "" {
			return why
		}
		value := string(s.b[start:s.i])
		switch set := value != "null"; name {
		case "n":
			r.Repeated = r.Repeated || set && value != "1"
		case "prompt_logprobs", "prompt_logprob_token_ids":
			logprobs = logprobs || set
		case "skip_reading_prefix_cache":
			skips = value
		case "max_tokens":
			if n, err := strconv.Atoi(value); err == nil && n > 0 {
				r.MaxTokens = n
			}
		}
		return ""
	})
	r.NoCacheRead = skips == "true" || logprobs && skips != "false"
	return why
}

// room allocates memory for the list of ids at s.i, at once: the commas bound their
// number.
func (s *scanner) room() []uint32 {
	rest := s.b[s.i:]
	if end := bytes.IndexByte(rest, ']'); end >= 0 {
		rest = rest[:end]
	}
	n := bytes.Count(rest, []byte{','}) + 1
	s.budget.Make(4 * n)
	s.budget.Read(2 * len(rest))
	return make([]uint32, 0, n)
}

// tokenPrompt reads a prompt that is one plain list of ids and steps over it, so that
// the scanner reads the longest bodies of all once. It returns false for other prompts,
// and does not move.
func (r *Request) tokenPrompt(s *scanner, f Field) bool {
	start := s.i
	if i := start + 1; i == len(s.b) || s.b[i] != ' ' && s.b[i]-'0' > 9 {
		return false
	}
	end, ids, ok := naturals(s.b, start, s.room(), s.budget)
	if !ok {
		return false
	}
	s.i = end
	r.raw[f], r.TokenPrompts = s.b[start:s.i:s.i], [][]uint32{ids}
	return true
}

// ids reads one list of token ids; an empty list is no prompt.
func (s *scanner) ids() ([]uint32, Reason) {
	if s.b[s.i] != '[' {
		return nil, BadPrompt
	}
	end, ids, ok := naturals(s.b, s.i, s.room(), s.budget)
	if ok {
		s.i = end
		return ids, ""
	}
	ids = ids[:0]
	why := s.array(func() Reason {
		start, n := s.i, uint64(0)
		for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' && n <= math.MaxUint32 {
			n = n*10 + uint64(s.b[s.i]-'0')
			s.i++
		}
		if s.i == start || n > math.MaxUint32 {
			return BadPrompt
		}
		ids = append(ids, uint32(n))
		return ""
	})
	switch {
	case why == UnreadableJSON: // s.value has read it: a number such as 1.5 or 1e3
		return nil, BadPrompt
	case why == "" && len(ids) == 0:
		return nil, BadPrompt
	}
	return ids, why
}
