package pyvalue

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"unicode/utf8"

	"warmroute/render/work"
)

// DumpOptions are the options of json.dumps; DefaultDumps returns Python's defaults.
type DumpOptions struct {
	EnsureASCII bool
	Indent      *string // one level's text; nil: everything on one line
	ItemSep     string  // between items
	KeySep      string  // between key and value
	SortKeys    bool
	Work        *work.Budget // takes the charges; nil: nothing does
}

// DefaultDumps returns the options of json.dumps(v).
func DefaultDumps() DumpOptions {
	return DumpOptions{EnsureASCII: true, ItemSep: ", ", KeySep: ": "}
}

// AppendDumps appends json.dumps(v). Errors: ErrType (JSON has no form for a value or
// key), ErrDepth, ErrCircular, ErrDigits.
func AppendDumps(dst []byte, v any, o DumpOptions) ([]byte, error) {
	o.Work = work.Or(o.Work)
	d := dumper{o: o, room: cap(dst)}
	return d.value(dst, v)
}

type dumper struct {
	o    DumpOptions
	open []any
	room int // the charged capacity
}

func (d *dumper) value(dst []byte, v any) ([]byte, error) {
	d.o.Work.Step(2)
	dst, err := d.append(dst, v)
	work.Grown(d.o.Work, d.room, dst)
	d.room = cap(dst)
	return dst, err
}

func (d *dumper) append(dst []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), nil
	case bool:
		return strconv.AppendBool(dst, v), nil
	case int64:
		return strconv.AppendInt(dst, v, 10), nil
	case *big.Int:
		d.o.Work.Step(v.BitLen() * (1 + v.BitLen()/1024) / 8)
		return appendInt(dst, v)
	case float64:
		return appendJSONFloat(dst, v), nil
	case string:
		d.o.Work.Step(len(v) / 4)
		return AppendJSONString(dst, v, d.o.EnsureASCII), nil
	case *List:
		return d.list(dst, v, v.Items)
	case *Tuple:
		return d.list(dst, v, v.Items)
	case *Dict:
		return d.dict(dst, v)
	case Texter:
		return AppendJSONString(dst, v.PyText(), d.o.EnsureASCII), nil
	}
	return dst, fmt.Errorf("%w: object of type %s is not JSON serializable", ErrType, TypeName(v))
}

func appendJSONFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	return AppendFloat(dst, f)
}

func (d *dumper) enter(v any) error {
	d.o.Work.Step(len(d.open) / 4)
	if slices.Contains(d.open, v) {
		return ErrCircular
	}
	if len(d.open) >= maxNesting {
		return ErrDepth
	}
	d.open = append(d.open, v)
	return nil
}

func (d *dumper) leave() { d.open = d.open[:len(d.open)-1] }

// line starts a line at the current depth, if there is an indent.
func (d *dumper) line(dst []byte) []byte {
	if d.o.Indent == nil {
		return dst
	}
	dst = append(dst, '\n')
	d.o.Work.Make(len(d.open) * len(*d.o.Indent))
	for range d.open {
		dst = append(dst, *d.o.Indent...)
	}
	return dst
}

func (d *dumper) list(dst []byte, id any, items []any) ([]byte, error) {
	if len(items) == 0 {
		return append(dst, "[]"...), nil
	}
	if err := d.enter(id); err != nil {
		return dst, err
	}
	dst = append(dst, '[')
	for i, it := range items {
		if i > 0 {
			dst = append(dst, d.o.ItemSep...)
		}
		dst = d.line(dst)
		var err error
		if dst, err = d.value(dst, it); err != nil {
			return dst, err
		}
	}
	d.leave()
	return append(d.line(dst), ']'), nil
}

func (d *dumper) dict(dst []byte, m *Dict) ([]byte, error) {
	if m.Len() == 0 {
		return append(dst, "{}"...), nil
	}
	if err := d.enter(m); err != nil {
		return dst, err
	}
	entries := m.entries
	if d.o.SortKeys {
		var err error
		if entries, err = sortedEntries(d.o.Work, entries); err != nil {
			return dst, err
		}
	}
	dst = append(dst, '{')
	for i := range entries {
		if i > 0 {
			dst = append(dst, d.o.ItemSep...)
		}
		dst = d.line(dst)
		var err error
		if dst, err = d.key(dst, entries[i].key); err != nil {
			return dst, err
		}
		dst = append(dst, d.o.KeySep...)
		if dst, err = d.value(dst, entries[i].value); err != nil {
			return dst, err
		}
	}
	d.leave()
	return append(d.line(dst), '}'), nil
}

func (d *dumper) key(dst []byte, k any) ([]byte, error) {
	switch v := k.(type) {
	case string:
		d.o.Work.Step(1 + len(v)/4)
		return AppendJSONString(dst, v, d.o.EnsureASCII), nil
	case Texter:
		return AppendJSONString(dst, v.PyText(), d.o.EnsureASCII), nil
	case nil, bool, int64, *big.Int, float64:
		dst = append(dst, '"')
		dst, err := d.value(dst, v)
		return append(dst, '"'), err
	}
	return dst, fmt.Errorf("%w: keys must be str, int, float, bool or None, not %s", ErrType, TypeName(k))
}

func sortedEntries(w *work.Budget, entries []dictEntry) ([]dictEntry, error) {
	var failed error
	w.Make(entryBytes * len(entries))
	sorted := slices.Clone(entries)
	slices.SortStableFunc(sorted, func(a, b dictEntry) int {
		less, err := Less(w, a.key, b.key)
		if err != nil {
			failed = err
		}
		if less {
			return -1
		}
		if less, _ = Less(w, b.key, a.key); less {
			return 1
		}
		return 0
	})
	return sorted, failed
}

// AppendJSONString appends s as json.dumps writes it.
func AppendJSONString(dst []byte, s string, ensureASCII bool) []byte {
	dst = append(dst, '"')
	run := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			if !ensureASCII {
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(s[i:])
			dst = append(dst, s[run:i]...)
			dst = appendUTF16(dst, r)
			i += n
			run = i
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' && (c != 0x7f || !ensureASCII) {
			i++
			continue
		}
		dst = append(dst, s[run:i]...)
		dst = appendJSONControl(dst, c)
		i++
		run = i
	}
	dst = append(dst, s[run:]...)
	return append(dst, '"')
}

func appendJSONControl(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	case '\f':
		return append(dst, '\\', 'f')
	case '\b':
		return append(dst, '\\', 'b')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}

func appendUTF16(dst []byte, r rune) []byte {
	if r >= 0x10000 {
		r -= 0x10000
		dst = appendEscape(dst, 0xD800+r>>10)
		return appendEscape(dst, 0xDC00+r&0x3FF)
	}
	return append(dst, '\\', 'u', hexDigits[r>>12], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}
