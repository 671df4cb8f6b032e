package jinja

import (
	"warmroute/internal/pyvalue"
)

// A template is compiled to closures. evalFn computes an expression, execFn
// runs a statement and appends its text to the state's output.
type (
	evalFn func(st *state, f *frame) any
	execFn func(st *state, f *frame) jump
	jump   uint8
)

const (
	jumpNone jump = iota
	jumpBreak
	jumpContinue
)

// frame holds the variables of one running function.
type frame struct {
	vars []any
	up   *frame
}

// scope is the compile-time view of a place in the template (Jinja's Frame).
type scope struct {
	sym      *symbols
	toplevel bool // root level, ifs included: assignments are exported
	soft     bool // in an if: unknown filters fail only when called
	inLoop   bool // break and continue have a loop in this function
	loops    int  // for blocks around, in this function
}

func (s scope) inner(fn *function) scope {
	in := scope{sym: newSymbols(s.sym, fn), inLoop: s.inLoop, loops: s.loops}
	if fn != s.sym.fn {
		in.inLoop, in.loops = false, 0
	}
	return in
}

func (s scope) softened() scope {
	s.soft = true
	s.sym = s.sym.copy()
	return s
}

// maxBlocks is CPython's limit on statically nested loops in one function.
const maxBlocks = 20

// compiler turns the tree into closures.
type compiler struct {
	blocks     map[string]*block
	undeclared map[string]bool     // names some scope looks up in the context
	folding    bool                // computing a constant
	pending    []map[variable]bool // macro arguments without a value yet
}

// block is a {% block %}: a function of its own.
type block struct {
	fn   *function
	body execFn
}

func (c *compiler) fail(line int, format string, args ...any) {
	(&parser{}).fail(line, format, args...)
}

func (c *compiler) template(t *templateNode) (*function, execFn) {
	c.findBlocks(t)
	fn := newFunction(nil)
	sc := scope{sym: newSymbols(nil, fn), toplevel: true}
	needSelf := findUndeclared(t.body, "self")["self"]
	if needSelf {
		sc.sym.param("self")
	}
	sc.sym.analyze(t.body...)
	enter := c.enter(sc.sym)
	var self setFn
	if needSelf {
		self = c.storeVar(sc.sym, "self")
	}
	body := c.body(t.body, sc)
	c.compileBlocks(t)
	return fn, func(st *state, f *frame) jump {
		if self != nil {
			self(st, f, &templateRef{})
		}
		enter(st, f)
		return body(st, f)
	}
}

func (c *compiler) findBlocks(t *templateNode) {
	c.blocks = map[string]*block{}
	walk(t, func(n node) bool {
		if b, ok := n.(*blockNode); ok {
			if c.blocks[b.name] != nil {
				c.fail(b.line, "block '%s' defined twice", b.name)
			}
			c.blocks[b.name] = &block{}
		}
		return true
	})
}

func (c *compiler) compileBlocks(t *templateNode) {
	walk(t, func(n node) bool {
		if b, ok := n.(*blockNode); ok {
			c.compileBlock(b)
		}
		return true
	})
}

func (c *compiler) compileBlock(b *blockNode) {
	fn := newFunction(nil)
	sc := scope{sym: newSymbols(nil, fn)}
	und := findUndeclared(b.body, "self", "super")
	var pre []execFn
	for _, name := range []string{"self", "super"} {
		if !und[name] {
			continue
		}
		sc.sym.param(name)
		set := c.storeVar(sc.sym, name)
		isSelf := name == "self"
		pre = append(pre, func(st *state, f *frame) jump {
			if isSelf {
				set(st, f, &templateRef{})
			} else {
				set(st, f, undefinedHint("there is no parent block called '"+b.name+"'."))
			}
			return jumpNone
		})
	}
	sc.sym.analyze(b.body...)
	enter := c.enter(sc.sym)
	body := c.body(b.body, sc)
	*c.blocks[b.name] = block{fn: fn, body: func(st *state, f *frame) jump {
		for _, p := range pre {
			p(st, f)
		}
		enter(st, f)
		return body(st, f)
	}}
}

