package jinja

import (
	"math"
	"math/big"
	"strings"

	"warmroute/render/internal/pyvalue"
)

// getattr returns the sandbox's v.name: a Python attribute, or else v["name"].
func (st *state) getattr(v any, name string) any {
	if u, ok := v.(*undefined); ok {
		if objectDunders[name] || undefinedDunders[name] {
			return unsafeAttr(v, name)
		}
		u.fail()
	}
	if x, ok := st.attribute(v, name); ok {
		return x
	}
	if x, ok := st.subscript(v, name); ok {
		return x
	}
	return st.undefinedMember(v, name)
}

// getitem returns the sandbox's v[key]: the item, or else the attribute.
func (st *state) getitem(v, key any) any {
	if u, ok := v.(*undefined); ok {
		u.fail()
	}
	if x, ok := st.subscript(v, key); ok {
		return x
	}
	if name, ok := pyvalue.Text(key); ok {
		if x, ok := st.attribute(v, name); ok {
			return x
		}
	}
	return st.undefinedMember(v, key)
}

// subscript returns v[key]; false: Python raises TypeError or LookupError.
func (st *state) subscript(v, key any) (any, bool) {
	at := func(n int) (int, bool) {
		i, ok := index(key)
		if !ok {
			return 0, false
		}
		if i < 0 {
			i += int64(n)
		}
		return int(i), i >= 0 && i < int64(n)
	}
	switch v := v.(type) {
	case *dict:
		pyvalue.ChargeHash(st.work, key)
		return v.Get(key)
	case *list:
		if i, ok := at(len(v.Items)); ok {
			return v.Items[i], true
		}
	case *tuple:
		if i, ok := at(len(v.Items)); ok {
			return v.Items[i], true
		}
	case string:
		return st.subscriptText(v, at)
	case markup:
		if c, ok := st.subscriptText(string(v), at); ok {
			return markup(c.(string)), true
		}
	case bytesVal:
		if i, ok := at(len(v)); ok {
			return int64(v[i]), true
		}
	case *rangeVal:
		if i, ok := at(v.len()); ok {
			return v.at(i), true
		}
	}
	return nil, false
}

func (st *state) subscriptText(s string, at func(int) (int, bool)) (any, bool) {
	st.scan(len(s))
	i, ok := at(pyvalue.Len(s))
	if !ok {
		return nil, false
	}
	st.walk(i)
	from := byteOffset(s, i)
	return s[from : from+byteOffset(s[from:], 1)], true
}

// attribute returns the sandbox's getattr(v, name); false: Python raises
// AttributeError. A forbidden attribute is an undefined whose use fails with
// ErrSecurity.
func (st *state) attribute(v any, name string) (any, bool) {
	st.work.Read(len(name))
	if strings.HasPrefix(name, "_") {
		if !hasPrivate(v, name) {
			return nil, false
		}
		return unsafeAttr(v, name), true
	}
	switch v := v.(type) {
	case string:
		return textMethod(v, v, name)
	case markup:
		return markupMethod(v, name)
	case *dict:
		return dictMethod(v, name)
	case *list:
		if isListMutator[name] {
			return unsafeAttr(v, name), true
		}
		return sequenceMethod(v, name, listMethods)
	case *tuple:
		for i, n := range v.Names {
			if n == name {
				return v.Items[i], true
			}
		}
		return sequenceMethod(v, name, tupleMethods)
	case *rangeVal:
		switch name {
		case "start":
			return v.start, true
		case "stop":
			return v.stop, true
		case "step":
			return v.step, true
		}
		return sequenceMethod(v, name, tupleMethods)
	case bool, int64, *big.Int:
		return intAttr(v, name)
	case float64:
		return floatAttr(v, name)
	case *namespace:
		return v.attrs.GetString(name)
	case *loopContext:
		return v.attr(name)
	}
	return st.objectAttr(v, name)
}

func unsafeAttr(v any, name string) any {
	return &undefined{
		hint: "access to attribute '" + name + "' of '" + pyvalue.TypeName(v) + "' object is unsafe.",
		name: name, object: v, hasObj: true, kind: ErrSecurity,
	}
}

