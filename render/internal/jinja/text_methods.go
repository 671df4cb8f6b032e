package jinja

import (
	"math"
	"math/big"
	"strings"
	"unicode"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// textFn is a method of str on the text s.
type textFn func(st *state, s string, a *args) any

// textMethod returns the method of a str; self is the receiver as a value. markupMethod
// wraps the results for a Markup receiver.
func textMethod(self any, s, name string) (any, bool) {
	fn := textMethods[name]
	if fn == nil {
		return nil, false
	}
	return method(self, name, func(st *state, a *args) any { return fn(st, s, a) }), true
}

func makeTextMethods() map[string]textFn {
	m := map[string]textFn{
		"join": textJoin, "split": textSplit, "rsplit": textRSplit, "splitlines": textSplitLines,
		"replace": textReplace, "expandtabs": textExpandTabs, "zfill": textZFill, "translate": refusedMethod("str.translate"),
		"maketrans": refusedMethod("str.maketrans"), "encode": textEncode, "partition": textPartition, "rpartition": textRPartition,
		"format": textFormat, "format_map": textFormatMap,
	}
	noArgs := func(name string, f func(*work.Budget, string) any) {
		m[name] = func(st *state, s string, a *args) any {
			a.positional(name, 0, 0)
			return f(st.work, s)
		}
	}
	for name, f := range map[string]func(*work.Budget, string) string{
		"upper": pyvalue.Upper, "lower": pyvalue.Lower, "title": pyvalue.Title, "capitalize": pyvalue.Capitalize,
		"casefold": pyvalue.CaseFold, "swapcase": pyvalue.SwapCase,
	} {
		noArgs(name, func(b *work.Budget, s string) any { return f(b, s) })
	}
	for name, f := range map[string]func(*work.Budget, string) bool{
		"isascii": func(b *work.Budget, s string) bool { b.Step(len(s) / 8); return pyvalue.IsASCII(s) }, "islower": pyvalue.IsLowerText, "isupper": pyvalue.IsUpperText,
		"istitle": pyvalue.IsTitleText, "isidentifier": pyvalue.IsIdentifier,
		"isalpha": each(unicode.IsLetter, 2), "isdecimal": each(pyvalue.IsDecimal, 2), "isdigit": each(pyvalue.IsDigit, listed),
		"isnumeric": each(pyvalue.IsNumeric, listed), "isalnum": each(pyvalue.IsAlnum, listed), "isspace": each(pyvalue.IsSpace, 1),
		"isprintable": func(b *work.Budget, s string) bool { return s == "" || each(pyvalue.IsPrintable, 2)(b, s) },
	} {
		noArgs(name, func(b *work.Budget, s string) any { return f(b, s) })
	}
	for name, sides := range map[string][2]bool{"strip": {true, true}, "lstrip": {true, false}, "rstrip": {false, true}} {
		m[name] = func(st *state, s string, a *args) any {
			p := a.positional(name, 0, 1)
			if p[0] == absent || p[0] == nil {
				return stripSpace(st.work, s, sides[0], sides[1])
			}
			return st.stripSet(s, textArg(name, p[0]), sides[0], sides[1])
		}
	}
	for _, name := range []string{"find", "rfind", "index", "rindex", "count"} {
		m[name] = textFind(name)
	}
	for _, name := range []string{"startswith", "endswith"} {
		m[name] = textAffix(name)
	}
	for _, name := range []string{"removeprefix", "removesuffix"} {
		m[name] = func(st *state, s string, a *args) any {
			cut := textArg(name, a.positional(name, 1, 1)[0])
			st.work.Read(len(cut))
			if name == "removeprefix" {
				return strings.TrimPrefix(s, cut)
			}
			return strings.TrimSuffix(s, cut)
		}
	}
	for _, name := range []string{"center", "ljust", "rjust"} {
		m[name] = textJustify(name)
	}
	return m
}

// refusedMethod stands for a method that no published chat template uses.
func refusedMethod(feature string) textFn {
	return func(*state, string, *args) any {
		refuse(feature)
		return nil
	}
}

// listed is the cost of looking up a character in a list.
const listed = 16

// each returns a function that reports whether f holds for each character; cost is the
// steps of one call of f.
func each(f func(rune) bool, cost int) func(*work.Budget, string) bool {
	return func(b *work.Budget, s string) bool {
		for _, r := range s {
			b.Step(cost)
			if !f(r) {
				return false
			}
		}
		return s != ""
	}
}

func textArg(fn string, v any) string {
	s, ok := pyvalue.Text(v)
	if !ok {
		defined(v)
		typeError("%s: expected str, got %s", fn, pyvalue.TypeName(v))
	}
	return s
}

// intArg returns an argument that CPython stores in a machine word.
func intArg(fn string, v any) int {
	if _, isBig := v.(*big.Int); isBig {
		fail(ErrRuntime, "%s: cannot fit 'int' into an index-sized integer", fn)
	}
	return sizeArg(fn, v)
}

// sizeArg returns an integer argument of any size, cut to int, for values that Jinja's
// own code only compares and slices with.
func sizeArg(fn string, v any) int {
	i, ok := index(v)
	if !ok {
		defined(v)
		typeError("%s: '%s' object cannot be interpreted as an integer", fn, pyvalue.TypeName(v))
	}
	return int(i)
}

func stripSpace(b *work.Budget, s string, left, right bool) string {
	if left {
		s = pyvalue.LStrip(b, s)
	}
	if right {
		s = pyvalue.RStrip(b, s)
	}
	return s
}

// stripSet strips the characters of set. It charges for the look-up of each stripped
// character.
func (st *state) stripSet(s, set string, left, right bool) string {
	cost := 1 + len(set)/16
	st.work.Step(cost)
	in := func(r rune) bool {
		st.work.Step(cost)
		return strings.ContainsRune(set, r)
	}
	if left {
		s = strings.TrimLeftFunc(s, in)
	}
	if right {
		s = strings.TrimRightFunc(s, in)
	}
	return s
}

func textJoin(st *state, s string, a *args) any {
	return st.joinText(s, st.items(a.positional("join", 1, 1)[0]))
}

// joinText returns sep.join(items), which takes strings only.
func (st *state) joinText(sep string, items []any) string {
	size := 0
	st.work.Make(16 * len(items))
	parts := make([]string, len(items))
	for i, v := range items {
		st.work.Step(1)
		t, ok := pyvalue.Text(v)
		if !ok {
			typeError("sequence item %d: expected str instance, %s found", i, pyvalue.TypeName(v))
		}
		parts[i] = t
		size += len(t) + len(sep)
	}
	st.charge(size)
	return strings.Join(parts, sep)
}

// texts returns a list of the parts of a text.
func (st *state) texts(parts []string) *list {
	st.work.Step(2 * len(parts))
	st.work.Memory(2 * partBytes * len(parts))
	l := &list{Items: make([]any, len(parts))}
	for i, p := range parts {
		l.Items[i] = p
	}
	return l
}

// partBytes is the memory of a part of a text, boxed.
const partBytes = 32

// splitArgs reads (sep=None, maxsplit=-1).
func splitArgs(name string, a *args) (sep string, space bool, limit int) {
	p := a.bind(name, 0, "sep", "maxsplit")
	limit = -1
	if p[1] != absent {
		limit = intArg(name, p[1])
	}
	if p[0] == absent || p[0] == nil {
		return "", true, limit
	}
	if sep = textArg(name, p[0]); sep == "" {
		valueError("empty separator")
	}
	return sep, false, limit
}

func textSplit(st *state, s string, a *args) any {
	sep, space, limit := splitArgs("split", a)
	if space {
		return st.texts(pyvalue.Fields(st.work, s, limit))
	}
	n := -1
	if limit >= 0 && limit < math.MaxInt32 {
		n = limit + 1
	}
	st.search(s, sep)
	st.work.Memory(partBytes * strings.Count(s, sep))
	parts := strings.SplitN(s, sep, n)
	return st.texts(parts)
}

func textRSplit(st *state, s string, a *args) any {
	sep, space, limit := splitArgs("rsplit", a)
	if space {
		return st.texts(pyvalue.FieldsRight(st.work, s, limit))
	}
	var out []string
	st.walk(len(s)) // the search backwards is slow
	for limit < 0 || len(out) < limit {
		st.work.Step(2)
		st.work.Memory(partBytes)
		i := strings.LastIndex(s, sep)
		if i < 0 {
			break
		}
		out = append(out, s[i+len(sep):])
		s = s[:i]
	}
	out = append(out, s)
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return st.texts(out)
}

func textSplitLines(st *state, s string, a *args) any {
	p := a.bind("splitlines", 0, "keepends")
	return st.texts(pyvalue.SplitLines(st.work, s, p[0] != absent && truth(p[0])))
}

func textReplace(st *state, s string, a *args) any {
	p := a.positional("replace", 2, 3)
	count := -1
	if p[2] != absent {
		count = intArg("replace", p[2])
	}
	return st.replaceText(s, textArg("replace", p[0]), textArg("replace", p[1]), count)
}

// replaceText returns s.replace(old, new, count), charged before the text is built.
func (st *state) replaceText(s, old, new string, count int) string {
	n := 0
	st.search(s, old)
	if old == "" {
		n = pyvalue.Len(s) + 1
	} else {
		n = strings.Count(s, old)
	}
	if count >= 0 {
		n = min(n, count)
	}
	if n == 0 {
		return s
	}
	st.charge(len(s) + n*max(0, len(new)-len(old)))
	st.search(s, old)
	st.work.Step(n)
	return strings.Replace(s, old, new, n)
}

func textExpandTabs(st *state, s string, a *args) any {
	p := a.bind("expandtabs", 0, "tabsize")
	size := 8
	if p[0] != absent {
		size = intArg("expandtabs", p[0])
	}
	st.scan(len(s))
	st.charge(2*len(s) + strings.Count(s, "\t")*max(0, min(size, st.limits.Output)))
	var b strings.Builder
	column := 0
	for _, r := range s {
		st.work.Step(1)
		switch {
		case r == '\t':
			if size > 0 {
				n := size - column%size
				column += n
				b.WriteString(strings.Repeat(" ", n))
			}
		default:
			column++
			if r == '\n' || r == '\r' {
				column = 0
			}
			b.WriteRune(r)
		}
	}
	return b.String()
}

func textZFill(st *state, s string, a *args) any {
	width := intArg("zfill", a.positional("zfill", 1, 1)[0])
	st.scan(len(s))
	n := width - pyvalue.Len(s)
	if n <= 0 {
		return s
	}
	st.charge(2*n + len(s))
	zeros := strings.Repeat("0", n)
	if s != "" && (s[0] == '+' || s[0] == '-') {
		return s[:1] + zeros + s[1:]
	}
	return zeros + s
}

func textJustify(name string) textFn {
	return func(st *state, s string, a *args) any {
		p := a.positional(name, 1, 2)
		fill := " "
		if p[1] != absent {
			if fill = textArg(name, p[1]); pyvalue.Len(fill) != 1 {
				typeError("The fill character must be exactly one character long")
			}
		}
		return st.justify(s, name, intArg(name, p[0]), fill)
	}
}

func (st *state) justify(s, how string, width int, fill string) string {
	st.scan(len(s))
	n := width - pyvalue.Len(s)
	if n <= 0 {
		return s
	}
	st.charge(8*n + len(s)) // a character has up to four bytes, and is written twice
	left := 0
	switch how {
	case "rjust":
		left = n
	case "center":
		left = n/2 + n&width&1
	}
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left)
}