// enter compiles what happens when a scope is entered: its loads.
func (c *compiler) enter(s *symbols) func(st *state, f *frame) {
	type action struct {
		slot int
		kind loadKind
		name string
		from evalFn
	}
	var actions []action
	for _, v := range s.order {
		l := s.loads[v]
		if l.kind == loadParam {
			continue
		}
		a := action{slot: s.fn.slot(v), kind: l.kind, name: l.source}
		switch l.kind {
		case loadAlias:
			a.from = c.rawVar(s.fn, l.from, l.source)
		case loadResolve:
			c.undeclared[l.source] = true
		}
		actions = append(actions, a)
	}
	if len(actions) == 0 {
		return func(*state, *frame) {}
	}
	return func(st *state, f *frame) {
		for i := range actions {
			switch a := &actions[i]; a.kind {
			case loadResolve:
				f.vars[a.slot] = st.resolve(a.name)
			case loadAlias:
				f.vars[a.slot] = a.from(st, f)
			default:
				f.vars[a.slot] = missing
			}
		}
	}
}

// leave compiles what happens when a scope of the same function is left: its
// variables are gone.
func (c *compiler) leave(s *symbols) func(f *frame) {
	var slots []int
	for _, v := range s.order {
		slots = append(slots, s.fn.slot(v))
	}
	return func(f *frame) {
		for _, i := range slots {
			f.vars[i] = missing
		}
	}
}

// rawVar reads a variable of scope s (known there) from code in fn, without
// turning missing into undefined.
func (c *compiler) rawVar(fn *function, s *symbols, name string) evalFn {
	owner, v, ok := s.find(name)
	if !ok {
		fail(ErrInternal, "unknown name %s", name)
	}
	slot := owner.fn.slot(v)
	hops := 0
	for g := fn; g != owner.fn; g = g.up {
		hops++
	}
	switch hops {
	case 0:
		return func(_ *state, f *frame) any { return f.vars[slot] }
	case 1:
		return func(_ *state, f *frame) any { return f.up.vars[slot] }
	}
	return func(_ *state, f *frame) any {
		for range hops {
			f = f.up
		}
		return f.vars[slot]
	}
}

type setFn func(st *state, f *frame, v any)

// storeVar assigns a variable; Jinja's assignments always go to a scope of the
// running function.
func (c *compiler) storeVar(s *symbols, name string) setFn {
	owner, v, ok := s.find(name)
	if !ok {
		fail(ErrInternal, "unknown name %s", name)
	}
	slot := owner.fn.slot(v)
	return func(_ *state, f *frame, v any) { f.vars[slot] = v }
}

func (c *compiler) body(nodes []node, sc scope) execFn {
	var list []execFn
	for _, n := range nodes {
		list = append(list, c.stmt(n, sc))
	}
	if len(list) == 1 {
		return list[0]
	}
	return func(st *state, f *frame) jump {
		for _, s := range list {
			if j := s(st, f); j != jumpNone {
				return j
			}
		}
		return jumpNone
	}
}

func (c *compiler) stmt(n node, sc scope) execFn {
	switch n := n.(type) {
	case *outputNode:
		return c.output(n, sc)
	case *ifNode:
		return c.ifStmt(n, sc)
	case *forNode:
		return c.forStmt(n, sc)
	case *assignNode:
		return c.assign(n, sc)
	case *assignBlockNode:
		return c.assignBlock(n, sc)
	case *macroNode:
		return c.macroStmt(n, sc)
	case *callBlockNode:
		return c.callBlock(n, sc)
	case *filterBlockNode:
		return c.filterBlock(n, sc)
	case *withNode:
		return c.with(n, sc)
	case *scopeNode:
		in := sc.inner(sc.sym.fn)
		in.sym.analyze(n.body...)
		return c.scoped(in, c.body(n.body, in))
	case *jumpNode:
		if !sc.inLoop {
			c.fail(n.line, "'break' or 'continue' outside loop")
		}
		j := jumpContinue
		if n.isBreak {
			j = jumpBreak
		}
		return func(*state, *frame) jump { return j }
	case *blockNode:
		return c.blockStmt(n, sc)
	case *loadNode:
		value := c.expr(n.template, sc)
		return func(st *state, f *frame) jump {
			st.at(n.line)
			value(st, f)
			typeError("no loader for this environment specified")
			return jumpNone
		}
	}
	fail(ErrInternal, "unknown statement %T", n)
	return nil
}

