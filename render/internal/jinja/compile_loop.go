package jinja

import "warmroute/render/internal/pyvalue"

// loopCode is a compiled for loop.
type loopCode struct {
	c                 *compiler
	fn                *function // its own if recursive
	recursive, hasIf  bool
	extended          bool
	setTarget         setFn
	setLoop           setFn
	enter             func(*state, *frame)
	leave             func(*frame)
	body              execFn
	orElse            execFn // nil without else
	testFn            *function
	testEnter         func(*state, *frame)
	testTarget        setFn
	test              condFn
	line              int
	leaveWhenFinished bool
}

func (c *compiler) forStmt(n *forNode, sc scope) execFn {
	l := &loopCode{c: c, fn: sc.sym.fn, recursive: n.recursive, line: n.line}
	if n.recursive {
		l.fn = newFunction(sc.sym.fn)
	}
	in, orElse := sc.inner(l.fn), sc.inner(l.fn)
	in.inLoop = true
	if in.loops++; in.loops > maxBlocks {
		c.fail(n.line, "too many statically nested blocks")
	}
	l.extended = n.recursive || findUndeclared(n.body, "loop")["loop"]
	if l.extended {
		in.sym.param("loop")
	}
	in.sym.analyzeTarget(n.target)
	in.sym.analyze(n.body...)
	if n.orElse != nil {
		orElse.sym.analyze(n.orElse...)
	}
	c.loopTest(l, n, sc)
	c.checkLoopNames(n)
	iter := c.expr(n.iter, sc)
	l.setTarget = c.target(n.target, in)
	if l.extended {
		l.setLoop = c.storeVar(in.sym, "loop")
	}
	l.enter, l.leave = c.enter(in.sym), c.leave(in.sym)
	l.body = c.body(n.body, in)
	if n.orElse != nil {
		l.orElse = c.scoped(orElse, c.body(n.orElse, orElse))
	}
	l.leaveWhenFinished = !n.recursive || n.orElse != nil
	if n.recursive {
		return func(st *state, f *frame) jump {
			st.at(l.line)
			l.recurse(st, f, iter(st, f), 0)
			return jumpNone
		}
	}
	return func(st *state, f *frame) jump {
		st.at(l.line)
		return l.run(st, f, f, iter(st, f), 0)
	}
}

func (c *compiler) checkLoopNames(n *forNode) {
	walk(n, func(m node) bool {
		if name, ok := m.(*nameExpr); ok && name.ctx == ctxStore && name.name == "loop" {
			c.fail(n.line, "Can't assign to special loop variable in for-loop target")
		}
		return true
	})
}

// loopTest compiles `for … if test`: a generator function over the iterable.
func (c *compiler) loopTest(l *loopCode, n *forNode, sc scope) {
	if n.test == nil {
		return
	}
	l.hasIf = true
	l.testFn = newFunction(sc.sym.fn)
	in := sc.inner(l.testFn)
	in.sym.analyzeTarget(n.target)
	in.sym.visit(n.test)
	l.testEnter = c.enter(in.sym)
	l.testTarget = c.target(n.target, in)
	l.test = c.cond(n.test, in)
}

// filtered returns the generator of the loop's test over iterable.
func (l *loopCode) filtered(st *state, up *frame, iterable any) *generator {
	var f *frame
	var it iterator
	return st.generator("generator", func() (any, bool) {
		if f == nil {
			f = newFrame(l.testFn, up)
			l.testEnter(st, f)
			it = st.iterate(iterable)
		}
		for {
			v, ok := it.next()
			if !ok {
				return nil, false
			}
			st.step()
			l.testTarget(st, f, v)
			if l.test(st, f) {
				return v, true
			}
		}
	})
}

// recurse runs a recursive loop's function, which writes to the output.
func (l *loopCode) recurse(st *state, up *frame, iterable any, depth int) {
	st.enterCall(1)
	l.run(st, newFrame(l.fn, up), up, iterable, depth)
	st.leaveCall(1)
}