// window returns s[start:end] for the optional arguments of find and its like, and the
// character offset of its start; ok is false if start is beyond the end.
func (st *state) window(name, s string, start, end any) (sub string, offset int, ok bool) {
	if (start == absent || start == nil) && (end == absent || end == nil) {
		return s, 0, true
	}
	st.scan(len(s))
	n := pyvalue.Len(s)
	from, to := 0, n
	if end != absent && end != nil {
		to = clampIndex(end, n)
	}
	if start != absent && start != nil {
		i, isInt := index(start)
		if !isInt {
			typeError("%s: slice indices must be integers or None or have an __index__ method", name)
		}
		if i < 0 {
			i = max(0, i+int64(n))
		}
		if i > int64(n) {
			return "", 0, false
		}
		from = int(i)
	}
	if from > to {
		return "", 0, false
	}
	st.walk(from + to)
	return s[byteOffset(s, from):byteOffset(s, to)], from, true
}

func textFind(name string) textFn {
	return func(st *state, s string, a *args) any {
		p := a.positional(name, 1, 3)
		sub := textArg(name, p[0])
		in, offset, ok := st.window(name, s, p[1], p[2])
		st.search(in, sub)
		if name == "count" {
			if !ok {
				return int64(0)
			}
			return int64(strings.Count(in, sub))
		}
		i := -1
		if ok {
			if name[0] == 'r' {
				st.walk(len(in)) // the search backwards is slow
				i = strings.LastIndex(in, sub)
			} else {
				i = strings.Index(in, sub)
			}
		}
		if i >= 0 {
			st.scan(i)
			return int64(offset + pyvalue.Len(in[:i]))
		}
		if strings.HasSuffix(name, "index") {
			valueError("substring not found")
		}
		return int64(-1)
	}
}

