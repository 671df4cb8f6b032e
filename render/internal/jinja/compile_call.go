package jinja

import "warmroute/render/internal/pyvalue"

// args are the arguments of one call: positional arguments, then keywords in order.
type args struct {
	pos   []any
	names []string
	boxed []any // the names, if they are known as values
	vals  []any
}

// name returns the i-th keyword as a value.
func (a *args) name(i int) any {
	if a.boxed != nil {
		return a.boxed[i]
	}
	return a.names[i]
}

var noArgs = &args{}

func (c *compiler) args(n *callArgs, sc scope) func(st *state, f *frame) *args {
	if n.none() {
		return func(*state, *frame) *args { return noArgs }
	}
	pos, vals, names := c.exprs(n.args, sc), c.exprs(n.kwValues, sc), n.kwNames
	boxed := make([]any, len(names))
	for i, name := range names {
		boxed[i] = name
	}
	var dynArgs, dynKwargs evalFn
	if n.dynArgs != nil {
		dynArgs = c.expr(n.dynArgs, sc)
	}
	if n.dynKwargs != nil {
		dynKwargs = c.expr(n.dynKwargs, sc)
	}
	return func(st *state, f *frame) *args {
		a := &st.calls.carve(1)[0]
		a.names, a.boxed = names, boxed
		a.pos = evalAll(st, f, pos)
		a.vals = evalAll(st, f, vals)
		if dynArgs != nil {
			items := st.items(dynArgs(st, f))
			st.charge(16 * len(items))
			a.pos = append(a.pos, items...)
		}
		if dynKwargs != nil {
			st.spread(a, dynKwargs(st, f))
		}
		return a
	}
}

// spread adds the arguments of **v.
func (st *state) spread(a *args, v any) {
	d, ok := v.(*dict)
	if !ok {
		defined(v)
		typeError("argument after ** must be a mapping, not %s", pyvalue.TypeName(v))
	}
	a.names, a.boxed = append([]string(nil), a.names...), nil
	for k, val := range d.All() {
		st.work.Step(stepCost + len(a.names)) // it is compared with every name before it
		st.work.Memory(entryBytes)
		name, ok := pyvalue.Text(k)
		if !ok {
			typeError("keywords must be strings")
		}
		if a.keyword(name) >= 0 {
			typeError("got multiple values for keyword argument '%s'", name)
		}
		a.names = append(a.names, name)
		a.vals = append(a.vals, val)
	}
}

func (a *args) keyword(name string) int {
	for i, n := range a.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (a *args) noKeywords(fn string) {
	if len(a.names) > 0 {
		typeError("%s() takes no keyword arguments", fn)
	}
}

// absent stands for a missing argument.
var absent any = &missingType{}

var allAbsent = [8]any{absent, absent, absent, absent, absent, absent, absent, absent}

// bind returns the argument or absent for each parameter. The first required parameters
// must have one.
func (a *args) bind(fn string, required int, params ...string) []any {
	if len(a.pos) == 0 && len(a.names) == 0 && required == 0 {
		return allAbsent[:len(params)]
	}
	if len(a.pos) > len(params) {
		typeError("%s() takes at most %d arguments (%d given)", fn, len(params), len(a.pos))
	}
	out := make([]any, len(params))
	n := copy(out, a.pos)
	for i := n; i < len(out); i++ {
		out[i] = absent
	}
	for k, name := range a.names {
		i := 0
		for i < len(params) && params[i] != name {
			i++
		}
		if i == len(params) {
			typeError("%s() got an unexpected keyword argument '%s'", fn, name)
		}
		if out[i] != absent {
			typeError("%s() got multiple values for argument '%s'", fn, name)
		}
		out[i] = a.vals[k]
	}
	for i := 0; i < required; i++ {
		if out[i] == absent {
			typeError("%s() missing required argument: '%s'", fn, params[i])
		}
	}
	return out
}

// positional is bind for functions without keywords.
func (a *args) positional(fn string, required, most int) []any {
	a.noKeywords(fn)
	if len(a.pos) < required || len(a.pos) > most {
		typeError("%s() takes %d to %d arguments (%d given)", fn, required, most, len(a.pos))
	}
	if len(a.pos) == most {
		return a.pos
	}
	out := make([]any, most)
	n := copy(out, a.pos)
	for i := n; i < most; i++ {
		out[i] = absent
	}
	return out
}

func (c *compiler) callParts(e *callExpr, sc scope) func(st *state, f *frame) (any, *args) {
	fn, bind, line := c.expr(e.fn, sc), c.args(&e.callArgs, sc), e.line
	return func(st *state, f *frame) (any, *args) {
		v := fn(st, f)
		a := bind(st, f)
		st.at(line)
		return v, a
	}
}

// textCall compiles the call of a method that texts have, and makes no value of it if the object
// is a text. It returns nil for other calls.
func (c *compiler) textCall(e *callExpr, sc scope) evalFn {
	of, ok := e.fn.(*getattrExpr)
	if !ok || textMethods[of.attr] == nil {
		return nil
	}
	object, bind, line := c.expr(of.object, sc), c.args(&e.callArgs, sc), e.line
	name, method := of.attr, textMethods[of.attr]
	return func(st *state, f *frame) any {
		v := object(st, f)
		s, isText := v.(string)
		var fn any
		if isText {
			st.work.Read(len(name))
		} else {
			fn = st.getattr(v, name)
		}
		a := bind(st, f)
		st.at(line)
		if !isText {
			return st.call(fn, a)
		}
		st.step()
		return method(st, s, a)
	}
}

func (c *compiler) filter(e *filterExpr, sc scope) evalFn {
	run := c.filterCall(e, sc)
	operand := c.expr(e.operand, sc)
	return func(st *state, f *frame) any { return run(st, f, operand(st, f)) }
}

// filterText compiles the filters of a set block: the innermost filter gets the block's
// text.
func (c *compiler) filterText(e *filterExpr, sc scope) func(st *state, f *frame, text string) any {
	run := c.filterCall(e, sc)
	if e.operand == nil {
		return func(st *state, f *frame, text string) any { return run(st, f, text) }
	}
	inner := c.filterText(e.operand.(*filterExpr), sc)
	return func(st *state, f *frame, text string) any { return run(st, f, inner(st, f, text)) }
}

func (c *compiler) filterCall(e *filterExpr, sc scope) func(st *state, f *frame, v any) any {
	fn := filters[e.name]
	if fn == nil {
		if !sc.soft {
			c.fail(e.line, "No filter named '%s'.", e.name)
		}
		fn = func(*state, any, *args) any {
			fail(ErrRuntime, "No filter named '%s' found.", e.name)
			return nil
		}
	}
	bind := c.args(&e.callArgs, sc)
	return func(st *state, f *frame, v any) any {
		a := bind(st, f)
		st.step()
		return fn(st, v, a)
	}
}

// test compiles a test.
func (c *compiler) test(e *testExpr, sc scope) condFn {
	if is := typeTests[e.name]; is != nil && e.callArgs.none() {
		operand := c.expr(e.operand, sc)
		return func(st *state, f *frame) bool { return is(operand(st, f)) }
	}
	fn := tests[e.name]
	if fn == nil {
		if !sc.soft {
			c.fail(e.line, "No test named '%s'.", e.name)
		}
		fn = func(*state, any, *args) any {
			fail(ErrRuntime, "No test named '%s' found.", e.name)
			return nil
		}
	}
	operand, bind := c.expr(e.operand, sc), c.args(&e.callArgs, sc)
	return func(st *state, f *frame) bool {
		v := operand(st, f)
		st.step()
		return truth(fn(st, v, bind(st, f)))
	}
}
