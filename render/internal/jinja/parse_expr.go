package jinja

import (
	"slices"
	"strings"
)

type targetOpts struct {
	nameOnly, namespace bool
	end                 string // a name that ends the tuple
}

// target parses the target of an assignment.
func (p *parser) target(o targetOpts) expr {
	line := p.cur().line
	var t expr
	if o.nameOnly {
		t = &nameExpr{name: p.expect(tokName).text, ctx: ctxStore}
	} else {
		t = p.tuple(tupleOpts{simplified: true, end: o.end, namespace: o.namespace})
		setCtx(t, ctxStore)
	}
	if !canAssign(t) {
		p.fail(line, "can't assign to this expression")
	}
	return t
}

func setCtx(e expr, ctx nameCtx) {
	switch e := e.(type) {
	case *nameExpr:
		e.ctx = ctx
	case *tupleExpr:
		for _, it := range e.items {
			setCtx(it, ctx)
		}
	}
}

func canAssign(e expr) bool {
	switch e := e.(type) {
	case *nameExpr:
		switch e.name {
		case "true", "false", "none", "True", "False", "None":
			return false
		}
		return true
	case *nsRefExpr:
		return true
	case *tupleExpr:
		for _, it := range e.items {
			if !canAssign(it) {
				return false
			}
		}
		return true
	}
	return false
}

type tupleOpts struct {
	simplified, cond, parens, namespace bool
	end                                 string
}

// tuple parses expressions separated by commas, or one expression.
func (p *parser) tuple(o tupleOpts) expr {
	var items []expr
	isTuple := false
	for {
		if len(items) > 0 {
			p.expect(",")
		}
		if p.is(tokVariableEnd) || p.is(tokBlockEnd) || p.is(")") || o.end != "" && p.isName(o.end) {
			break
		}
		switch {
		case o.simplified:
			items = append(items, p.primary(o.namespace))
		case o.cond:
			items = append(items, p.expression())
		default:
			items = append(items, p.or())
		}
		if !p.is(",") {
			break
		}
		isTuple = true
	}
	if !isTuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.parens {
			p.fail(p.cur().line, "Expected an expression, got '%s'", describe(p.cur()))
		}
	}
	return &tupleExpr{items: items}
}

func (p *parser) expression() expr {
	defer p.nest()()
	line := p.cur().line
	e := p.or()
	for n := 0; p.skipName("if"); p.chain(&n) {
		c := &condExpr{test: p.or(), then: e, line: line}
		if p.skipName("else") {
			c.orElse = p.expression()
		}
		e = c
		line = p.cur().line
	}
	return e
}

// chained parses operands with left-associative operators between them. operator
// consumes the next operator and returns it, "" if there is none.
func (p *parser) chained(operand func() expr, operator func() string) expr {
	left := operand()
	for n := 0; ; p.chain(&n) {
		op := operator()
		if op == "" {
			return left
		}
		left = &binExpr{op: op, left: left, right: operand()}
	}
}

// word returns a function that consumes an operator with the given name.
func (p *parser) word(name string) func() string {
	return func() string {
		if p.skipName(name) {
			return name
		}
		return ""
	}
}

// sign returns a function that consumes one of the given signs.
func (p *parser) sign(of ...tokenKind) func() string {
	return func() string {
		if slices.ContainsFunc(of, p.is) {
			return string(p.next().kind)
		}
		return ""
	}
}

func (p *parser) or() expr    { return p.chained(p.and, p.word("or")) }
func (p *parser) and() expr   { return p.chained(p.not, p.word("and")) }
func (p *parser) math1() expr { return p.chained(p.concat, p.sign("+", "-")) }
func (p *parser) math2() expr { return p.chained(p.pow, p.sign("*", "/", "//", "%")) }
func (p *parser) pow() expr {
	return p.chained(func() expr { return p.unary(true) }, p.sign("**"))
}

func (p *parser) not() expr {
	if p.skipName("not") {
		defer p.nest()()
		return &unaryExpr{op: "not", operand: p.not()}
	}
	return p.compare()
}

func (p *parser) compare() expr {
	c := &compareExpr{first: p.math1()}
	for n := 0; ; p.chain(&n) {
		var op string
		switch t := p.cur(); {
		case t.kind == "==" || t.kind == "!=" || t.kind == "<" || t.kind == "<=" || t.kind == ">" || t.kind == ">=":
			op = string(t.kind)
			p.next()
		case p.skipName("in"):
			op = "in"
		case p.isName("not") && p.peek().kind == tokName && p.peek().text == "in":
			p.next()
			p.next()
			op = "not in"
		default:
			if len(c.ops) == 0 {
				return c.first
			}
			return c
		}
		c.ops = append(c.ops, op)
		c.rest = append(c.rest, p.math1())
	}
}

func (p *parser) concat() expr {
	args := []expr{p.math2()}
	for p.skip("~") {
		args = append(args, p.math2())
	}
	if len(args) == 1 {
		return args[0]
	}
	return &concatExpr{nodes: args}
}

func (p *parser) unary(withFilter bool) expr {
	var e expr
	if p.is("-") || p.is("+") {
		defer p.nest()()
		op := string(p.next().kind)
		e = &unaryExpr{op: op, operand: p.unary(false)}
	} else {
		e = p.primary(false)
	}
	e = p.postfix(e)
	if withFilter {
		e = p.filterExpr(e)
	}
	return e
}

