package openai

import (
	"warmroute/render/internal/jsontext"
	"warmroute/render/work"
)

// AppendText appends a serialisation of the prompt, for the text chain of requests
// without token ids. The same request gives the same bytes in every process, with any
// spacing and escaping of its JSON, and the next turn of a conversation appends to the
// bytes of the turn before. AppendText stops once the result has most bytes, so its cost
// depends on most and not on the body.
//
// A text prompt is its own serialisation (a zero byte separates several). The other
// routes' prompts are tools, system text or instructions, then the messages one by one,
// each as JSON without insignificant white space and with its strings unescaped. The
// bytes are for hashing alone.
func (r *Request) AppendText(dst []byte, most int) []byte {
	return r.AppendTextWithin(nil, dst, most)
}

// AppendTextWithin is AppendText within a budget: it panics if the work has to end, which
// work.Catch recovers.
func (r *Request) AppendTextWithin(b *work.Budget, dst []byte, most int) []byte {
	switch r.Route {
	case Generate: // it has no text
		return dst
	case Completions:
		for i, p := range r.TextPrompts {
			if i > 0 {
				dst = append(dst, 0)
			}
			dst = append(dst, p[:min(len(p), max(0, most-len(dst)))]...)
		}
		return cut(dst, most)
	}
	for _, f := range textFields {
		if v := r.raw[f]; v != nil {
			dst = append(appendCompact(b, dst, v, most), '\n')
		}
	}
	v := r.raw[r.Route.list()]
	switch {
	case len(v) == 0:
	case v[0] != '[':
		dst = append(appendCompact(b, dst, v, most), '\n')
	default:
		for _, k := range r.known {
			dst = appendEach(b, dst, v, k.Stretch, most)
		}
		dst = appendEach(b, dst, v, r.rest, most)
	}
	return cut(dst, most)
}

// textFields are the fields that come before the messages in the text.
var textFields = [...]Field{FieldTools, FieldSystem, FieldInstructions}

// TextLen returns the length of the prompt in the body, in bytes: about the length of its
// whole text.
func (r *Request) TextLen() (bytes int) {
	switch r.Route {
	case Generate:
		return 0
	case Completions:
		for _, p := range r.TextPrompts {
			bytes += len(p)
		}
		return bytes
	}
	for _, f := range textFields {
		bytes += len(r.raw[f])
	}
	return bytes + len(r.raw[r.Route.list()])
}

func cut(text []byte, most int) []byte { return text[:min(len(text), most)] }

// appendEach appends each value of list, whose structure is s, and a new line.
func appendEach(b *work.Budget, dst, list []byte, s jsontext.Stretch, most int) []byte {
	for nodes := range s.Each {
		if len(dst) >= most {
			break
		}
		b.Pause()
		dst = append(appendCompact(b, dst, list[nodes[0].Start:nodes[0].End], most), '\n')
	}
	return dst
}

// appendCompact appends scanned JSON, without white space between tokens and with strings
// unescaped, until the result has most bytes or a few more.
func appendCompact(b *work.Budget, dst, v []byte, most int) []byte {
	for i := 0; i < len(v) && len(dst) < most; {
		switch c := v[i]; c {
		case ' ', '\t', '\n', '\r':
			i++
		case '"':
			j := stringEnd(v, i+1, most-len(dst))
			dst = append(dst, '"')
			dst = jsontext.AppendText(dst, v[i+1:j], b)
			dst = append(dst, '"')
			i = j + 1
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// stringEnd returns the index of the closing quote of a string whose text begins at i, or
// an earlier index between two escapes if the bytes before it stand for at least need
// bytes of text.
func stringEnd(v []byte, i, need int) int {
	// An escape of 6 bytes stands for one byte at least, and one of 12 for four.
	const escape, pair = len(`\u0000`), len(`\ud800\udc00`)
	end := len(v)
	if need < len(v)/escape {
		end = min(end, i+escape*need+pair)
	}
	for i < end && v[i] != '"' {
		switch {
		case v[i] != '\\':
			i++
		case v[i+1] == 'u':
			i += escape
		default:
			i += 2
		}
	}
	return i
}
