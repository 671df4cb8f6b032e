package jinja

import (
	"slices"
	"strings"

	"warmroute/render/work"
)

const (
	// maxNest bounds the nesting of expressions and blocks in a template. Jinja's
	// recursive parser fails at about 70 parentheses; no published template comes near
	// either limit.
	maxNest = 100
	// maxChain bounds consecutive operators (a+b+c…), which nest to the left in the
	// tree. CPython refuses to compile them from 200 on.
	maxChain = 1000
)

// parser is Jinja's recursive-descent parser over the token list.
type parser struct {
	work   *work.Budget
	tokens []token
	pos    int
	depth  int
	tags   []string
}

func parse(b *work.Budget, src string) *templateNode {
	p := &parser{work: b, tokens: lex(b, src)}
	return &templateNode{body: p.subparse(nil)}
}

func (p *parser) cur() *token { return &p.tokens[p.pos] }

func (p *parser) peek() *token { return &p.tokens[min(p.pos+1, len(p.tokens)-1)] }

func (p *parser) next() *token {
	p.work.Step(stepCost)
	p.work.Memory(2 * stepBytes)
	t := &p.tokens[p.pos]
	if t.kind != tokEOF {
		p.pos++
	}
	return t
}

func (p *parser) fail(line int, format string, args ...any) {
	defer func() {
		e := recover().(*Error)
		e.Line = line
		panic(e)
	}()
	fail(ErrSyntax, format, args...)
}

func describe(t *token) string {
	if t.kind == tokName {
		return t.text
	}
	return string(t.kind)
}

func (p *parser) is(kind tokenKind) bool { return p.cur().kind == kind }

func (p *parser) isName(name string) bool {
	return p.cur().kind == tokName && p.cur().text == name
}

func (p *parser) skip(kind tokenKind) bool {
	if p.is(kind) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expect(kind tokenKind) *token {
	if !p.is(kind) {
		p.fail(p.cur().line, "expected token '%s', got '%s'", kind, describe(p.cur()))
	}
	return p.next()
}

func (p *parser) expectName(name string) *token {
	if !p.isName(name) {
		p.fail(p.cur().line, "expected token '%s', got '%s'", name, describe(p.cur()))
	}
	return p.next()
}

// nest counts one level of recursion, and returns the function that ends the level.
func (p *parser) nest() func() {
	p.depth++
	if p.depth > maxNest {
		p.fail(p.cur().line, "nested more than %d deep", maxNest)
	}
	return func() { p.depth-- }
}

// chain counts one more consecutive operator.
func (p *parser) chain(n *int) {
	if *n++; *n > maxChain {
		p.fail(p.cur().line, "more than %d operators in a row", maxChain)
	}
}

// subparse parses text and tags up to an end tag, which becomes the current token.
func (p *parser) subparse(end []string) []node {
	defer p.nest()()
	var body []node
	var out *outputNode
	add := func(e expr, line int) {
		if out == nil {
			out = &outputNode{line: line}
			body = append(body, out)
		}
		out.nodes = append(out.nodes, e)
	}
	for {
		switch t := p.cur(); t.kind {
		case tokEOF:
			return body
		case tokData:
			add(&dataExpr{text: t.text}, t.line)
			p.next()
		case tokVariableBegin:
			p.next()
			add(p.tuple(tupleOpts{cond: true}), t.line)
			p.expect(tokVariableEnd)
		case tokBlockBegin:
			out = nil
			p.next()
			if p.is(tokName) && slices.Contains(end, p.cur().text) {
				return body
			}
			body = append(body, p.statement())
			p.expect(tokBlockEnd)
		default:
			p.fail(t.line, "internal parsing error")
		}
	}
}

// body parses a block's body up to an end tag, which becomes the current token.
func (p *parser) body(end ...string) []node {
	p.skip(":")
	p.expect(tokBlockEnd)
	body := p.subparse(end)
	if p.is(tokEOF) {
		p.fail(p.cur().line, "Unexpected end of template. Jinja was looking for the following tags: %s. The innermost block that needs to be closed is '%s'.",
			strings.Join(end, " or "), p.tags[len(p.tags)-1])
	}
	return body
}

// bodyDrop is body, but skips the end tag's name.
func (p *parser) bodyDrop(end string) []node {
	b := p.body(end)
	p.next()
	return b
}

func (p *parser) statement() node {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "tag name expected")
	}
	p.tags = append(p.tags, t.text)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	switch t.text {
	case "for":
		return p.parseFor()
	case "if":
		return p.parseIf()
	case "set":
		return p.parseSet()
	case "macro":
		return p.parseMacro()
	case "generation":
		p.next()
		return &generationNode{macro: &macroNode{body: p.bodyDrop("endgeneration"), line: t.line}, line: t.line}
	case "call":
		return p.parseCall()
	case "with":
		return p.parseWith()
	case "print":
		return p.parsePrint()
	case "break", "continue":
		p.next()
		return &jumpNode{isBreak: t.text == "break", line: t.line}
	case "filter", "block", "autoescape", "extends", "include", "import", "from":
		refuse("tag " + t.text) // one of these seven
	}
	p.fail(t.line, "Encountered unknown tag '%s'.", t.text)
	return nil
}

