package jinja

import (
	"slices"

	"warmroute/render/work"
)

// evalFn computes an expression, condFn computes whether an expression is true, execFn
// runs a statement and appends its text to the state's output.
type (
	evalFn func(st *state, f *frame) any
	condFn func(st *state, f *frame) bool
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
	sym    *symbols
	soft   bool // in an if: an unknown filter fails when it is called
	inLoop bool // this function has a loop for break and continue
	loops  int  // the number of for blocks around, in this function
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
	work    *work.Budget
	names   []string            // the names that scopes look up in the context
	folding bool                // a constant is being computed
	pending []map[variable]bool // macro arguments without a value yet
}

func (c *compiler) fail(line int, format string, args ...any) {
	(&parser{}).fail(line, format, args...)
}

func (c *compiler) template(t *templateNode) (*function, execFn) {
	if findUndeclared(t.body, "self")["self"] {
		refuse("self")
	}
	fn := newFunction(nil)
	sc := scope{sym: newSymbols(nil, fn)}
	sc.sym.analyze(t.body...)
	enter := c.enter(sc.sym)
	body := c.body(t.body, sc)
	return fn, func(st *state, f *frame) jump {
		enter(st, f)
		return body(st, f)
	}
}

// enter compiles the start of a scope: the loads of its variables.
func (c *compiler) enter(s *symbols) func(st *state, f *frame) {
	type action struct {
		slot int
		kind loadKind
		name int // an index of the compiler's names
		from evalFn
	}
	var actions []action
	for _, v := range s.order {
		l := s.loads[v]
		if l.kind == loadParam {
			continue
		}
		a := action{slot: s.fn.slot(v), kind: l.kind}
		switch l.kind {
		case loadAlias:
			a.from = c.rawVar(s.fn, l.from, l.source)
		case loadResolve:
			a.name = c.nameIndex(l.source)
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

func (c *compiler) nameIndex(name string) int {
	c.work.Step(1 + len(c.names)/8)
	if i := slices.Index(c.names, name); i >= 0 {
		return i
	}
	c.names = append(c.names, name)
	return len(c.names) - 1
}

// leave compiles the end of a scope, which clears its variables.
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

// rawVar compiles reading a variable that scope s has, from code in fn. A missing
// variable stays missing, and does not become undefined.
func (c *compiler) rawVar(fn *function, s *symbols, name string) evalFn {
	slot, hops := locate(fn, s, name)
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

// locate returns the slot of a variable of scope s, and the number of frames up from
// code in fn.
func locate(fn *function, s *symbols, name string) (slot, hops int) {
	owner, v, ok := s.find(name)
	if !ok {
		fail(ErrInternal, "unknown name %s", name)
	}
	for ; fn != owner.fn; fn = fn.up {
		hops++
	}
	return owner.fn.slot(v), hops
}

type setFn func(st *state, f *frame, v any)

// storeVar compiles the assignment of a variable. Jinja's assignments always go to a
// scope of the running function.
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
	case *generationNode:
		return c.generation(n, sc)
	case *callNode:
		return c.callBlock(n, sc)
	case *withNode:
		return c.with(n, sc)
	case *jumpNode:
		if !sc.inLoop {
			c.fail(n.line, "'break' or 'continue' outside loop")
		}
		j := jumpContinue
		if n.isBreak {
			j = jumpBreak
		}
		return func(*state, *frame) jump { return j }
	}
	fail(ErrInternal, "unknown statement %T", n)
	return nil
}

// scoped wraps a body in its scope's enter and leave.
func (c *compiler) scoped(in scope, body execFn) execFn {
	enter, leave := c.enter(in.sym), c.leave(in.sym)
	return func(st *state, f *frame) jump {
		enter(st, f)
		j := body(st, f)
		leave(f)
		return j
	}
}