// run runs the loop in frame f; up is the frame around the loop's function.
func (l *loopCode) run(st *state, f, up *frame, iterable any, depth int) jump {
	if l.hasIf {
		iterable = l.filtered(st, up, iterable)
	}
	it := st.iterate(iterable)
	var lc *loopContext
	if l.extended {
		lc = &st.loops.carve(1)[0]
		*lc = loopContext{st: st, iterable: iterable, rest: it, index0: -1, length: -1, code: l, up: up, depth0: depth}
	}
	empty := true // no iteration ran to the end of the body
	for {
		var v any
		var ok bool
		if lc != nil {
			v, ok = lc.next()
		} else {
			v, ok = it.next()
		}
		if !ok {
			break
		}
		st.step()
		l.setTarget(st, f, v)
		if lc != nil {
			l.setLoop(st, f, lc)
		}
		l.enter(st, f)
		j := l.body(st, f)
		if j == jumpBreak {
			break
		}
		if j == jumpNone {
			empty = false
		}
	}
	if l.leaveWhenFinished {
		l.leave(f)
	}
	if empty && l.orElse != nil {
		return l.orElse(st, f)
	}
	return jumpNone
}

// loopContext is the value of `loop`.
type loopContext struct {
	st         *state
	iterable   any
	rest       iterator
	index0     int
	length     int // -1: unknown
	after      any
	hasAfter   bool
	current    any
	before     any
	changed    any
	hasChanged bool
	code       *loopCode
	up         *frame
	depth0     int
}

func (l *loopContext) PyType() string { return "LoopContext" }

func (l *loopContext) AppendRepr(dst []byte, _ *pyvalue.Printer) []byte {
	dst = append(dst, "<LoopContext "...)
	dst, _ = pyvalue.AppendRepr(l.st.work, dst, int64(l.index0+1))
	dst = append(dst, '/')
	dst, _ = pyvalue.AppendRepr(l.st.work, dst, int64(l.len()))
	return append(dst, '>')
}

// PyTruth follows the length, as in Python.
func (l *loopContext) PyTruth() bool { return l.len() != 0 }

func (l *loopContext) next() (any, bool) {
	var v any
	if l.hasAfter {
		v, l.after, l.hasAfter = l.after, nil, false
	} else {
		var ok bool
		if v, ok = l.rest.next(); !ok {
			return nil, false
		}
	}
	l.index0++
	l.before, l.current = l.current, v
	return v, true
}

func (l *loopContext) peek() (any, bool) {
	if !l.hasAfter {
		l.after, l.hasAfter = l.rest.next()
	}
	return l.after, l.hasAfter
}

func (l *loopContext) len() int {
	if l.length >= 0 {
		return l.length
	}
	if n, ok := l.st.length(l.iterable); ok {
		l.length = n
		return n
	}
	var rest []any
	for {
		v, ok := l.rest.next()
		if !ok {
			break
		}
		l.st.step()
		rest = append(rest, v)
	}
	l.rest = iterator{items: rest}
	l.length = len(rest) + l.index0 + 1
	if l.hasAfter {
		l.length++
	}
	return l.length
}

// attr returns getattr(loop, name).
func (l *loopContext) attr(name string) (any, bool) {
	switch name {
	case "index":
		return int64(l.index0 + 1), true
	case "index0":
		return int64(l.index0), true
	case "first":
		return l.index0 == 0, true
	case "last":
		_, ok := l.peek()
		return !ok, true
	case "length":
		return int64(l.len()), true
	case "revindex":
		return int64(l.len() - l.index0), true
	case "revindex0":
		return int64(l.len() - l.index0 - 1), true
	case "depth":
		return int64(l.depth0 + 1), true
	case "depth0":
		return int64(l.depth0), true
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item"), true
		}
		return l.before, true
	case "nextitem":
		if v, ok := l.peek(); ok {
			return v, true
		}
		return undefinedHint("there is no next item"), true
	case "cycle":
		return &builtin{name: name, kind: "method", self: l, fn: func(st *state, a *args) any {
			if len(a.pos) == 0 || len(a.names) > 0 {
				typeError("no items for cycling given")
			}
			return a.pos[l.index0%len(a.pos)]
		}}, true
	case "changed":
		return &builtin{name: name, kind: "method", self: l, fn: func(st *state, a *args) any {
			a.noKeywords(name)
			v := pyvalue.NewTuple(a.pos...)
			if l.hasChanged && st.equal(l.changed, v) {
				return false
			}
			l.changed, l.hasChanged = v, true
			return true
		}}, true
	}
	return nil, false
}

// call runs loop(iterable) in a recursive loop, and writes its text to the output.
func (l *loopContext) call(st *state, a *args) {
	p := a.bind("loop", 1, "iterable")
	if !l.code.recursive {
		typeError("The loop must have the 'recursive' marker to be called recursively.")
	}
	st.enterCall(3)
	l.code.recurse(st, l.up, p[0], l.depth0+1)
	st.leaveCall(3)
}
