package openai

import "warmroute/render/work"

// Members calls each with the members of the top-level object of a body, in their order:
// with the key, unescaped and valid for the call, and the span of the body from the key's
// opening quote to the end of the value. It charges b, and its error is as ParseWithin's.
func Members(b *work.Budget, body []byte, each func(key []byte, from, to int)) error {
	s := &scanner{b: body, budget: b}
	if b == nil {
		s.budget = &s.unlimited
	}
	why, err := s.members(each)
	switch {
	case err != nil:
		return err
	case why != "":
		return errorOf[why]
	}
	return nil
}

func (s *scanner) members(each func(key []byte, from, to int)) (why Reason, err error) {
	defer work.Catch(&err)
	if len(s.b) >= len(bom) && string(s.b[:len(bom)]) == bom {
		s.i = len(bom)
	}
	if s.peek() != '{' {
		return NotObject, nil
	}
	why = s.object(func(key []byte) Reason {
		from := s.key
		why := s.value()
		if why == "" {
			each(key, from, s.i)
		}
		return why
	})
	if s.space(); why == "" && s.i < len(s.b) {
		why = UnreadableJSON
	}
	return why, nil
}
