package jinja

import (
	"strings"

	"warmroute/render/internal/pyvalue"
)

// expr compiles an expression, to its value if it is constant.
func (c *compiler) expr(e expr, sc scope) evalFn {
	if v, ok := c.fold(e, sc); ok && safeRepr(v) {
		return constantFn(v)
	}
	return c.exprOf(e, sc)
}

func (c *compiler) exprOf(e expr, sc scope) evalFn {
	c.work.Step(2 * stepCost)
	c.work.Memory(2 * stepBytes)
	switch e := e.(type) {
	case *constExpr:
		v := e.value
		return func(*state, *frame) any { return v }
	case *dataExpr:
		v := any(e.text)
		return func(*state, *frame) any { return v }
	case *nameExpr:
		return c.name(e, sc)
	case *getattrExpr:
		return c.getattr(e, sc)
	case *getitemExpr:
		return c.getitem(e, sc)
	case *binExpr:
		return c.binary(e, sc)
	case *unaryExpr:
		return c.unary(e, sc)
	case *compareExpr:
		holds := c.comparison(e, sc)
		return func(st *state, f *frame) any { return holds(st, f) }
	case *condExpr:
		return c.condExpr(e, sc)
	case *concatExpr:
		parts := c.exprs(e.nodes, sc)
		return func(st *state, f *frame) any {
			s, _ := st.capture(func() jump {
				st.concat(f, parts)
				return jumpNone
			})
			return s
		}
	case *filterExpr:
		return c.filter(e, sc)
	case *testExpr:
		holds := c.test(e, sc)
		return func(st *state, f *frame) any { return holds(st, f) }
	case *callExpr:
		if call := c.textCall(e, sc); call != nil {
			return call
		}
		call := c.callParts(e, sc)
		return func(st *state, f *frame) any {
			fn, a := call(st, f)
			return st.call(fn, a)
		}
	case *blockExpr:
		code := c.macroCode(e.macro, sc, false)
		return func(st *state, f *frame) any {
			st.step()
			return &macro{code: code, up: f}
		}
	}
	return c.container(e, sc)
}

func (c *compiler) container(e expr, sc scope) evalFn {
	switch e := e.(type) {
	case *tupleExpr:
		items := c.exprs(e.items, sc)
		return func(st *state, f *frame) any { return &tuple{Items: evalAll(st, f, items)} }
	case *listExpr:
		items := c.exprs(e.items, sc)
		return func(st *state, f *frame) any { return &list{Items: evalAll(st, f, items)} }
	case *dictExpr:
		keys, values := c.exprs(e.keys, sc), c.exprs(e.values, sc)
		return func(st *state, f *frame) any {
			d := pyvalue.NewDict()
			for i := range keys {
				k := keys[i](st, f)
				st.setItem(d, k, values[i](st, f))
			}
			return d
		}
	}
	fail(ErrSyntax, "invalid expression")
	return nil
}

func (c *compiler) exprs(es []expr, sc scope) []evalFn {
	out := make([]evalFn, len(es))
	for i, e := range es {
		out[i] = c.expr(e, sc)
	}
	return out
}

func evalAll(st *state, f *frame, fns []evalFn) []any {
	if len(fns) == 0 {
		return nil
	}
	st.work.Make(16 * len(fns))
	out := st.values.carve(len(fns))
	for i, fn := range fns {
		out[i] = fn(st, f)
	}
	return out
}

// concat writes str() of every part to the output. It computes all parts first, as
// Python does.
func (st *state) concat(f *frame, parts []evalFn) {
	var few [8]any
	vals := few[:0]
	for _, p := range parts {
		vals = append(vals, p(st, f))
	}
	for _, v := range vals {
		st.writeValue(v)
	}
}

func (c *compiler) name(e *nameExpr, sc scope) evalFn {
	slot, hops := locate(sc.sym.fn, sc.sym, e.name)
	get := c.rawVar(sc.sym.fn, sc.sym, e.name)
	_, v, _ := sc.sym.find(e.name)
	if l, ok := sc.sym.findLoad(v); ok && l.kind == loadParam {
		if n := len(c.pending); n == 0 || !c.pending[n-1][v] {
			return get // it is always set: Jinja does not check either
		}
	}
	und := undefinedName(e.name)
	if hops == 0 {
		return func(_ *state, f *frame) any {
			if v := f.vars[slot]; v != missing {
				return v
			}
			return und
		}
	}
	return func(st *state, f *frame) any {
		if v := get(st, f); v != missing {
			return v
		}
		return und
	}
}

