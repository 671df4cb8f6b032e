package jinja

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// filterFn is a filter: v|name(args).
type filterFn func(st *state, v any, a *args) any

func makeFilters() map[string]filterFn {
	return map[string]filterFn{
		"abs": filterAbs, "attr": filterAttr, "batch": refusedFilter("filter batch"), "capitalize": textFilter(pyvalue.Capitalize),
		"center": filterCenter, "count": filterLength, "d": filterDefault, "default": filterDefault,
		"dictsort": filterDictSort, "e": filterEscape, "escape": filterEscape, "filesizeformat": refusedFilter("filter filesizeformat"),
		"first": filterFirst, "float": filterFloat, "forceescape": filterForceEscape, "format": filterFormat,
		"groupby": refusedFilter("filter groupby"), "indent": filterIndent, "int": filterInt, "join": filterJoin, "last": filterLast,
		"length": filterLength, "list": filterList, "lower": textFilter(pyvalue.Lower), "items": filterItems,
		"map": filterMap, "min": filterMinMax(true), "max": filterMinMax(false), "pprint": refusedFilter("filter pprint"),
		"random": refusedFilter("filter random"), "reject": filterSelect(true, false), "rejectattr": filterSelect(true, true),
		"replace": filterReplace, "reverse": filterReverse, "round": filterRound, "safe": filterSafe,
		"select": filterSelect(false, false), "selectattr": filterSelect(false, true), "slice": refusedFilter("filter slice"),
		"sort": filterSort, "string": filterString, "striptags": refusedFilter("filter striptags"), "sum": filterSum,
		"title": textFilter(filterTitle), "tojson": filterToJSON, "trim": filterTrim, "truncate": filterTruncate,
		"unique": filterUnique, "upper": textFilter(pyvalue.Upper), "urlencode": refusedFilter("filter urlencode"),
		"urlize": refusedFilter("filter urlize"), "wordcount": filterWordCount, "wordwrap": refusedFilter("filter wordwrap"), "xmlattr": refusedFilter("filter xmlattr"),
	}
}

// refusedFilter stands for a filter that no published chat template uses.
func refusedFilter(feature string) filterFn {
	return func(*state, any, *args) any {
		refuse(feature)
		return nil
	}
}

// softText returns markupsafe.soft_str(v): str(v), but Markup stays Markup.
func (st *state) softText(v any) (s string, isMarkup bool) {
	if m, ok := v.(markup); ok {
		return string(m), true
	}
	return st.str(v), false
}

func softResult(s string, isMarkup bool) any {
	if isMarkup {
		return markup(s)
	}
	return s
}

func textFilter(f func(*work.Budget, string) string) filterFn {
	return func(st *state, v any, a *args) any {
		a.bind("filter", 0)
		s, m := st.softText(v)
		return softResult(f(st.work, s), m)
	}
}

// filterTitle turns the first letter of s, and of each word behind space, hyphen or a
// bracket, into upper case.
func filterTitle(w *work.Budget, s string) string {
	var b strings.Builder
	w.Make(2 * len(s))
	start := 0
	flush := func(end int) {
		if word := s[start:end]; word != "" {
			n := byteOffset(word, 1)
			b.WriteString(pyvalue.Upper(w, word[:n]))
			b.WriteString(pyvalue.Lower(w, word[n:]))
		}
	}
	for i, r := range s {
		w.Step(1)
		if r == '-' || r == '(' || r == '{' || r == '[' || r == '<' || pyvalue.IsSpace(r) {
			flush(i)
			start = i + len(string(r))
			b.WriteRune(r)
		}
	}
	flush(len(s))
	return b.String()
}

func filterAbs(st *state, v any, a *args) any {
	a.positional("abs", 0, 0)
	if i, ok := asInt(v); ok {
		if pyvalue.AsBig(i).Sign() < 0 {
			return st.signed(i, true)
		}
		return i
	}
	f, ok := v.(float64)
	if !ok {
		typeError("bad operand type for abs(): '%s'", pyvalue.TypeName(v))
	}
	if f < 0 || f == 0 {
		return 0 - f
	}
	return f
}

