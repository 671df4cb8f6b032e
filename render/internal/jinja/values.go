package jinja

import (
	"context"
	"strconv"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

type (
	list  = pyvalue.List
	tuple = pyvalue.Tuple
	dict  = pyvalue.Dict
)

// missingType marks a variable without an assignment. Templates see it only where Jinja
// itself lets its own marker through.
type missingType struct{}

var missing = &missingType{}

func (*missingType) PyType() string { return "MissingType" }
func (*missingType) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	return append(dst, "missing"...)
}
func (u *undefined) PyType() string { return "Undefined" }
func (u *undefined) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	return append(dst, "Undefined"...)
}
func (u *undefined) AppendStr(dst []byte) []byte                      { return dst }
func (u *undefined) PyTruth() bool                                    { return false }
func (u *undefined) PyEqual(_ *work.Budget, o any) bool               { _, ok := o.(*undefined); return ok }
func (u *undefined) PyHash() (any, bool)                              { return (*undefined)(nil), true }
func (m markup) PyType() string                                       { return "Markup" }
func (m markup) PyText() string                                       { return string(m) }
func (m markup) PyTruth() bool                                        { return m != "" }
func (b bytesVal) PyType() string                                     { return "bytes" }
func (b bytesVal) PyTruth() bool                                      { return b != "" }
func (b bytesVal) PyEqual(_ *work.Budget, o any) bool                 { c, ok := o.(bytesVal); return ok && b == c }
func (b bytesVal) PyHash() (any, bool)                                { return b, true }
func (r *rangeVal) PyType() string                                    { return "range" }
func (r *rangeVal) PyTruth() bool                                     { return r.len() > 0 }
func (v *dictView) PyType() string                                    { return v.kind }
func (v *dictView) PyTruth() bool                                     { return v.d.Len() > 0 }
func (g *generator) PyType() string                                   { return g.kind }
func (g *generator) AppendRepr(dst []byte, p *pyvalue.Printer) []byte { return address(dst, p) }
func (b *builtin) PyType() string                                     { return b.kind }
func (b *builtin) AppendRepr(dst []byte, p *pyvalue.Printer) []byte   { return b.appendRepr(dst, p) }
func (n *namespace) PyType() string                                   { return "Namespace" }

// address fails a print that Python makes with a memory address.
func address(dst []byte, p *pyvalue.Printer) []byte {
	p.Fail(pyvalue.ErrAddress)
	return dst
}

// undefined is jinja2.Undefined: it prints as nothing, is false and empty, and fails in
// nearly every other use.
type undefined struct {
	hint   string
	object any // the value without the attribute; only with hasObj
	hasObj bool
	name   any
	kind   error // nil: ErrUndefined
}

func undefinedName(name string) *undefined { return &undefined{name: name} }

func undefinedHint(hint string) *undefined { return &undefined{hint: hint} }

func (st *state) undefinedMember(object, name any) *undefined {
	u := &st.unknowns.carve(1)[0]
	u.object, u.hasObj, u.name = object, true, name
	return u
}

func objectTypeRepr(v any) string {
	switch v.(type) {
	case nil:
		return "None"
	case markup:
		return "markupsafe.Markup object"
	case *undefined, *macro, *loopContext:
		return "jinja2.runtime." + pyvalue.TypeName(v) + " object"
	case *namespace:
		return "jinja2.utils." + pyvalue.TypeName(v) + " object"
	}
	return pyvalue.TypeName(v) + " object"
}

func (u *undefined) message() string {
	name := shortRepr(u.name)
	switch {
	case u.hint != "":
		return u.hint
	case !u.hasObj:
		return name + " is undefined"
	}
	if _, ok := pyvalue.Text(u.name); ok {
		return "'" + objectTypeRepr(u.object) + "' has no attribute " + name
	}
	return objectTypeRepr(u.object) + " has no element " + name
}

// shortRepr returns repr(v), or "" if it exceeds foldLimits.
func shortRepr(v any) (s string) {
	var err error
	defer work.Catch(&err)
	s, _ = pyvalue.Repr(work.New(context.Background(), foldLimits, 0), v)
	return s
}

func (u *undefined) fail() {
	kind := u.kind
	if kind == nil {
		kind = ErrUndefined
	}
	fail(kind, "%s", u.message())
}

// defined fails when v is undefined.
func defined(v any) {
	if u, ok := v.(*undefined); ok {
		u.fail()
	}
}

// markup is markupsafe.Markup: a str that is safe HTML, and escapes the text that is
// joined to it.
type markup string

func (m markup) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	dst = append(dst, "Markup("...)
	dst = pyvalue.AppendQuoted(dst, string(m))
	return append(dst, ')')
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escape returns markupsafe.escape(v).
func (st *state) escape(v any) markup {
	switch v := v.(type) {
	case markup:
		return v
	case string:
		return st.escapeText(v)
	}
	return st.escapeText(st.str(v))
}

// escapeText escapes s as HTML.
func (st *state) escapeText(s string) markup {
	st.walk(len(s))
	n := 0
	for i := range len(s) {
		switch s[i] {
		case '&', '<', '>', '\'', '"':
			n++
		}
	}
	st.charge(len(s) + 4*n)
	return markup(htmlEscaper.Replace(s))
}

// bytesVal is a Python bytes, the result of str.encode.
type bytesVal string

// AppendRepr escapes a byte as ascii() escapes the character with the byte's number.
func (b bytesVal) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	latin1 := make([]rune, len(b))
	for i := range len(b) {
		latin1[i] = rune(b[i])
	}
	return pyvalue.AppendASCII(append(dst, 'b'), string(latin1))
}