func textAffix(name string) textFn {
	has := strings.HasPrefix
	if name == "endswith" {
		has = strings.HasSuffix
	}
	return func(st *state, s string, a *args) any {
		p := a.positional(name, 1, 3)
		in, _, ok := st.window(name, s, p[1], p[2])
		if t, isTuple := p[0].(*tuple); isTuple {
			for _, x := range t.Items {
				affix := textArg(name, x)
				st.work.Step(1 + len(affix)/32)
				if ok && has(in, affix) {
					return true
				}
			}
			return false
		}
		affix := textArg(name, p[0])
		st.work.Read(len(affix))
		return ok && has(in, affix)
	}
}

func textPartition(st *state, s string, a *args) any {
	sep := textArg("partition", a.positional("partition", 1, 1)[0])
	if sep == "" {
		valueError("empty separator")
	}
	st.search(s, sep)
	if before, after, ok := strings.Cut(s, sep); ok {
		return pyvalue.NewTuple(before, sep, after)
	}
	return pyvalue.NewTuple(s, "", "")
}

func textRPartition(st *state, s string, a *args) any {
	sep := textArg("rpartition", a.positional("rpartition", 1, 1)[0])
	if sep == "" {
		valueError("empty separator")
	}
	st.walk(len(s)) // the search backwards is slow
	if i := strings.LastIndex(s, sep); i >= 0 {
		return pyvalue.NewTuple(s[:i], sep, s[i+len(sep):])
	}
	return pyvalue.NewTuple("", "", s)
}

func textEncode(st *state, s string, a *args) any {
	st.scan(len(s))
	p := a.bind("encode", 0, "encoding", "errors")
	if p[0] != absent {
		switch pyvalue.Lower(st.work, strings.ReplaceAll(textArg("encode", p[0]), "_", "-")) {
		case "utf-8", "utf8":
		case "ascii", "us-ascii":
			if !pyvalue.IsASCII(s) {
				if p[1] != absent {
					refuse("str.encode with an error handler")
				}
				valueError("'ascii' codec can't encode characters")
			}
		default:
			refuse("str.encode to this encoding")
		}
	}
	return bytesVal(s)
}