func filterAttr(st *state, v any, a *args) any {
	name := textArg("attr", a.bind("attr", 1, "name")[0])
	if u, ok := v.(*undefined); ok {
		u.fail()
	}
	if x, ok := st.attribute(v, name); ok {
		return x
	}
	return st.undefinedMember(v, name)
}

func filterCenter(st *state, v any, a *args) any {
	p := a.bind("center", 0, "width")
	width := 80
	if p[0] != absent {
		width = intArg("center", p[0])
	}
	s, m := st.softText(v)
	return softResult(st.justify(s, "center", width, " "), m)
}

func filterLength(st *state, v any, a *args) any {
	a.positional("len", 0, 0)
	n, ok := st.length(v)
	if !ok {
		typeError("object of type '%s' has no len()", pyvalue.TypeName(v))
	}
	return int64(n)
}

func filterDefault(_ *state, v any, a *args) any {
	p := a.bind("default", 0, "default_value", "boolean")
	_, undef := v.(*undefined)
	if undef || p[1] != absent && truth(p[1]) && !truth(v) {
		if p[0] == absent {
			return ""
		}
		return p[0]
	}
	return v
}

func filterEscape(st *state, v any, a *args) any {
	a.positional("escape", 0, 0)
	return st.escape(v)
}

func filterForceEscape(st *state, v any, a *args) any {
	a.positional("forceescape", 0, 0)
	if m, ok := v.(markup); ok {
		return st.escape(string(m))
	}
	return st.escape(v)
}

func filterSafe(st *state, v any, a *args) any {
	a.positional("safe", 0, 0)
	return markup(st.str(v))
}

func filterString(st *state, v any, a *args) any {
	a.positional("string", 0, 0)
	s, m := st.softText(v)
	return softResult(s, m)
}

func filterFirst(st *state, v any, a *args) any {
	a.positional("first", 0, 0)
	it := st.iterate(v)
	if x, ok := it.next(); ok {
		return x
	}
	return undefinedHint("No first item, sequence was empty.")
}

// reversed returns Python's reversed(v); false: v cannot be reversed.
func (st *state) reversed(v any) (iterator, bool) {
	back := func(n int, at func(int) any) (iterator, bool) {
		return indexIterator(n, func(i int) any { return at(n - 1 - i) }), true
	}
	switch v := v.(type) {
	case *list:
		return back(len(v.Items), func(i int) any { return v.Items[i] })
	case *tuple:
		return back(len(v.Items), func(i int) any { return v.Items[i] })
	case *rangeVal:
		return back(v.len(), v.at)
	case *dict:
		return back(v.Len(), func(i int) any { k, _ := v.At(i); return k })
	case *dictView:
		return back(v.d.Len(), v.at)
	case string, markup:
		s, _ := pyvalue.Text(v)
		chars := st.items(s)
		return back(len(chars), func(i int) any { return chars[i] })
	case bytesVal:
		return back(len(v), func(i int) any { return int64(v[i]) })
	case *undefined:
		return iterator{}, true
	}
	return iterator{}, false
}

func filterLast(st *state, v any, a *args) any {
	a.positional("last", 0, 0)
	it, ok := st.reversed(v)
	if !ok {
		typeError("'%s' object is not reversible", pyvalue.TypeName(v))
	}
	if x, ok := it.next(); ok {
		return x
	}
	return undefinedHint("No last item, sequence was empty.")
}

