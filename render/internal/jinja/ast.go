package jinja

// The syntax tree has Jinja's node names and field order. The analyses that walk the tree
// depend on the order.
type (
	node interface{ children() []node }
	expr interface {
		node
		isExpr()
	}
	exprBase struct{}

	templateNode struct{ body []node }
	outputNode   struct {
		nodes []expr
		line  int
	}
	forNode struct {
		target, iter expr
		body, orElse []node
		test         expr
		recursive    bool
		line         int
	}
	ifNode struct {
		test   expr
		body   []node
		elifs  []*ifNode
		orElse []node
		line   int
	}
	macroNode struct {
		name     string
		args     []*nameExpr
		defaults []expr
		body     []node
		line     int
	}
	generationNode struct {
		macro *macroNode // nameless
		line  int
	}
	callNode struct {
		call  *callExpr
		macro *macroNode // nameless: what caller() in the called macro writes
		line  int
	}
	withNode struct {
		targets, values []expr
		body            []node
		line            int
	}
	assignNode struct {
		target, value expr
		line          int
	}
	assignBlockNode struct {
		target expr
		filter *filterExpr
		body   []node
		line   int
	}
	jumpNode struct {
		isBreak bool
		line    int
	}
)

// nameCtx is the use of a name.
type nameCtx uint8

const (
	ctxLoad nameCtx = iota
	ctxStore
	ctxParam
)

type (
	nameExpr struct {
		exprBase
		name string
		ctx  nameCtx
	}
	nsRefExpr struct {
		exprBase
		name, attr string
	}
	constExpr struct {
		exprBase
		value any
	}
	dataExpr struct {
		exprBase
		text string
	}
	tupleExpr struct {
		exprBase
		items []expr
	}
	listExpr struct {
		exprBase
		items []expr
	}
	dictExpr struct {
		exprBase
		keys, values []expr
	}
	condExpr struct {
		exprBase
		test, then, orElse expr
		line               int
	}
	callArgs struct {
		args               []expr
		kwNames            []string
		kwValues           []expr
		dynArgs, dynKwargs expr
	}
	filterExpr struct {
		exprBase
		operand expr // nil in a set block
		name    string
		callArgs
		line int
	}
	testExpr struct {
		exprBase
		operand expr
		name    string
		callArgs
		line int
	}
	callExpr struct {
		exprBase
		fn expr
		callArgs
		line int
	}
	// blockExpr is the macro of a call block, as its call's keyword caller.
	blockExpr struct {
		exprBase
		macro *macroNode
	}
	getitemExpr struct {
		exprBase
		object, arg expr
	}
	getattrExpr struct {
		exprBase
		object expr
		attr   string
	}
	sliceExpr struct {
		exprBase
		start, stop, step expr
	}
	concatExpr struct {
		exprBase
		nodes []expr
	}
	compareExpr struct {
		exprBase
		first expr
		ops   []string
		rest  []expr
	}
	binExpr struct {
		exprBase
		op          string // + - * / // % ** and or
		left, right expr
	}
	unaryExpr struct {
		exprBase
		op      string // + - not
		operand expr
	}
)

func (exprBase) isExpr()          {}
func (exprBase) children() []node { return nil }

func exprNodes(groups ...[]expr) []node {
	var out []node
	for _, g := range groups {
		for _, e := range g {
			if e != nil {
				out = append(out, e)
			}
		}
	}
	return out
}

func one(es ...expr) []expr { return es }

func join(groups ...[]node) []node {
	var out []node
	for _, g := range groups {
		out = append(out, g...)
	}
	return out
}

func (n *templateNode) children() []node { return n.body }
func (n *outputNode) children() []node   { return exprNodes(n.nodes) }
func (n *forNode) children() []node {
	return join(exprNodes(one(n.target, n.iter)), n.body, n.orElse, exprNodes(one(n.test)))
}
func (n *ifNode) children() []node {
	out := join(exprNodes(one(n.test)), n.body)
	for _, e := range n.elifs {
		out = append(out, e)
	}
	return join(out, n.orElse)
}
func (n *macroNode) children() []node {
	var out []node
	for _, a := range n.args {
		out = append(out, a)
	}
	return join(out, exprNodes(n.defaults), n.body)
}
func (n *generationNode) children() []node { return n.macro.children() }
func (n *callNode) children() []node {
	return join(exprNodes(one(n.call)), n.macro.children())
}
func (n *withNode) children() []node   { return join(exprNodes(n.targets, n.values), n.body) }
func (n *assignNode) children() []node { return exprNodes(one(n.target, n.value)) }
func (n *assignBlockNode) children() []node {
	out := exprNodes(one(n.target))
	if n.filter != nil {
		out = append(out, n.filter)
	}
	return join(out, n.body)
}
func (n *jumpNode) children() []node { return nil }

// none reports whether a call has no arguments.
func (a *callArgs) none() bool {
	return len(a.args) == 0 && len(a.kwNames) == 0 && a.dynArgs == nil && a.dynKwargs == nil
}

func (a *callArgs) nodes() []node {
	return exprNodes(a.args, a.kwValues, one(a.dynArgs, a.dynKwargs))
}
func (n *tupleExpr) children() []node { return exprNodes(n.items) }
func (n *listExpr) children() []node  { return exprNodes(n.items) }
func (n *dictExpr) children() []node {
	var out []node
	for i := range n.keys {
		out = append(out, n.keys[i], n.values[i])
	}
	return out
}
func (n *condExpr) children() []node    { return exprNodes(one(n.test, n.then, n.orElse)) }
func (n *filterExpr) children() []node  { return join(exprNodes(one(n.operand)), n.nodes()) }
func (n *testExpr) children() []node    { return join(exprNodes(one(n.operand)), n.nodes()) }
func (n *callExpr) children() []node    { return join(exprNodes(one(n.fn)), n.nodes()) }
func (n *getitemExpr) children() []node { return exprNodes(one(n.object, n.arg)) }
func (n *getattrExpr) children() []node { return exprNodes(one(n.object)) }
func (n *sliceExpr) children() []node   { return exprNodes(one(n.start, n.stop, n.step)) }
func (n *concatExpr) children() []node  { return exprNodes(n.nodes) }
func (n *compareExpr) children() []node { return exprNodes(one(n.first), n.rest) }
func (n *binExpr) children() []node     { return exprNodes(one(n.left, n.right)) }
func (n *unaryExpr) children() []node   { return exprNodes(one(n.operand)) }

// walk visits n's descendants in Jinja's order (find_all), until visit returns false.
func walk(n node, visit func(node) bool) bool {
	for _, c := range n.children() {
		if !visit(c) || !walk(c, visit) {
			return false
		}
	}
	return true
}