func (p *parser) parseFor() node {
	n := &forNode{line: p.expectName("for").line}
	n.target = p.target(targetOpts{end: "in"})
	p.expectName("in")
	n.iter = p.tuple(tupleOpts{end: "recursive"})
	if p.skipName("if") {
		n.test = p.expression()
	}
	n.recursive = p.skipName("recursive")
	n.body = p.body("endfor", "else")
	if p.next().text == "else" {
		n.orElse = p.bodyDrop("endfor")
	}
	return n
}

func (p *parser) parseIf() node {
	n := &ifNode{line: p.expectName("if").line}
	result := n
	for {
		n.test = p.tuple(tupleOpts{})
		n.body = p.body("elif", "else", "endif")
		switch t := p.next(); t.text {
		case "elif":
			n = &ifNode{line: p.cur().line}
			result.elifs = append(result.elifs, n)
			continue
		case "else":
			result.orElse = p.bodyDrop("endif")
		}
		return result
	}
}

func (p *parser) parseSet() node {
	line := p.next().line
	target := p.target(targetOpts{namespace: true})
	if p.skip("=") {
		return &assignNode{target: target, value: p.tuple(tupleOpts{cond: true}), line: line}
	}
	n := &assignBlockNode{target: target, line: line}
	if f := p.filter(nil, false); f != nil {
		n.filter = f.(*filterExpr)
	}
	n.body = p.bodyDrop("endset")
	return n
}

func (p *parser) signature(m *macroNode) {
	p.expect("(")
	for !p.is(")") {
		if len(m.args) > 0 {
			p.expect(",")
		}
		arg := p.target(targetOpts{nameOnly: true}).(*nameExpr)
		arg.ctx = ctxParam
		if p.skip("=") {
			m.defaults = append(m.defaults, p.expression())
		} else if len(m.defaults) > 0 {
			p.fail(p.cur().line, "non-default argument follows default argument")
		}
		m.args = append(m.args, arg)
	}
	p.expect(")")
}

func (p *parser) parseMacro() node {
	m := &macroNode{line: p.next().line}
	m.name = p.target(targetOpts{nameOnly: true}).(*nameExpr).name
	p.signature(m)
	m.body = p.bodyDrop("endmacro")
	return m
}

func (p *parser) parseCall() node {
	n := &callNode{line: p.next().line, macro: &macroNode{}}
	n.macro.line = n.line
	if p.is("(") {
		p.signature(n.macro)
	}
	call, ok := p.expression().(*callExpr)
	if !ok {
		p.fail(n.line, "expected call")
	}
	n.call = call
	n.macro.body = p.bodyDrop("endcall")
	return n
}

func (p *parser) parseWith() node {
	n := &withNode{line: p.next().line}
	for !p.is(tokBlockEnd) {
		if len(n.targets) > 0 {
			p.expect(",")
		}
		t := p.target(targetOpts{})
		setCtx(t, ctxParam)
		n.targets = append(n.targets, t)
		p.expect("=")
		n.values = append(n.values, p.expression())
	}
	n.body = p.bodyDrop("endwith")
	return n
}

func (p *parser) parsePrint() node {
	n := &outputNode{line: p.next().line}
	for !p.is(tokBlockEnd) {
		if len(n.nodes) > 0 {
			p.expect(",")
		}
		n.nodes = append(n.nodes, p.expression())
	}
	return n
}
