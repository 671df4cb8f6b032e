package jinja

import (
	"math/big"

	"warmroute/render/internal/pyvalue"
)

func makeTests() map[string]filterFn {
	m := map[string]filterFn{
		"odd":         func(st *state, v any, a *args) any { return st.remainder(v, a, 2, 1) },
		"even":        func(st *state, v any, a *args) any { return st.remainder(v, a, 2, 0) },
		"divisibleby": testDivisibleBy,
		"filter":      testKnown(func(s string) bool { return filters[s] != nil }),
		"test":        testKnown(func(s string) bool { return tests[s] != nil }),
		"sameas":      testSameAs,
		"in": func(st *state, v any, a *args) any {
			return st.contains(a.bind("in", 1, "seq")[0], v)
		},
		"iterable": func(st *state, v any, a *args) any {
			a.positional("iterable", 0, 0)
			return st.iterable(v)
		},
		"lower": func(st *state, v any, a *args) any {
			a.positional("lower", 0, 0)
			return pyvalue.IsLowerText(st.work, st.str(v))
		},
		"upper": func(st *state, v any, a *args) any {
			a.positional("upper", 0, 0)
			return pyvalue.IsUpperText(st.work, st.str(v))
		},
	}
	for name, f := range typeTests {
		m[name] = func(_ *state, v any, a *args) any {
			a.positional(name, 0, 0)
			return f(v)
		}
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"}, ">": {"gt", "greaterthan"}, ">=": {"ge"}, "<": {"lt", "lessthan"}, "<=": {"le"},
	} {
		compare := compareOps[op]
		fn := func(st *state, v any, a *args) any {
			return compare(st, v, a.positional(op, 1, 1)[0])
		}
		for _, name := range append(names, op) {
			m[name] = fn
		}
	}
	return m
}

var typeTests = map[string]func(v any) bool{
	"defined":   func(v any) bool { _, ok := v.(*undefined); return !ok },
	"undefined": func(v any) bool { _, ok := v.(*undefined); return ok },
	"none":      func(v any) bool { return v == nil },
	"boolean":   func(v any) bool { _, ok := v.(bool); return ok },
	"false":     func(v any) bool { return v == false },
	"true":      func(v any) bool { return v == true },
	"integer": func(v any) bool {
		switch v.(type) {
		case int64, *big.Int:
			return true
		}
		return false
	},
	"float": func(v any) bool { _, ok := v.(float64); return ok },
	"number": func(v any) bool {
		_, isFloat := v.(float64)
		_, isInt := asInt(v)
		return isFloat || isInt
	},
	"string":   func(v any) bool { _, ok := pyvalue.Text(v); return ok },
	"mapping":  func(v any) bool { _, ok := v.(*dict); return ok },
	"escaped":  func(v any) bool { _, ok := v.(markup); return ok },
	"callable": callable,
	"sequence": func(v any) bool {
		switch v.(type) {
		case string, markup, *list, *tuple, *dict, *rangeVal, bytesVal, *undefined:
			return true // they have len() and __getitem__
		}
		return false
	},
}

func (st *state) remainder(v any, a *args, by, want int64) any {
	a.positional("test", 0, 0)
	return st.equal(st.mod(v, by), want)
}

func testDivisibleBy(st *state, v any, a *args) any {
	return st.equal(st.mod(v, a.bind("divisibleby", 1, "num")[0]), int64(0))
}

func testKnown(known func(string) bool) filterFn {
	return func(st *state, v any, a *args) any {
		a.positional("filter", 0, 0)
		st.hashable(v)
		s, ok := pyvalue.Text(v)
		return ok && known(s)
	}
}

// testSameAs is Python's `is`, as far as values have an identity here. Small integers
// and strings are compared by value; CPython's caches give the same answer in all but
// contrived cases.
func testSameAs(st *state, v any, a *args) any {
	other := a.bind("sameas", 1, "other")[0]
	if s, ok := pyvalue.Text(v); ok {
		st.work.Read(len(s))
	}
	switch x := v.(type) {
	case nil, bool, int64, string, float64, markup:
		return v == other
	case *big.Int:
		y, ok := other.(*big.Int)
		return ok && x == y
	}
	return v == other
}
