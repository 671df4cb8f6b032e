package jinja

import (
	"math/big"

	"warmroute/render/internal/pyvalue"
)

// maxRange is the sandbox's limit on the length of a range.
const maxRange = 100000

// globals are the names that every template has.
var globals = map[string]*builtin{
	"range":           {name: "safe_range", kind: "function", fn: rangeGlobal},
	"dict":            {name: "dict", kind: "type", fn: func(st *state, a *args) any { return st.makeDict("dict", a) }},
	"namespace":       {name: "namespace", kind: "type", fn: namespaceGlobal},
	"cycler":          {name: "cycler", kind: "type", fn: refusedGlobal("cycler")},
	"joiner":          {name: "joiner", kind: "type", fn: refusedGlobal("joiner")},
	"lipsum":          {name: "generate_lorem_ipsum", kind: "function", fn: refusedGlobal("lipsum")},
	"raise_exception": {name: "raise_exception", kind: "function", fn: raiseGlobal},
	"strftime_now":    {name: "strftime_now", kind: "function", fn: strftimeGlobal},
}

func raiseGlobal(st *state, a *args) any {
	p := a.bind("raise_exception", 1, "message")
	fail(ErrRaised, "%s", st.str(p[0]))
	return nil
}

func strftimeGlobal(st *state, a *args) any {
	format, ok := pyvalue.Text(a.bind("strftime_now", 1, "format")[0])
	if !ok {
		typeError("strftime() argument 1 must be str")
	}
	return strftime(format, st.now())
}

// refusedGlobal stands for a global that no published chat template uses.
func refusedGlobal(feature string) func(*state, *args) any {
	return func(*state, *args) any {
		refuse(feature)
		return nil
	}
}

func rangeGlobal(_ *state, a *args) any {
	a.noKeywords("range")
	var v [3]int64
	for i, x := range a.pos {
		n, ok := asInt(x)
		if i >= 3 || !ok {
			typeError("range expected 1 to 3 integers")
		}
		if _, big := n.(*big.Int); big {
			refuse("range beyond 64 bits")
		}
		v[i] = n.(int64)
	}
	r := &rangeVal{v[0], v[1], 1}
	switch len(a.pos) {
	case 0:
		typeError("range expected at least 1 argument, got 0")
	case 1:
		r.start, r.stop = 0, v[0]
	case 3:
		if r.step = v[2]; r.step == 0 {
			valueError("range() arg 3 must not be zero")
		}
	}
	if n := r.len(); n > maxRange || n < 0 {
		fail(ErrRuntime, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", maxRange)
	}
	return r
}

// makeDict is dict(...).
func (st *state) makeDict(fn string, a *args) *dict {
	if len(a.pos) > 1 {
		typeError("%s expected at most 1 argument, got %d", fn, len(a.pos))
	}
	d := pyvalue.NewDictOf(len(a.names))
	if len(a.pos) == 1 {
		switch v := a.pos[0].(type) {
		case *dict:
			st.charge(entryBytes * v.Len())
			st.work.Step(stepCost * v.Len())
			d = v.Copy()
		case *undefined:
			v.fail() // dict() reads its keys method
		default:
			for it := st.iterate(v); ; {
				x, ok := it.next()
				if !ok {
					break
				}
				st.step()
				kv := st.unpack(x, 2)
				st.setItem(d, kv[0], kv[1])
			}
		}
	}
	for i := range a.names {
		d.Set(a.name(i), a.vals[i])
	}
	return d
}

func namespaceGlobal(st *state, a *args) any {
	n := &namespace{attrs: st.makeDict("namespace", a)}
	if st.guard {
		for k := range n.attrs.All() {
			st.work.Step(1)
			if s, ok := pyvalue.Text(k); ok {
				st.guardName(s)
			}
		}
	}
	return n
}
