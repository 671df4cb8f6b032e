package jinja

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"warmroute/render/internal/pyvalue"
)

// attributeParts splits an attribute argument such as "a.0.b".
func (st *state) attributeParts(attr any) []any {
	s, ok := pyvalue.Text(attr)
	if !ok {
		if attr == nil || attr == absent {
			return nil
		}
		return []any{attr}
	}
	var parts []any
	st.scan(len(s))
	st.work.Memory(4 * partBytes * (1 + strings.Count(s, ".")))
	for _, p := range strings.Split(s, ".") {
		if each(pyvalue.IsDigit, listed)(st.work, p) {
			n, err := strconv.ParseInt(p, 10, 64)
			if err != nil {
				refuse("attribute index beyond 64 bits or not in ASCII")
			}
			parts = append(parts, n)
		} else {
			parts = append(parts, p)
		}
	}
	return parts
}

// attrGetter is Jinja's make_attrgetter. Unless nil, def replaces undefined values.
func (st *state) attrGetter(attr, def any) func(any) any {
	parts := st.attributeParts(attr)
	return func(v any) any {
		for _, p := range parts {
			st.work.Step(stepCost)
			v = st.getitem(v, p)
			if def != nil {
				if _, ok := v.(*undefined); ok {
					v = def
				}
			}
		}
		return v
	}
}

func (st *state) ignoreCase(v any) any {
	switch s := v.(type) {
	case string:
		return pyvalue.Lower(st.work, s)
	case markup:
		return markup(pyvalue.Lower(st.work, string(s)))
	}
	return v
}

func given(v any) bool { return v != absent && truth(v) }

// sortBy sorts items by key, stably, as Python's sorted does.
func (st *state) sortBy(items []any, key func(any) any, reverse bool) []any {
	type keyed struct{ key, value any }
	st.work.Make(64 * len(items))
	pairs := make([]keyed, len(items))
	for i, v := range items {
		st.step()
		pairs[i] = keyed{key(v), v}
	}
	if reverse {
		slices.Reverse(pairs)
	}
	slices.SortStableFunc(pairs, func(a, b keyed) int {
		st.step()
		if st.less(a.key, b.key) {
			return -1
		}
		if st.less(b.key, a.key) {
			return 1
		}
		return 0
	})
	if reverse {
		slices.Reverse(pairs)
	}
	out := make([]any, len(pairs))
	for i, p := range pairs {
		out[i] = p.value
	}
	return out
}

func filterSort(st *state, v any, a *args) any {
	p := a.bind("sort", 0, "reverse", "case_sensitive", "attribute")
	var attrs []any
	if s, ok := pyvalue.Text(p[2]); ok {
		st.scan(len(s))
		st.work.Memory(4 * partBytes * (1 + strings.Count(s, ",")))
		for _, part := range strings.Split(s, ",") {
			attrs = append(attrs, part)
		}
	} else {
		attrs = []any{p[2]}
	}
	getters := make([]func(any) any, len(attrs))
	for i, attr := range attrs {
		getters[i] = st.attrGetter(attr, nil)
	}
	fold := !given(p[1])
	key := func(v any) any {
		st.work.Make(16 * len(getters))
		l := &list{Items: make([]any, len(getters))}
		for i, get := range getters {
			x := get(v)
			if fold {
				x = st.ignoreCase(x)
			}
			l.Items[i] = x
		}
		return l
	}
	return &list{Items: st.sortBy(st.items(v), key, given(p[0]))}
}

func filterDictSort(st *state, v any, a *args) any {
	p := a.bind("dictsort", 0, "case_sensitive", "by", "reverse")
	pos := 0
	if p[1] != absent {
		switch s, _ := pyvalue.Text(p[1]); s {
		case "key":
		case "value":
			pos = 1
		default:
			fail(ErrRuntime, `You can only sort by either "key" or "value"`)
		}
	}
	d, ok := v.(*dict)
	if !ok {
		defined(v)
		typeError("'%s' object has no attribute 'items'", pyvalue.TypeName(v))
	}
	fold := !given(p[0])
	return &list{Items: st.sortBy(st.items(&dictView{d: d, kind: "dict_items"}), func(v any) any {
		x := v.(*tuple).Items[pos]
		if fold {
			x = st.ignoreCase(x)
		}
		return x
	}, given(p[2]))}
}

// foldedGetter returns a function that reads an attribute and, unless caseSensitive is
// true, folds its case.
func (st *state) foldedGetter(attr, caseSensitive, def any) func(any) any {
	get := st.attrGetter(attr, def)
	if given(caseSensitive) {
		return get
	}
	return func(v any) any { return st.ignoreCase(get(v)) }
}

// passing returns a generator over v's items. The function of begin returns a value and
// whether the generator yields it. begin runs when the first item is needed; if it
// returns nil, the generator yields nothing.
func (st *state) passing(v any, begin func() func(x any) (any, bool)) any {
	var it *iterator
	var pass func(any) (any, bool)
	return st.generator("generator", func() (any, bool) {
		if it == nil {
			if pass = begin(); pass == nil {
				return nil, false
			}
			it = new(st.iterate(v))
		}
		for {
			x, ok := it.next()
			if !ok {
				return nil, false
			}
			st.step()
			if out, ok := pass(x); ok {
				return out, true
			}
		}
	})
}

