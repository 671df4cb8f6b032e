package openai

import "warmroute/render/internal/jsontext"

// AppendText appends a serialisation of the prompt for the text chain, used
// when there are no tokens: the same request gives the same bytes in every
// process, however its JSON is spaced or escaped, and a conversation that goes
// on only appends to what its shorter form gave.
//
// A text prompt is itself (several are separated by a zero byte). Anything else
// is tools, system text or instructions, then the messages one by one, each as
// JSON without insignificant white space and with its strings unescaped. It is
// meant for hashing: it need not be parsed back.
func (r *Request) AppendText(dst []byte) []byte {
	if r.Route == Completions {
		for i, p := range r.TextPrompts {
			if i > 0 {
				dst = append(dst, 0)
			}
			dst = append(dst, p...)
		}
		return dst
	}
	for _, f := range [...]Field{FieldTools, FieldSystem, FieldInstructions} {
		if v := r.raw[f]; v != nil {
			dst = append(appendCompact(dst, v), '\n')
		}
	}
	v := r.raw[r.Route.list()]
	if len(v) == 0 {
		return dst
	}
	if v[0] != '[' {
		return append(appendCompact(dst, v), '\n')
	}
	for _, k := range r.known {
		dst = appendEach(dst, v, k.Stretch)
	}
	return appendEach(dst, v, r.rest)
}

// appendEach appends each value that lies in list, of the structure s, and a new line.
func appendEach(dst, list []byte, s jsontext.Stretch) []byte {
	for nodes := range s.Each {
		dst = append(appendCompact(dst, list[nodes[0].Start:nodes[0].End]), '\n')
	}
	return dst
}

// appendCompact appends JSON that was scanned, without white space between
// tokens and with strings unescaped.
func appendCompact(dst, v []byte) []byte {
	for i := 0; i < len(v); {
		switch c := v[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			j := i + 1
			for v[j] != '"' {
				if v[j] == '\\' {
					j++
				}
				j++
			}
			dst = append(dst, '"')
			dst = jsontext.AppendText(dst, v[i+1:j], nil)
			dst = append(dst, '"')
			i = j + 1
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}
