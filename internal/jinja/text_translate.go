package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"warmroute/internal/pyvalue"
)

func textMakeTrans(st *state, _ string, a *args) any {
	p := a.positional("maketrans", 1, 3)
	out := pyvalue.NewDict()
	if p[1] == absent {
		d, ok := p[0].(*dict)
		if !ok {
			typeError("if you give only one argument to maketrans it must be a dict")
		}
		for k, v := range d.All() {
			if s, ok := pyvalue.Text(k); ok {
				if pyvalue.Len(s) != 1 {
					valueError("string keys in translate table must be of length 1")
				}
				r, _ := utf8.DecodeRuneInString(s)
				k = int64(r)
			} else if _, ok := asInt(k); !ok {
				typeError("keys in translate table must be strings or integers")
			}
			out.Set(k, v)
		}
		return out
	}
	from, to := []rune(textArg("maketrans", p[0])), []rune(textArg("maketrans", p[1]))
	if len(from) != len(to) {
		valueError("the first two maketrans arguments must have equal length")
	}
	for i, r := range from {
		out.Set(int64(r), int64(to[i]))
	}
	if p[2] != absent {
		for _, r := range textArg("maketrans", p[2]) {
			out.Set(int64(r), nil)
		}
	}
	return out
}

func textTranslate(st *state, s string, a *args) any {
	table := a.positional("translate", 1, 1)[0]
	var b strings.Builder
	for _, r := range s {
		v, ok := st.subscript(table, int64(r))
		if !ok {
			if _, isDict := table.(*dict); !isDict {
				if _, ok := length(table); !ok {
					typeError("'%s' object is not subscriptable", pyvalue.TypeName(table))
				}
			}
			b.WriteRune(r)
			continue
		}
		switch x := v.(type) {
		case nil:
		case string:
			b.WriteString(x)
		case int64:
			if x < 0 || x > unicode.MaxRune {
				valueError("character mapping must be in range(0x110000)")
			}
			b.WriteRune(rune(x))
		default:
			typeError("character mapping must return integer, None or str")
		}
		st.charge(b.Len() / 64)
	}
	return b.String()
}
