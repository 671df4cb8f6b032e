package jinja

import (
	"slices"

	"warmroute/render/internal/pyvalue"
)

// macroCode is a compiled macro, call block or generation block.
type macroCode struct {
	name     string
	named    bool
	fn       *function
	args     []string
	setArgs  []setFn
	getArgs  []evalFn
	defaults []evalFn // by argument; nil: none
	caller   setFn
	kwargs   setFn
	varargs  setFn
	enter    func(*state, *frame)
	body     execFn
}

// macro is a macro value: its code, and the frame around its definition.
type macro struct {
	code *macroCode
	up   *frame
}

func (m *macro) PyType() string { return "Macro" }

func (m *macro) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	if !m.code.named {
		return append(dst, "<Macro anonymous>"...)
	}
	dst = append(dst, "<Macro "...)
	dst = pyvalue.AppendQuoted(dst, m.code.name)
	return append(dst, '>')
}

func (c *compiler) macroCode(n *macroNode, sc scope, named bool) *macroCode {
	m := &macroCode{name: n.name, named: named, fn: newFunction(sc.sym.fn)}
	in := sc.inner(m.fn)
	analyze := func() {
		for _, a := range n.args {
			in.sym.visit(a)
		}
		for _, d := range n.defaults {
			in.sym.visit(d)
		}
		in.sym.analyze(n.body...)
	}
	analyze()
	seen := map[string]bool{}
	for _, a := range n.args {
		if seen[a.name] {
			c.fail(n.line, "duplicate argument '%s' in function definition", a.name)
		}
		seen[a.name] = true
		m.args = append(m.args, a.name)
		m.setArgs = append(m.setArgs, c.storeVar(in.sym, a.name))
	}
	c.macroSpecials(m, n, in, seen)
	analyze()
	for _, a := range n.args {
		m.getArgs = append(m.getArgs, c.rawVar(m.fn, in.sym, a.name))
	}
	m.enter = c.enter(in.sym)
	pending := map[variable]bool{}
	for v, l := range in.sym.loads {
		if l.kind == loadParam {
			pending[v] = true
		}
	}
	c.pending = append(c.pending, pending)
	first := len(n.args) - len(n.defaults)
	for i, a := range n.args {
		var d evalFn
		if i >= first {
			d = c.expr(n.defaults[i-first], in)
		}
		m.defaults = append(m.defaults, d)
		_, v, _ := in.sym.find(a.name)
		delete(pending, v)
	}
	c.pending = c.pending[:len(c.pending)-1]
	m.body = c.body(n.body, in)
	return m
}

// macroSpecials declares caller, kwargs and varargs if the body uses them.
func (c *compiler) macroSpecials(m *macroCode, n *macroNode, in scope, args map[string]bool) {
	und := findUndeclared(n.body, "caller", "kwargs", "varargs")
	if args["caller"] {
		refuse("caller")
	}
	if und["caller"] {
		in.sym.param("caller")
		m.caller = c.storeVar(in.sym, "caller")
	}
	if und["kwargs"] && !args["kwargs"] {
		in.sym.param("kwargs")
		m.kwargs = c.storeVar(in.sym, "kwargs")
	}
	if und["varargs"] && !args["varargs"] {
		in.sym.param("varargs")
		m.varargs = c.storeVar(in.sym, "varargs")
	}
}

func (c *compiler) macroStmt(n *macroNode, sc scope) execFn {
	code := c.macroCode(n, sc, true)
	set := c.storeVar(sc.sym, n.name)
	return func(st *state, f *frame) jump {
		st.step()
		m := &macro{code: code, up: f}
		set(st, f, m)
		return jumpNone
	}
}

// macroFrames is the number of Python frames of a macro call: the environment's call,
// the context's call, Macro.__call__, Macro._invoke and the function.
const macroFrames = 5

// call binds the arguments as Macro.__call__ does, and writes the macro's text to the
// output.
func (m *macro) call(st *state, a *args) {
	code := m.code
	st.enterCall(macroFrames)
	f := st.newFrame(code.fn, m.up)
	n := len(code.args)
	used := min(len(a.pos), n)
	var usedKw uint64 // bit i: a parameter took keyword i
	for i := 0; i < used; i++ {
		code.setArgs[i](st, f, a.pos[i])
	}
	for i := used; i < n; i++ {
		var v any = missing
		if k := a.keyword(code.args[i]); k >= 0 {
			v = a.vals[k]
			usedKw |= 1 << (k & 63)
		}
		code.setArgs[i](st, f, v)
	}
	m.extras(st, f, a, usedKw)
	code.enter(st, f)
	for i := range code.args {
		if code.getArgs[i](st, f) != missing {
			continue
		}
		if d := code.defaults[i]; d != nil {
			code.setArgs[i](st, f, d(st, f))
		} else {
			code.setArgs[i](st, f, &undefined{hint: "parameter '" + code.args[i] + "' was not provided", name: code.args[i]})
		}
	}
	code.body(st, f)
	st.freeFrame(code.fn, f)
	st.leaveCall(macroFrames)
}

// extras passes the caller, and surplus arguments to varargs and kwargs, or refuses them.
func (m *macro) extras(st *state, f *frame, a *args, usedKw uint64) {
	code := m.code
	if len(a.names) > 64 {
		typeError("more than 64 keyword arguments")
	}
	if code.caller != nil {
		var v any
		if k := a.keyword("caller"); k >= 0 {
			v = a.vals[k]
			usedKw |= 1 << k
		}
		if v == nil {
			v = &undefined{hint: "No caller defined", name: "caller"}
		}
		code.caller(st, f, v)
	}
	if code.kwargs != nil {
		d := pyvalue.NewDict()
		for k, name := range a.names {
			if usedKw&(1<<k) == 0 {
				d.Set(name, a.vals[k])
			}
		}
		code.kwargs(st, f, d)
	} else {
		for k, name := range a.names {
			if usedKw&(1<<k) == 0 {
				typeError("macro '%s' takes no keyword argument '%s'", code.name, name)
			}
		}
	}
	if rest := len(a.pos) - len(code.args); code.varargs != nil {
		var items []any
		if rest > 0 {
			items = append(items, a.pos[len(code.args):]...)
		}
		code.varargs(st, f, pyvalue.NewTuple(items...))
	} else if rest > 0 {
		typeError("macro '%s' takes not more than %d argument(s)", code.name, len(code.args))
	}
}

// generation compiles {% generation %}, which renders as its body.
func (c *compiler) generation(n *generationNode, sc scope) execFn {
	code := c.macroCode(n.macro, sc, false)
	return func(st *state, f *frame) jump {
		st.at(n.line)
		st.enterCall(3)
		(&macro{code: code, up: f}).call(st, &args{})
		st.leaveCall(3)
		return jumpNone
	}
}

// callBlock compiles {% call %}: the macro of its body is the call's last keyword. What is
// called returns a text.
func (c *compiler) callBlock(n *callNode, sc scope) execFn {
	call := *n.call
	if slices.Contains(call.kwNames, "caller") {
		c.fail(n.line, "keyword argument repeated: caller")
	}
	call.kwNames = append(slices.Clip(call.kwNames), "caller")
	call.kwValues = append(slices.Clip(call.kwValues), &blockExpr{macro: n.macro})
	parts := c.callParts(&call, sc)
	return func(st *state, f *frame) jump {
		st.at(n.line)
		fn, a := parts(st, f)
		v := st.call(fn, a)
		text, ok := pyvalue.Text(v)
		if !ok {
			typeError("expected str instance, %s found", pyvalue.TypeName(v))
		}
		st.write(text)
		return jumpNone
	}
}