// objectDunders are the attributes of every Python object.
var objectDunders = wordSet(`__class__ __delattr__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getstate__
	__gt__ __hash__ __init__ __init_subclass__ __le__ __lt__ __ne__ __new__ __reduce__ __reduce_ex__ __repr__
	__setattr__ __sizeof__ __str__ __subclasshook__`)

// undefinedDunders are further attributes of Undefined, which defines most operators.
var undefinedDunders = wordSet(`__add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __div__ __rdiv__ __truediv__ __rtruediv__
	__floordiv__ __rfloordiv__ __mod__ __rmod__ __pos__ __neg__ __call__ __getitem__ __int__ __float__ __complex__
	__pow__ __rpow__ __len__ __iter__ __aiter__ __bool__ __getattr__ __slots__ __module__ _fail_with_undefined_error
	_undefined_hint _undefined_obj _undefined_name _undefined_exception _undefined_message`)

var containerDunders = wordSet(`__len__ __iter__ __getitem__ __contains__ __add__ __mul__ __rmul__`)

func wordSet(s string) map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(s) {
		m[w] = true
	}
	return m
}

// hasPrivate reports whether v has the attribute name, which starts with an underscore.
// The sandbox hides such an attribute; if v lacks it, getattr looks up the item.
func hasPrivate(v any, name string) bool {
	switch v := v.(type) {
	case *namespace:
		_, ok := v.attrs.GetString(name)
		return ok || name == "__class__"
	case string, markup, *dict, *list, *tuple:
		return objectDunders[name] || containerDunders[name]
	case *macro:
		return objectDunders[name] || name == "__call__" || name == "__dict__" || name == "__module__"
	}
	return objectDunders[name]
}

// objectAttr returns an attribute of one of Jinja's own objects.
func (st *state) objectAttr(v any, name string) (any, bool) {
	switch v := v.(type) {
	case *macro:
		switch name {
		case "name":
			if !v.code.named {
				return nil, true
			}
			return v.code.name, true
		case "arguments":
			t := &tuple{}
			for _, a := range v.code.args {
				t.Items = append(t.Items, a)
			}
			return t, true
		case "caller":
			return v.code.caller != nil, true
		case "explicit_caller":
			return false, true
		case "catch_kwargs":
			return v.code.kwargs != nil, true
		case "catch_varargs":
			return v.code.varargs != nil, true
		}
	case *builtin:
		if v.kind == "type" && v.name == "dict" && name == "fromkeys" {
			return dictMethod(pyvalue.NewDict(), name)
		}
	case *dictView:
		if name == "mapping" {
			refuse("mapping proxy")
		}
	case bytesVal:
		if name == "decode" {
			return method(v, name, func(_ *state, a *args) any {
				a.bind(name, 0, "encoding", "errors")
				return string(v)
			}), true
		}
		refuse("bytes method")
	}
	return nil, false
}

func method(self any, name string, fn func(st *state, a *args) any) *builtin {
	return &builtin{name: name, kind: "builtin_function_or_method", self: self, fn: fn}
}

var (
	isDictAttr = wordSet("clear copy fromkeys get items keys pop popitem setdefault update values")
	// The immutable sandbox hides these methods of dicts and lists.
	isDictMutator = wordSet("clear pop popitem setdefault update")
	isListMutator = wordSet("append clear pop reverse insert sort extend remove")
)

func dictMethod(d *dict, name string) (any, bool) {
	if !isDictAttr[name] {
		return nil, false
	}
	if isDictMutator[name] {
		return unsafeAttr(d, name), true
	}
	return method(d, name, func(st *state, a *args) any {
		switch name {
		case "get":
			p := a.positional(name, 1, 2)
			st.hashable(p[0])
			if v, ok := d.Get(p[0]); ok {
				return v
			}
			if p[1] == absent {
				return nil
			}
			return p[1]
		case "copy":
			a.positional(name, 0, 0)
			st.charge(entryBytes * d.Len())
			st.work.Step(2 * stepCost * d.Len())
			return d.Copy()
		case "fromkeys":
			p := a.positional(name, 1, 2)
			if p[1] == absent {
				p = []any{p[0], nil}
			}
			out := pyvalue.NewDict()
			for _, k := range st.items(p[0]) {
				st.setItem(out, k, p[1])
			}
			return out
		}
		a.positional(name, 0, 0)
		return &dictView{d: d, kind: "dict_" + name}
	}), true
}