// scoped wraps a body in the entering and leaving of its scope.
func (c *compiler) scoped(in scope, body execFn) execFn {
	enter, leave := c.enter(in.sym), c.leave(in.sym)
	return func(st *state, f *frame) jump {
		enter(st, f)
		j := body(st, f)
		leave(f)
		return j
	}
}

// output compiles text and prints. Neighbouring text is joined.
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
		test func(st *state, f *frame) bool
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
		set := c.storeVar(sc.sym, e.name)
		if sc.toplevel && e.ctx == ctxStore && len(c.blocks) > 0 {
			name := e.name
			return func(st *state, f *frame, v any) {
				set(st, f, v)
				st.export(name, v)
			}
		}
		return set
	case *nsRefExpr:
		ref, attr := c.rawVar(sc.sym.fn, sc.sym, e.name), e.attr
		return func(st *state, f *frame, v any) {
			ns, ok := ref(st, f).(*namespace)
			if !ok {
				typeError("object does not support item assignment")
			}
			st.setAttr(ns, attr, v)
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

// unpack is Python's sequence unpacking into n targets.
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
		x, ok := it()
		if !ok {
			break
		}
		items = append(items, x)
	}
	if len(items) != n {
		valueError("cannot unpack into %d values", n)
	}
	return items
}

// capture runs fn and takes back what it wrote.
func (st *state) capture(fn func() jump) (string, jump) {
	start := len(st.out)
	j := fn()
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

func (c *compiler) filterBlock(n *filterBlockNode, sc scope) execFn {
	in := sc.inner(sc.sym.fn)
	in.sym.analyze(n.body...)
	in.sym.visit(n.filter)
	enter, leave := c.enter(in.sym), c.leave(in.sym)
	body, filter := c.body(n.body, in), c.filterText(n.filter, in)
	return func(st *state, f *frame) jump {
		st.at(n.line)
		enter(st, f)
		text, j := st.capture(func() jump { return body(st, f) })
		if j != jumpNone {
			return j
		}
		st.writeText(filter(st, f, text))
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

func (c *compiler) blockStmt(n *blockNode, sc scope) execFn {
	b := c.blocks[n.name]
	// A scoped block sees the local variables through the context.
	type local struct {
		name string
		get  evalFn
	}
	var locals []local
	if n.scoped {
		seen := map[string]bool{}
		for s := sc.sym; s != nil; s = s.up {
			for name := range s.stores {
				if !seen[name] {
					seen[name] = true
					locals = append(locals, local{name, c.rawVar(sc.sym.fn, sc.sym, name)})
				}
			}
		}
	}
	return func(st *state, f *frame) jump {
		st.at(n.line)
		outer := st.ctx
		if n.scoped {
			st.ctx = &context{vars: pyvalue.NewDict(), up: outer}
			for _, l := range locals {
				if v := l.get(st, f); v != missing {
					st.ctx.vars.Set(l.name, v)
				}
			}
		}
		b.run(st)
		st.ctx = outer
		return jumpNone
	}
}

// run executes a block into the output.
func (b *block) run(st *state) {
	st.enterCall(2)
	defer st.leaveCall(2)
	f := &frame{vars: make([]any, len(b.fn.slots))}
	b.body(st, f)
}