// cond compiles a condition.
func (c *compiler) cond(e expr, sc scope) condFn {
	switch e := e.(type) {
	case *unaryExpr:
		if e.op == "not" {
			t := c.cond(e.operand, sc)
			return func(st *state, f *frame) bool { return !t(st, f) }
		}
	case *binExpr:
		if e.op == "and" || e.op == "or" {
			l, r, isAnd := c.cond(e.left, sc), c.cond(e.right, sc), e.op == "and"
			return func(st *state, f *frame) bool {
				if l(st, f) != isAnd {
					return !isAnd
				}
				return r(st, f)
			}
		}
	case *compareExpr:
		if _, constant := c.fold(e, sc); !constant {
			return c.comparison(e, sc)
		}
	case *testExpr:
		if _, constant := c.fold(e, sc); !constant {
			return c.test(e, sc)
		}
	}
	v := c.expr(e, sc)
	return func(st *state, f *frame) bool { return truth(v(st, f)) }
}

func truth(v any) bool {
	if b, ok := v.(bool); ok {
		return b
	}
	return pyvalue.Truth(v)
}

// emit compiles the printing of an expression. If the parts of a string can be written
// one by one, it does not build the string.
func (c *compiler) emit(e expr, sc scope) execFn {
	if print := c.constantText(e, sc); print != nil {
		return print
	}
	switch e := e.(type) {
	case *binExpr:
		if e.op == "+" {
			operands := c.exprs(sumOperands(e), sc)
			return func(st *state, f *frame) jump {
				st.emitSum(f, operands)
				return jumpNone
			}
		}
	case *concatExpr:
		parts := c.exprs(e.nodes, sc)
		return func(st *state, f *frame) jump {
			st.concat(f, parts)
			return jumpNone
		}
	case *callExpr:
		if text := c.textCall(e, sc); text != nil {
			return func(st *state, f *frame) jump {
				st.writeValue(text(st, f))
				return jumpNone
			}
		}
		call := c.callParts(e, sc)
		return func(st *state, f *frame) jump {
			fn, a := call(st, f)
			st.writeCall(fn, a)
			return jumpNone
		}
	case *condExpr:
		soft := sc.softened()
		test, then := c.cond(e.test, soft), c.emit(e.then, soft)
		orElse := func(*state, *frame) jump { return jumpNone } // undefined prints nothing
		if e.orElse != nil {
			orElse = c.emit(e.orElse, soft)
		}
		return func(st *state, f *frame) jump {
			if test(st, f) {
				return then(st, f)
			}
			return orElse(st, f)
		}
	}
	v := c.expr(e, sc)
	return func(st *state, f *frame) jump {
		st.writeValue(v(st, f))
		return jumpNone
	}
}

// sumOperands flattens a + b + c, which nests to the left.
func sumOperands(e expr) []expr {
	b, ok := e.(*binExpr)
	if !ok || b.op != "+" {
		return []expr{e}
	}
	return append(sumOperands(b.left), b.right)
}

// sum returns a + b + c. It joins strings once instead of pairwise.
func (st *state) sum(f *frame, operands []evalFn) any {
	acc := operands[0](st, f)
	for i := 1; i < len(operands); i++ {
		s, ok := acc.(string)
		if !ok {
			acc = st.add(acc, operands[i](st, f))
			continue
		}
		var few [8]string
		parts, size := append(few[:0], s), len(s)
		var odd any
		isOdd := false
		for ; i < len(operands); i++ {
			v := operands[i](st, f)
			t, ok := v.(string)
			if !ok {
				odd, isOdd = v, true
				break
			}
			parts = append(parts, t)
			size += len(t)
		}
		acc = st.joinStrings(parts, size)
		if isOdd {
			acc = st.add(acc, odd)
		}
	}
	return acc
}

// emitSum writes a + b + c if all are strings, else str() of the sum. It writes strings
// as they come, and removes them at the first operand that is not a string.
func (st *state) emitSum(f *frame, operands []evalFn) {
	start := len(st.out)
	for i, o := range operands {
		v := o(st, f)
		s, ok := v.(string)
		if !ok {
			if i > 0 {
				st.charge(len(st.out) - start)
				left := string(st.out[start:])
				st.out = st.out[:start]
				v = st.add(left, v)
			}
			for _, o := range operands[i+1:] {
				v = st.add(v, o(st, f))
			}
			st.writeValue(v)
			return
		}
		st.write(s)
	}
}

func (st *state) joinStrings(parts []string, size int) string {
	if len(parts) == 1 {
		return parts[0]
	}
	st.charge(size)
	b := make([]byte, 0, size)
	for _, p := range parts {
		b = append(b, p...)
	}
	return bytesString(b)
}

