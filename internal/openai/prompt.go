package openai

import (
	"bytes"
	"math"
)

// completions reads the prompt of /v1/completions: a string, a list of strings,
// token ids, or lists of token ids. v was scanned.
func (r *Request) completions(v []byte) Reason {
	if v[0] == '"' {
		r.TextPrompts = []string{stringOf(v)}
		return ""
	}
	s := scanner{b: v}
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
			r.TextPrompts = append(r.TextPrompts, stringOf(s.b[start:s.i]))
			return ""
		})
	case '[':
		s.i = 0
		why = s.array(func() Reason {
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

// ids reads one list of token ids; an empty one is no prompt.
func (s *scanner) ids() ([]uint32, Reason) {
	if s.b[s.i] != '[' {
		return nil, BadPrompt
	}
	// Commas bound the count, so that the slice is allocated once.
	rest := s.b[s.i:]
	if end := bytes.IndexByte(rest, ']'); end >= 0 {
		rest = rest[:end]
	}
	ids := make([]uint32, 0, bytes.Count(rest, []byte{','})+1)
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
	case why == UnreadableJSON: // the JSON was good: 1.5 or 1e3 stopped us
		return nil, BadPrompt
	case why == "" && len(ids) == 0:
		return nil, BadPrompt
	}
	return ids, why
}