// rangeVal is a Python range. The sandbox keeps it below maxRange items.
type rangeVal struct{ start, stop, step int64 }

func (r *rangeVal) len() int {
	switch {
	case r.step > 0 && r.start < r.stop:
		return int((uint64(r.stop)-uint64(r.start)-1)/uint64(r.step)) + 1
	case r.step < 0 && r.start > r.stop:
		return int((uint64(r.start)-uint64(r.stop)-1)/uint64(-r.step)) + 1
	}
	return 0
}

func (r *rangeVal) at(i int) any { return r.start + int64(i)*r.step }

func (r *rangeVal) PyEqual(_ *work.Budget, o any) bool {
	s, ok := o.(*rangeVal)
	if !ok || r.len() != s.len() {
		return false
	}
	n := r.len()
	return n == 0 || r.start == s.start && (n == 1 || r.step == s.step)
}

func (r *rangeVal) PyHash() (any, bool) {
	n := r.len()
	switch n {
	case 0:
		return rangeVal{}, true
	case 1:
		return rangeVal{start: r.start, stop: 1}, true
	}
	return rangeVal{start: r.start, stop: int64(n), step: r.step}, true
}

func (r *rangeVal) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	dst = append(dst, "range("...)
	dst = strconv.AppendInt(dst, r.start, 10)
	dst = append(dst, ", "...)
	dst = strconv.AppendInt(dst, r.stop, 10)
	if r.step != 1 {
		dst = append(dst, ", "...)
		dst = strconv.AppendInt(dst, r.step, 10)
	}
	return append(dst, ')')
}

// dictView is the value of d.keys(), d.values() or d.items().
type dictView struct {
	d    *dict
	kind string // dict_keys, dict_values, dict_items
}

func (v *dictView) at(i int) any {
	k, val := v.d.At(i)
	switch v.kind {
	case "dict_keys":
		return k
	case "dict_values":
		return val
	}
	return pyvalue.NewTuple(k, val)
}

func (v *dictView) PyHash() (any, bool) { return v, v.kind == "dict_values" }

// PyEqual compares views of keys and of items as sets.
func (v *dictView) PyEqual(b *work.Budget, o any) bool {
	w, ok := o.(*dictView)
	if !ok || v.kind == "dict_values" || w.kind == "dict_values" {
		return ok && v == w
	}
	if v.d.Len() != w.d.Len() {
		return false
	}
	for i := 0; i < v.d.Len(); i++ {
		b.Step(stepCost)
		b.Memory(4 * stepBytes)
		if !w.has(b, v.at(i)) {
			return false
		}
	}
	return true
}

// has reports whether a view of keys or items has an item.
func (v *dictView) has(b *work.Budget, item any) bool {
	if v.kind == "dict_keys" {
		pyvalue.ChargeHash(b, item)
		_, ok := v.d.Get(item)
		return ok
	}
	t, ok := item.(*tuple)
	if !ok || len(t.Items) != 2 {
		return false
	}
	pyvalue.ChargeHash(b, t.Items[0])
	value, ok := v.d.Get(t.Items[0])
	if !ok {
		return false
	}
	equal, _ := pyvalue.Equal(b, value, t.Items[1])
	return equal
}

func (v *dictView) AppendRepr(dst []byte, p *pyvalue.Printer) []byte {
	l := &list{}
	for i := 0; i < v.d.Len(); i++ {
		l.Items = append(l.Items, v.at(i))
	}
	dst = append(dst, v.kind...)
	dst = append(dst, '(')
	return append(p.Append(dst, l), ')')
}

// generator is any Python iterator. It can be read once.
type generator struct {
	st   *state
	kind string
	pull func() (any, bool)
	done bool
}

func (st *state) generator(kind string, pull func() (any, bool)) *generator {
	return &generator{st: st, kind: kind, pull: pull}
}

func (g *generator) next() (any, bool) {
	if g.done {
		return nil, false
	}
	g.st.enterCall(1) // generators over generators nest like calls
	v, ok := g.pull()
	g.st.leaveCall(1)
	if !ok {
		g.done = true
	}
	return v, ok
}

// builtin is a function, bound method or type that a template can call.
type builtin struct {
	name string
	kind string // the type's name: function, builtin_function_or_method, method, type
	self any
	fn   func(st *state, a *args) any
}

func (b *builtin) appendRepr(dst []byte, p *pyvalue.Printer) []byte {
	if b.kind != "type" {
		return address(dst, p)
	}
	switch b.name {
	case "dict":
		return append(dst, "<class 'dict'>"...)
	case "namespace":
		return append(dst, "<class 'jinja2.utils.Namespace'>"...)
	case "cycler":
		return append(dst, "<class 'jinja2.utils.Cycler'>"...)
	}
	return append(dst, "<class 'jinja2.utils.Joiner'>"...)
}

// PyEqual reports whether b and o are one method of one object.
func (b *builtin) PyEqual(_ *work.Budget, o any) bool {
	c, ok := o.(*builtin)
	if !ok || b.name != c.name || b.kind != c.kind {
		return false
	}
	if b.self == nil {
		return c.self == nil
	}
	return b.self == c.self
}

// PyHash leaves the receiver out, because Go cannot compare every receiver; equal
// methods have equal names.
func (b *builtin) PyHash() (any, bool) { return b.name, pyvalue.Hashable(b.self) }

// namespace is the value of Jinja's namespace().
type namespace struct{ attrs *dict }

func (n *namespace) AppendRepr(dst []byte, p *pyvalue.Printer) []byte {
	dst = append(dst, "<Namespace "...)
	return append(p.Append(dst, n.attrs), '>')
}