func filterUnique(st *state, v any, a *args) any {
	p := a.bind("unique", 0, "case_sensitive", "attribute")
	return st.passing(v, func() func(any) (any, bool) {
		get, seen := st.foldedGetter(p[1], p[0], nil), pyvalue.NewDict()
		return func(x any) (any, bool) {
			k := get(x)
			st.hashable(k)
			_, dup := seen.Get(k)
			if !dup {
				st.work.Memory(entryBytes)
				seen.Set(k, nil)
			}
			return x, !dup
		}
	})
}

func filterMinMax(isMin bool) filterFn {
	return func(st *state, v any, a *args) any {
		p := a.bind("min", 0, "case_sensitive", "attribute")
		it := st.iterate(v)
		best, ok := it.next()
		if !ok {
			return undefinedHint("No aggregated item, sequence was empty.")
		}
		get := st.foldedGetter(p[1], p[0], nil)
		bestKey := get(best)
		for {
			x, ok := it.next()
			if !ok {
				return best
			}
			st.step()
			k := get(x)
			less, than := k, bestKey
			if !isMin {
				less, than = bestKey, k
			}
			if st.less(less, than) {
				best, bestKey = x, k
			}
		}
	}
}

func filterSum(st *state, v any, a *args) any {
	p := a.bind("sum", 0, "attribute", "start")
	get := func(v any) any { return v }
	if p[0] != absent && p[0] != nil {
		get = st.attrGetter(p[0], nil)
	}
	var acc any = int64(0)
	if p[1] != absent {
		acc = p[1]
	}
	switch acc.(type) {
	case string, markup:
		typeError("sum() can't sum strings [use ''.join(seq) instead]")
	case bytesVal:
		typeError("sum() can't sum bytes")
	}
	it := st.iterate(v)
	var floats *floatSum
	for {
		x, ok := it.next()
		if !ok {
			if floats != nil {
				return floats.value()
			}
			return acc
		}
		st.step()
		x = get(x)
		if floats != nil {
			if f, ok := asFloat(x); ok {
				floats.add(f, x)
				continue
			}
			acc, floats = floats.value(), nil
		} else if f, ok := acc.(float64); ok {
			if g, ok := asFloat(x); ok {
				floats = &floatSum{hi: f}
				floats.add(g, x)
				continue
			}
		}
		acc = st.add(acc, x)
	}
}

// floatSum is the compensated summation of CPython's sum for floats, from 3.12 on.
type floatSum struct{ hi, lo float64 }

func (s *floatSum) add(f float64, v any) {
	if _, isFloat := v.(float64); !isFloat {
		s.hi += f
		return
	}
	t := s.hi + f
	if math.Abs(s.hi) >= math.Abs(f) {
		s.lo += (s.hi - t) + f
	} else {
		s.lo += (f - t) + s.hi
	}
	s.hi = t
}

func (s *floatSum) value() any {
	if s.lo != 0 && s.lo-s.lo == 0 { // finite
		return s.hi + s.lo
	}
	return s.hi
}

func filterMap(st *state, v any, a *args) any {
	return st.passing(v, func() func(any) (any, bool) {
		if !truth(v) {
			return nil
		}
		apply := st.mapper(a)
		return func(x any) (any, bool) { return apply(x), true }
	})
}

func (st *state) mapper(a *args) func(any) any {
	if len(a.pos) == 0 && a.keyword("attribute") >= 0 {
		var attr, def any
		for i, name := range a.names {
			switch name {
			case "attribute":
				attr = a.vals[i]
			case "default":
				def = a.vals[i]
			default:
				fail(ErrRuntime, "Unexpected keyword argument '%s'", name)
			}
		}
		return st.attrGetter(attr, def)
	}
	if len(a.pos) == 0 {
		fail(ErrRuntime, "map requires a filter argument")
	}
	name := a.pos[0]
	rest := &args{pos: a.pos[1:], names: a.names, vals: a.vals}
	return func(v any) any { return st.byName("filter", filters, name, v, rest) }
}

// byName calls the filter or test whose name is a value.
func (st *state) byName(what string, table map[string]filterFn, name, v any, a *args) any {
	s, ok := pyvalue.Text(name)
	if !ok {
		st.hashable(name)
	}
	fn := table[s]
	if !ok || fn == nil {
		fail(ErrRuntime, "No %s named %s.", what, st.repr(name))
	}
	return fn(st, v, a)
}

func filterSelect(reject, byAttr bool) filterFn {
	return func(st *state, v any, a *args) any {
		return st.passing(v, func() func(any) (any, bool) {
			if !truth(v) {
				return nil
			}
			keep := st.selector(a, byAttr)
			return func(x any) (any, bool) { return x, keep(x) != reject }
		})
	}
}

func (st *state) selector(a *args, byAttr bool) func(any) bool {
	pos := a.pos
	get := func(v any) any { return v }
	if byAttr {
		if len(pos) == 0 {
			fail(ErrRuntime, "Missing parameter for attribute name")
		}
		get = st.attrGetter(pos[0], nil)
		pos = pos[1:]
	}
	if len(pos) == 0 {
		return func(v any) bool { return truth(get(v)) }
	}
	rest := &args{pos: pos[1:], names: a.names, vals: a.vals}
	return func(v any) bool { return truth(st.byName("test", tests, pos[0], get(v), rest)) }
}