func (p *parser) primary(namespace bool) expr {
	switch t := p.next(); t.kind {
	case tokName:
		switch t.text {
		case "true", "True":
			return &constExpr{value: true}
		case "false", "False":
			return &constExpr{value: false}
		case "none", "None":
			return &constExpr{}
		}
		if namespace && p.skip(".") {
			return &nsRefExpr{name: t.text, attr: p.expect(tokName).text}
		}
		return &nameExpr{name: t.text}
	case tokString:
		if !p.is(tokString) {
			return &constExpr{value: t.text}
		}
		var b strings.Builder
		b.WriteString(t.text)
		for p.is(tokString) {
			b.WriteString(p.next().text)
		}
		return &constExpr{value: b.String()}
	case tokInteger, tokFloat:
		return &constExpr{value: t.value}
	case "(":
		defer p.nest()()
		e := p.tuple(tupleOpts{cond: true, parens: true})
		p.expect(")")
		return e
	case "[":
		l := &listExpr{}
		p.items("]", func() { l.items = append(l.items, p.expression()) })
		return l
	case "{":
		d := &dictExpr{}
		p.items("}", func() {
			d.keys = append(d.keys, p.expression())
			p.expect(":")
			d.values = append(d.values, p.expression())
		})
		return d
	default:
		p.fail(t.line, "unexpected '%s'", describe(t))
	}
	return nil
}

// items parses items with commas between them up to end; a comma may precede end.
func (p *parser) items(end tokenKind, one func()) {
	defer p.nest()()
	for first := true; !p.is(end); first = false {
		if !first {
			if p.expect(","); p.is(end) {
				break
			}
		}
		one()
	}
	p.expect(end)
}

func (p *parser) postfix(e expr) expr {
	for n := 0; ; p.chain(&n) {
		switch {
		case p.is(".") || p.is("["):
			e = p.subscript(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) filterExpr(e expr) expr {
	for n := 0; ; p.chain(&n) {
		switch {
		case p.is("|"):
			e = p.filter(e, false)
		case p.isName("is"):
			e = p.test(e)
		case p.is("("):
			e = p.call(e)
		default:
			return e
		}
	}
}

func (p *parser) subscript(e expr) expr {
	if p.next().kind == "." {
		t := p.next()
		switch t.kind {
		case tokName:
			return &getattrExpr{object: e, attr: t.text}
		case tokInteger:
			return &getitemExpr{object: e, arg: &constExpr{value: t.value}}
		}
		p.fail(t.line, "expected name or number")
	}
	defer p.nest()()
	var args []expr
	for !p.is("]") {
		if len(args) > 0 {
			p.expect(",")
		}
		args = append(args, p.subscribed())
	}
	p.expect("]")
	if len(args) == 1 {
		return &getitemExpr{object: e, arg: args[0]}
	}
	for _, a := range args {
		if _, ok := a.(*sliceExpr); ok {
			p.fail(p.cur().line, "invalid syntax: a slice among several subscripts")
		}
	}
	return &getitemExpr{object: e, arg: &tupleExpr{items: args}}
}

func (p *parser) subscribed() expr {
	s := &sliceExpr{}
	if !p.is(":") {
		s.start = p.expression()
		if !p.is(":") {
			return s.start
		}
	}
	p.next()
	if !p.is(":") && !p.is("]") && !p.is(",") {
		s.stop = p.expression()
	}
	if p.skip(":") && !p.is("]") && !p.is(",") {
		s.step = p.expression()
	}
	return s
}

func (p *parser) callArgs() callArgs {
	open := p.expect("(")
	var a callArgs
	ensure := func(ok bool) {
		if !ok {
			p.fail(open.line, "invalid syntax for function call expression")
		}
	}
	p.items(")", func() {
		switch {
		case p.is("*"):
			ensure(a.dynArgs == nil && a.dynKwargs == nil)
			p.next()
			a.dynArgs = p.expression()
		case p.is("**"):
			ensure(a.dynKwargs == nil)
			p.next()
			a.dynKwargs = p.expression()
		case p.is(tokName) && p.peek().kind == "=":
			ensure(a.dynKwargs == nil)
			name := p.next().text
			p.next()
			if slices.Contains(a.kwNames, name) {
				p.fail(open.line, "keyword argument repeated: %s", name)
			}
			a.kwNames = append(a.kwNames, name)
			a.kwValues = append(a.kwValues, p.expression())
		default:
			ensure(a.dynArgs == nil && a.dynKwargs == nil && len(a.kwNames) == 0)
			a.args = append(a.args, p.expression())
		}
	})
	return a
}

func (p *parser) call(e expr) expr {
	line := p.cur().line
	return &callExpr{fn: e, callArgs: p.callArgs(), line: line}
}

func (p *parser) dottedName() string {
	name := p.expect(tokName).text
	for p.skip(".") {
		name += "." + p.expect(tokName).text
	}
	return name
}

// filter parses `|name(args)|…`; with inline the first filter has no bar. It returns e
// if there is no filter.
func (p *parser) filter(e expr, inline bool) expr {
	for n := 0; inline || p.is("|"); p.chain(&n) {
		if !inline {
			p.next()
		}
		inline = false
		f := &filterExpr{operand: e, line: p.cur().line}
		f.name = p.dottedName()
		if p.is("(") {
			f.callArgs = p.callArgs()
		}
		e = f
	}
	return e
}

func (p *parser) test(e expr) expr {
	t := &testExpr{operand: e, line: p.next().line}
	negated := p.skipName("not")
	t.name = p.dottedName()
	switch c := p.cur(); {
	case c.kind == "(":
		t.callArgs = p.callArgs()
	case (c.kind == tokName && c.text != "else" && c.text != "or" && c.text != "and") ||
		c.kind == tokString || c.kind == tokInteger || c.kind == tokFloat || c.kind == "[" || c.kind == "{":
		if p.isName("is") {
			p.fail(c.line, "You cannot chain multiple tests with is")
		}
		t.args = []expr{p.postfix(p.primary(false))}
	}
	if negated {
		return &unaryExpr{op: "not", operand: t}
	}
	return t
}
