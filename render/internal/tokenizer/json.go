package tokenizer

import (
	"errors"
	"fmt"
	"strconv"

	"warmroute/render/internal/jsontext"
)

// reader walks JSON text in place. Vocabulary and merges are up to 33 MB of a file; Go maps
// of them would take many times that.
type reader struct {
	b   []byte
	i   int
	buf []byte // the last string with escapes
}

// maxNesting bounds JSON's nesting so that a hostile file cannot exhaust the stack.
const maxNesting = 64

var errJSON = errors.New("not valid JSON")

func (r *reader) fail() error { return fmt.Errorf("%w at byte %d", errJSON, r.i) }

func (r *reader) peek() byte {
	if r.i = jsontext.Space(r.b, r.i); r.i < len(r.b) {
		return r.b[r.i]
	}
	return 0
}

func (r *reader) expect(c byte) error {
	if r.peek() != c {
		return r.fail()
	}
	r.i++
	return nil
}

// str reads a string. The result is valid until the next call.
func (r *reader) str() ([]byte, error) {
	if r.peek() != '"' {
		return nil, r.fail()
	}
	end, escaped, problem := jsontext.String(r.b, r.i, nil)
	if problem != jsontext.OK {
		return nil, r.fail()
	}
	text := r.b[r.i+1 : end-1]
	r.i = end
	if !escaped {
		return text, nil
	}
	r.buf = jsontext.AppendText(r.buf[:0], text, nil)
	return r.buf, nil
}

// object calls field with each key; field must read the value.
func (r *reader) object(field func(key []byte) error) error {
	if err := r.expect('{'); err != nil {
		return err
	}
	if r.peek() == '}' {
		r.i++
		return nil
	}
	for {
		if r.peek() != '"' {
			return r.fail()
		}
		key, err := r.str()
		if err != nil {
			return err
		}
		if err := r.expect(':'); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.i++
		case '}':
			r.i++
			return nil
		default:
			return r.fail()
		}
	}
}

// array calls item before each element; item must read it.
func (r *reader) array(item func() error) error {
	if err := r.expect('['); err != nil {
		return err
	}
	if r.peek() == ']' {
		r.i++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch r.peek() {
		case ',':
			r.i++
		case ']':
			r.i++
			return nil
		default:
			return r.fail()
		}
	}
}

// id reads a whole number that fits a token id.
func (r *reader) id() (uint32, error) {
	r.peek()
	start := r.i
	for r.i < len(r.b) && r.b[r.i] >= '0' && r.b[r.i] <= '9' {
		r.i++
	}
	v, err := strconv.ParseUint(string(r.b[start:r.i]), 10, 31)
	if err != nil {
		return 0, r.fail()
	}
	return uint32(v), nil
}

// raw reads any value and returns its text.
func (r *reader) raw(depth int) ([]byte, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("JSON nested deeper than %d at byte %d", maxNesting, r.i)
	}
	c := r.peek()
	start := r.i
	var err error
	switch c {
	case '{':
		err = r.object(func([]byte) error { _, err := r.raw(depth + 1); return err })
	case '[':
		err = r.array(func() error { _, err := r.raw(depth + 1); return err })
	case '"':
		_, err = r.str()
	default:
		for r.i < len(r.b) && isScalar(r.b[r.i]) {
			r.i++
		}
		if r.i == start {
			err = r.fail()
		}
	}
	if err != nil {
		return nil, err
	}
	return r.b[start:r.i], nil
}

func isScalar(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}