func filterReverse(st *state, v any, a *args) any {
	a.positional("reverse", 0, 0)
	switch s := v.(type) {
	case string:
		return st.sliceString(s, [3]any{nil, nil, int64(-1)})
	case markup:
		return markup(st.sliceString(string(s), [3]any{nil, nil, int64(-1)}))
	}
	if it, ok := st.reversed(v); ok {
		return st.generator("reversed", it.next)
	}
	if !st.iterable(v) {
		fail(ErrRuntime, "argument must be iterable")
	}
	items := st.joinItems(st.items(v), nil)
	for i, j := 0, len(items)-1; i < j; i, j = i+1, j-1 {
		items[i], items[j] = items[j], items[i]
	}
	return &list{Items: items}
}

func filterList(st *state, v any, a *args) any {
	a.positional("list", 0, 0)
	return &list{Items: st.joinItems(st.items(v), nil)}
}

func filterItems(st *state, v any, a *args) any {
	a.positional("items", 0, 0)
	var it *iterator
	return st.generator("generator", func() (any, bool) {
		if it == nil {
			switch d := v.(type) {
			case *undefined:
				it = &iterator{}
			case *dict:
				it = new(st.iterate(&dictView{d: d, kind: "dict_items"}))
			default:
				typeError("Can only get item pairs from a mapping.")
			}
		}
		return it.next()
	})
}

func filterJoin(st *state, v any, a *args) any {
	p := a.bind("join", 0, "d", "attribute")
	sep := ""
	if p[0] != absent {
		sep = st.str(p[0])
	}
	get := func(v any) any { return v }
	if p[1] != absent && p[1] != nil {
		get = st.attrGetter(p[1], nil)
	}
	var b []byte
	first := true
	for it := st.iterate(v); ; first = false {
		x, ok := it.next()
		if !ok {
			break
		}
		if !first {
			b = append(b, sep...)
		}
		x = get(x)
		n := len(b)
		if s, ok := x.(string); ok {
			b = append(b, s...)
		} else {
			b = append(b, st.str(x)...)
		}
		st.step()
		st.charge(len(b) - n + len(sep))
		if len(b) > st.limits.Output {
			fail(ErrLimit, "a value of more than %d bytes", st.limits.Output)
		}
	}
	return bytesString(b)
}

func filterReplace(st *state, v any, a *args) any {
	p := a.bind("replace", 2, "old", "new", "count")
	count := -1
	if p[2] != absent && p[2] != nil {
		count = intArg("replace", p[2])
	}
	return st.replaceText(st.str(v), st.str(p[0]), st.str(p[1]), count)
}

func filterTrim(st *state, v any, a *args) any {
	p := a.bind("trim", 0, "chars")
	s, m := st.softText(v)
	if p[0] == absent || p[0] == nil {
		t := pyvalue.Strip(st.work, s)
		if _, isString := v.(string); isString && len(t) == len(s) {
			return v // without a copy
		}
		return softResult(t, m)
	}
	return softResult(st.stripSet(s, textArg("strip", p[0]), true, true), m)
}

func filterIndent(st *state, v any, a *args) any {
	p := a.bind("indent", 0, "width", "first", "blank")
	indent := "    "
	if p[0] != absent {
		if s, ok := pyvalue.Text(p[0]); ok {
			indent = s
		} else {
			n := max(0, intArg("indent", p[0]))
			st.charge(n)
			indent = strings.Repeat(" ", n)
		}
	}
	s, ok := pyvalue.Text(v)
	if !ok {
		defined(v)
		typeError("unsupported operand type(s) for +=: '%s' and 'str'", pyvalue.TypeName(v))
	}
	st.charge(len(s))
	lines := pyvalue.SplitLines(st.work, s+"\n", false)
	st.work.Step(2 * len(lines))
	st.charge(2*len(s) + 2*len(lines)*len(indent))
	blank := p[2] != absent && truth(p[2])
	var b strings.Builder
	if p[1] != absent && truth(p[1]) {
		b.WriteString(indent)
	}
	for i, line := range lines {
		if i > 0 {
			b.WriteByte('\n')
			if blank || line != "" {
				b.WriteString(indent)
			}
		}
		b.WriteString(line)
	}
	_, isMarkup := v.(markup)
	return softResult(b.String(), isMarkup)
}