type sequenceFn func(st *state, self any, a *args) any

var tupleMethods = map[string]sequenceFn{
	"count": func(st *state, self any, a *args) any {
		p, n := a.positional("count", 1, 1), int64(0)
		for _, v := range st.items(self) {
			if st.equal(v, p[0]) {
				n++
			}
		}
		return n
	},
	"index": func(st *state, self any, a *args) any {
		p := a.positional("index", 1, 3)
		items := st.items(self)
		start, stop := 0, len(items)
		if p[1] != absent {
			start = clampIndex(p[1], len(items))
		}
		if p[2] != absent {
			stop = clampIndex(p[2], len(items))
		}
		for i := start; i < stop; i++ {
			if st.equal(items[i], p[0]) {
				return int64(i)
			}
		}
		valueError("value is not in the sequence")
		return nil
	},
}

var listMethods = map[string]sequenceFn{
	"count": tupleMethods["count"],
	"index": tupleMethods["index"],
	"copy": func(st *state, self any, a *args) any {
		a.positional("copy", 0, 0)
		return &list{Items: st.joinItems(self.(*list).Items, nil)}
	},
}

// clampIndex returns a start or stop argument, cut to 0..n.
func clampIndex(v any, n int) int {
	i, ok := index(v)
	if !ok {
		typeError("slice indices must be integers or have an __index__ method")
	}
	if i < 0 {
		i += int64(n)
	}
	return int(max(0, min(i, int64(n))))
}

func sequenceMethod(v any, name string, methods map[string]sequenceFn) (any, bool) {
	fn := methods[name]
	if fn == nil {
		return nil, false
	}
	return method(v, name, func(st *state, a *args) any { return fn(st, v, a) }), true
}

func intAttr(v any, name string) (any, bool) {
	i, _ := asInt(v)
	switch name {
	case "real", "numerator":
		return i, true
	case "imag":
		return int64(0), true
	case "denominator":
		return int64(1), true
	case "bit_length", "bit_count", "conjugate", "as_integer_ratio", "is_integer":
		return method(v, name, func(st *state, a *args) any {
			a.positional(name, 0, 0)
			st.chargeBig(i)
			b := pyvalue.AsBig(i)
			switch name {
			case "bit_length":
				return int64(b.BitLen())
			case "bit_count":
				return int64(strings.Count(b.Text(2), "1"))
			case "as_integer_ratio":
				return pyvalue.NewTuple(i, int64(1))
			case "is_integer":
				return true
			}
			return i
		}), true
	case "to_bytes", "from_bytes":
		fail(ErrUnsupported, "int.%s", name)
	}
	return nil, false
}

func floatAttr(f float64, name string) (any, bool) {
	switch name {
	case "real":
		return f, true
	case "imag":
		return 0.0, true
	case "is_integer", "conjugate", "as_integer_ratio":
		return method(f, name, func(_ *state, a *args) any {
			a.positional(name, 0, 0)
			switch name {
			case "is_integer":
				return f == math.Floor(f)
			case "as_integer_ratio":
				r := new(big.Rat).SetFloat64(f)
				if r == nil {
					valueError("cannot convert NaN or infinity to integer ratio")
				}
				return pyvalue.NewTuple(pyvalue.Int(new(big.Int).Set(r.Num())), pyvalue.Int(new(big.Int).Set(r.Denom())))
			}
			return f
		}), true
	case "hex", "fromhex":
		fail(ErrUnsupported, "float.%s", name)
	}
	return nil, false
}
