package jinja

// output compiles text and print statements.
func (c *compiler) output(n *outputNode, sc scope) execFn {
	var list []execFn
	for _, e := range n.nodes {
		if d, ok := e.(*dataExpr); ok {
			text := d.text
			list = append(list, func(st *state, _ *frame) jump {
				st.write(text)
				return jumpNone
			})
			continue
		}
		list = append(list, c.emit(e, sc))
	}
	line := n.line
	if len(list) == 1 {
		only := list[0]
		return func(st *state, f *frame) jump {
			st.at(line)
			return only(st, f)
		}
	}
	return func(st *state, f *frame) jump {
		st.at(line)
		for _, e := range list {
			e(st, f)
		}
		return jumpNone
	}
}

func (c *compiler) ifStmt(n *ifNode, sc scope) execFn {
	sc = sc.softened()
	test, body, line := c.cond(n.test, sc), c.body(n.body, sc), n.line
	type branch struct {
		test condFn
		body execFn
	}
	var elifs []branch
	for _, e := range n.elifs {
		elifs = append(elifs, branch{c.cond(e.test, sc), c.body(e.body, sc)})
	}
	orElse := c.body(n.orElse, sc)
	return func(st *state, f *frame) jump {
		st.at(line)
		if test(st, f) {
			return body(st, f)
		}
		for i := range elifs {
			if elifs[i].test(st, f) {
				return elifs[i].body(st, f)
			}
		}
		return orElse(st, f)
	}
}

func (c *compiler) assign(n *assignNode, sc scope) execFn {
	var checks []evalFn
	seen := map[string]bool{}
	check := func(e node) bool {
		if r, ok := e.(*nsRefExpr); ok && !seen[r.name] {
			seen[r.name] = true
			checks = append(checks, c.rawVar(sc.sym.fn, sc.sym, r.name))
		}
		return true
	}
	check(n.target)
	walk(n.target, check)
	value, set, line := c.expr(n.value, sc), c.target(n.target, sc), n.line
	return func(st *state, f *frame) jump {
		st.at(line)
		for _, ref := range checks {
			if _, ok := ref(st, f).(*namespace); !ok {
				fail(ErrRuntime, "cannot assign attribute on non-namespace object")
			}
		}
		set(st, f, value(st, f))
		return jumpNone
	}
}

// target compiles an assignment target.
func (c *compiler) target(e expr, sc scope) setFn {
	switch e := e.(type) {
	case *nameExpr:
		return c.storeVar(sc.sym, e.name)
	case *nsRefExpr:
		ref, attr := c.rawVar(sc.sym.fn, sc.sym, e.name), e.attr
		boxed := any(attr)
		return func(st *state, f *frame, v any) {
			ns, ok := ref(st, f).(*namespace)
			if !ok {
				typeError("object does not support item assignment")
			}
			st.setAttr(ns, attr, boxed, v)
		}
	case *tupleExpr:
		var sets []setFn
		for _, it := range e.items {
			sets = append(sets, c.target(it, sc))
		}
		return func(st *state, f *frame, v any) {
			items := st.unpack(v, len(sets))
			for i, set := range sets {
				set(st, f, items[i])
			}
		}
	}
	fail(ErrInternal, "unknown target %T", e)
	return nil
}

// unpack returns the n items of v, as Python's sequence unpacking does.
func (st *state) unpack(v any, n int) []any {
	switch v := v.(type) {
	case *tuple:
		if len(v.Items) == n {
			return v.Items
		}
	case *list:
		if len(v.Items) == n {
			return v.Items
		}
	}
	var items []any
	it := st.iterate(v)
	for len(items) <= n {
		x, ok := it.next()
		if !ok {
			break
		}
		st.step()
		items = append(items, x)
	}
	if len(items) != n {
		valueError("cannot unpack into %d values", n)
	}
	return items
}

// capture runs fn, and returns fn's output instead of keeping it.
func (st *state) capture(fn func() jump) (string, jump) {
	start := len(st.out)
	j := fn()
	st.charge(len(st.out) - start)
	s := string(st.out[start:])
	st.out = st.out[:start]
	return s, j
}

func (c *compiler) assignBlock(n *assignBlockNode, sc scope) execFn {
	in := sc.inner(sc.sym.fn)
	in.sym.analyze(n.body...)
	enter, leave := c.enter(in.sym), c.leave(in.sym)
	body := c.body(n.body, in)
	var filter func(st *state, f *frame, text string) any
	if n.filter != nil {
		filter = c.filterText(n.filter, in)
	}
	set := c.target(n.target, sc)
	return func(st *state, f *frame) jump {
		st.at(n.line)
		enter(st, f)
		text, j := st.capture(func() jump { return body(st, f) })
		if j != jumpNone {
			return j
		}
		var v any = text
		if filter != nil {
			v = filter(st, f, text)
		}
		set(st, f, v)
		leave(f)
		return jumpNone
	}
}

func (c *compiler) with(n *withNode, sc scope) execFn {
	in := sc.inner(sc.sym.fn)
	for _, t := range n.targets {
		in.sym.visit(t)
	}
	in.sym.analyze(n.body...)
	enter, leave := c.enter(in.sym), c.leave(in.sym)
	var values []evalFn
	var sets []setFn
	for i := range n.targets {
		values = append(values, c.expr(n.values[i], sc))
		sets = append(sets, c.target(n.targets[i], in))
	}
	body := c.body(n.body, in)
	return func(st *state, f *frame) jump {
		st.at(n.line)
		enter(st, f)
		for i := range sets {
			sets[i](st, f, values[i](st, f))
		}
		j := body(st, f)
		leave(f)
		return j
	}
}