func filterTruncate(st *state, v any, a *args) any {
	p := a.bind("truncate", 0, "length", "killwords", "end", "leeway")
	limit, end, leeway := 255, "...", 5
	if p[0] != absent {
		limit = sizeArg("truncate", p[0])
	}
	if p[2] != absent {
		end = textArg("truncate", p[2])
	}
	if p[3] != absent && p[3] != nil {
		leeway = sizeArg("truncate", p[3])
	}
	if limit < pyvalue.Len(end) || leeway < 0 {
		fail(ErrRuntime, "expected length >= %d, got %d", pyvalue.Len(end), limit)
	}
	n, ok := st.length(v)
	if !ok {
		typeError("object of type '%s' has no len()", pyvalue.TypeName(v))
	}
	if n <= limit || n-limit <= leeway {
		return v
	}
	s, ok := pyvalue.Text(v)
	if !ok {
		if l, isList := v.(*list); isList && p[1] != absent && truth(p[1]) {
			return st.add(st.slice(l, [3]any{nil, int64(limit - pyvalue.Len(end)), nil}), p[2])
		}
		typeError("'%s' cannot be truncated", pyvalue.TypeName(v))
	}
	_, isMarkup := v.(markup)
	st.walk(limit)
	s = s[:byteOffset(s, limit-pyvalue.Len(end))]
	st.scan(len(s))
	st.charge(len(s) + len(end))
	if p[1] == absent || !truth(p[1]) {
		if i := strings.LastIndexByte(s, ' '); i >= 0 {
			s = s[:i]
		}
	}
	if isMarkup {
		return markup(s) + st.escape(endValue(p[2], end))
	}
	if m, ok := p[2].(markup); ok {
		return st.escape(s) + m
	}
	return s + end
}

func endValue(v any, end string) any {
	if v == absent {
		return end
	}
	return v
}

func filterWordCount(st *state, v any, a *args) any {
	a.positional("wordcount", 0, 0)
	s, _ := st.softText(v)
	n, in := int64(0), false
	for _, r := range s {
		st.work.Step(listed)
		word := r == '_' || pyvalue.IsAlnum(r)
		if word && !in {
			n++
		}
		in = word
	}
	return n
}

func filterFormat(st *state, v any, a *args) any {
	if len(a.pos) > 0 && len(a.names) > 0 {
		fail(ErrRuntime, "can't handle positional and keyword arguments at the same time")
	}
	s, m := st.softText(v)
	var arg any = pyvalue.NewTuple(a.pos...)
	if len(a.names) > 0 {
		d := pyvalue.NewDict()
		for i, name := range a.names {
			d.Set(name, a.vals[i])
		}
		arg = d
	}
	return softResult(st.percent(s, arg, m), m)
}

func filterToJSON(st *state, v any, a *args) any {
	p := a.bind("tojson", 0, "ensure_ascii", "indent", "separators", "sort_keys")
	o := pyvalue.DumpOptions{ItemSep: ", ", KeySep: ": ", Work: st.work}
	o.EnsureASCII = p[0] != absent && truth(p[0])
	o.SortKeys = p[3] != absent && truth(p[3])
	if p[1] != absent && p[1] != nil {
		s, ok := pyvalue.Text(p[1])
		if !ok {
			n := max(0, intArg("tojson", p[1]))
			st.charge(n)
			s = strings.Repeat(" ", n)
		}
		o.Indent, o.ItemSep = &s, ","
	}
	if p[2] != absent && p[2] != nil {
		seps := st.unpack(p[2], 2)
		o.ItemSep, o.KeySep = textArg("tojson", seps[0]), textArg("tojson", seps[1])
	}
	start := len(st.out)
	out, err := pyvalue.AppendDumps(st.out, v, o)
	st.check(err)
	st.charge(len(out) - start)
	s := string(out[start:])
	st.out = out[:start]
	return s
}