func (c *compiler) binary(e *binExpr, sc scope) evalFn {
	if e.op == "+" {
		operands := c.exprs(sumOperands(e), sc)
		return func(st *state, f *frame) any { return st.sum(f, operands) }
	}
	left, right := c.expr(e.left, sc), c.expr(e.right, sc)
	switch e.op {
	case "and":
		return func(st *state, f *frame) any {
			if v := left(st, f); !truth(v) {
				return v
			}
			return right(st, f)
		}
	case "or":
		return func(st *state, f *frame) any {
			if v := left(st, f); truth(v) {
				return v
			}
			return right(st, f)
		}
	}
	op := binaryOps[e.op]
	return func(st *state, f *frame) any {
		l := left(st, f)
		return op(st, l, right(st, f))
	}
}

func (c *compiler) unary(e *unaryExpr, sc scope) evalFn {
	if e.op == "not" {
		t := c.cond(e.operand, sc)
		return func(st *state, f *frame) any { return !t(st, f) }
	}
	v, neg := c.expr(e.operand, sc), e.op == "-"
	return func(st *state, f *frame) any { return st.signed(v(st, f), neg) }
}

func (c *compiler) comparison(e *compareExpr, sc scope) condFn {
	first, rest := c.expr(e.first, sc), c.exprs(e.rest, sc)
	if word, ok := constantString(e.rest[0]); ok && len(rest) == 1 && (e.ops[0] == "==" || e.ops[0] == "!=") {
		equal := e.ops[0] == "=="
		return func(st *state, f *frame) bool {
			v := first(st, f)
			if s, ok := v.(string); ok {
				return s == word == equal
			}
			return st.equal(v, word) == equal
		}
	}
	ops := make([]func(st *state, a, b any) bool, len(e.ops))
	for i, op := range e.ops {
		ops[i] = compareOps[op]
	}
	if len(ops) == 1 {
		op, second := ops[0], rest[0]
		return func(st *state, f *frame) bool {
			a := first(st, f)
			return op(st, a, second(st, f))
		}
	}
	return func(st *state, f *frame) bool {
		a := first(st, f)
		for i, op := range ops {
			b := rest[i](st, f)
			if !op(st, a, b) {
				return false
			}
			a = b
		}
		return true
	}
}

func (c *compiler) condExpr(e *condExpr, sc scope) evalFn {
	sc = sc.softened()
	test, then := c.cond(e.test, sc), c.expr(e.then, sc)
	und := undefinedHint("the inline if-expression evaluated to false and no else section was defined.")
	orElse := func(*state, *frame) any { return und }
	if e.orElse != nil {
		orElse = c.expr(e.orElse, sc)
	}
	return func(st *state, f *frame) any {
		if test(st, f) {
			return then(st, f)
		}
		return orElse(st, f)
	}
}

func constantString(e expr) (s string, ok bool) {
	if k, isConst := e.(*constExpr); isConst {
		s, ok = k.value.(string)
	}
	return s, ok
}

// getattr compiles v.name. The closure first tries the attributes that templates read
// most: an item of a dict, unless an attribute of dicts hides it, and the attributes of
// a loop.
func (c *compiler) getattr(e *getattrExpr, sc scope) evalFn {
	object, name := c.expr(e.object, sc), e.attr
	boxed := any(name)
	isItem := !isDictAttr[name] && !strings.HasPrefix(name, "__")
	return func(st *state, f *frame) any {
		v := object(st, f)
		switch o := v.(type) {
		case *dict:
			if isItem {
				if x, ok := o.GetString(name); ok {
					return x
				}
				return st.undefinedMember(v, boxed)
			}
		case *loopContext:
			if x, ok := o.attr(name); ok {
				return x
			}
		}
		return st.getattr(v, name)
	}
}

func (c *compiler) getitem(e *getitemExpr, sc scope) evalFn {
	object := c.expr(e.object, sc)
	if s, ok := e.arg.(*sliceExpr); ok {
		var parts [3]evalFn
		for i, p := range []expr{s.start, s.stop, s.step} {
			if p != nil {
				parts[i] = c.expr(p, sc)
			}
		}
		folding := c.folding
		return func(st *state, f *frame) any {
			v := object(st, f)
			var bounds [3]any
			for i, p := range parts {
				if p != nil {
					bounds[i] = p(st, f)
				}
			}
			if folding {
				defined(v)
			}
			if folding && !canSlice(v, bounds) {
				return undefinedHint("no such slice")
			}
			return st.slice(v, bounds)
		}
	}
	if key, ok := constantString(e.arg); ok {
		return func(st *state, f *frame) any {
			v := object(st, f)
			if d, ok := v.(*dict); ok {
				if x, ok := d.GetString(key); ok {
					return x
				}
			}
			return st.getitem(v, key)
		}
	}
	arg := c.expr(e.arg, sc)
	return func(st *state, f *frame) any {
		v := object(st, f)
		return st.getitem(v, arg(st, f))
	}
}
