package jinja

// Jinja compiles a template to Python functions and turns every name into a local
// variable of one function. Its rules say which variables a scope reads from the scope
// around it (jinja2/idtracking.py). Templates depend on the corner cases, so this file
// does the same analysis; a variable becomes a slot of a function's frame.

// function is one Python function of the compiled template: the root, a macro,
// a recursive loop or a loop filter.
type function struct {
	up    *function
	slots map[string]int // by variable: level and name
	inner bool           // it has functions inside, which may keep its frame
}

func newFunction(up *function) *function {
	if up != nil {
		up.inner = true
	}
	return &function{up: up, slots: map[string]int{}}
}

func (f *function) slot(id variable) int {
	key := id.key()
	n, ok := f.slots[key]
	if !ok {
		n = len(f.slots)
		f.slots[key] = n
	}
	return n
}

// variable is Jinja's l_<level>_<name>.
type variable struct {
	level int
	name  string
}

func (v variable) key() string { return string(rune(v.level)) + v.name }

type loadKind uint8

const (
	loadParam     loadKind = iota // the caller or the loop sets it
	loadResolve                   // the scope looks it up in the context when it is entered
	loadAlias                     // the scope copies an outer scope's variable
	loadUndefined                 // it is missing until it is assigned
)

type load struct {
	kind   loadKind
	source string // loadResolve: the name; loadAlias: the outer variable's name
	from   *symbols
}

// symbols are the names of one scope.
type symbols struct {
	level  int
	up     *symbols
	fn     *function
	refs   map[string]variable
	order  []variable // of loads
	loads  map[variable]load
	stores map[string]bool
}

func newSymbols(up *symbols, fn *function) *symbols {
	s := &symbols{up: up, fn: fn, refs: map[string]variable{}, loads: map[variable]load{}, stores: map[string]bool{}}
	if up != nil {
		s.level = up.level + 1
	}
	return s
}

func (s *symbols) copy() *symbols {
	c := &symbols{level: s.level, up: s.up, fn: s.fn, refs: map[string]variable{}, loads: map[variable]load{}, stores: map[string]bool{}}
	for k, v := range s.refs {
		c.refs[k] = v
	}
	for _, k := range s.order {
		c.setLoad(k, s.loads[k])
	}
	for k := range s.stores {
		c.stores[k] = true
	}
	return c
}

func (s *symbols) setLoad(v variable, l load) {
	if _, ok := s.loads[v]; !ok {
		s.order = append(s.order, v)
	}
	s.loads[v] = l
}

func (s *symbols) define(name string, l load) {
	v := variable{s.level, name}
	s.refs[name] = v
	s.setLoad(v, l)
}

// find returns the scope that has name, and its variable there.
func (s *symbols) find(name string) (*symbols, variable, bool) {
	for ; s != nil; s = s.up {
		if v, ok := s.refs[name]; ok {
			return s, v, true
		}
	}
	return nil, variable{}, false
}

func (s *symbols) findLoad(v variable) (load, bool) {
	for ; s != nil; s = s.up {
		if l, ok := s.loads[v]; ok {
			return l, true
		}
	}
	return load{}, false
}

func (s *symbols) store(name string) {
	s.stores[name] = true
	if _, ok := s.refs[name]; ok {
		return
	}
	if s.up != nil {
		if _, _, ok := s.up.find(name); ok {
			s.define(name, load{kind: loadAlias, source: name, from: s.up})
			return
		}
	}
	s.define(name, load{kind: loadUndefined})
}

func (s *symbols) param(name string) {
	s.stores[name] = true
	s.define(name, load{kind: loadParam})
}

func (s *symbols) load(name string) {
	if _, _, ok := s.find(name); !ok {
		s.define(name, load{kind: loadResolve, source: name})
	}
}

func (s *symbols) branchUpdate(branches ...*symbols) {
	var stored []string
	for _, b := range branches {
		for name := range b.stores {
			if !s.stores[name] {
				stored = append(stored, name)
			}
		}
	}
	for _, b := range branches {
		for k, v := range b.refs {
			s.refs[k] = v
		}
		for _, k := range b.order {
			s.setLoad(k, b.loads[k])
		}
		for k := range b.stores {
			s.stores[k] = true
		}
	}
	for _, name := range stored {
		_, target, _ := s.find(name)
		if s.up != nil {
			if _, _, ok := s.up.find(name); ok {
				s.setLoad(target, load{kind: loadAlias, source: name, from: s.up})
				continue
			}
		}
		s.setLoad(target, load{kind: loadResolve, source: name})
	}
}

// analyze collects the names of a scope whose statements are nodes.
func (s *symbols) analyze(nodes ...node) {
	for _, n := range nodes {
		s.visit(n)
	}
}

func (s *symbols) analyzeTarget(e expr) {
	switch e := e.(type) {
	case *nameExpr:
		s.param(e.name)
	case *tupleExpr:
		for _, it := range e.items {
			s.analyzeTarget(it)
		}
	default:
		s.visit(e)
	}
}

func (s *symbols) visit(n node) {
	switch n := n.(type) {
	case *nameExpr:
		switch n.ctx {
		case ctxLoad:
			s.load(n.name)
		case ctxStore:
			s.store(n.name)
		case ctxParam:
			s.param(n.name)
		}
	case *nsRefExpr:
		s.load(n.name)
	case *ifNode:
		s.visitIf(n)
	case *macroNode:
		s.store(n.name)
	case *assignNode:
		s.visit(n.value)
		s.visit(n.target)
	case *forNode:
		s.visit(n.iter)
	case *generationNode:
	case *callNode:
		s.visit(n.call)
	case *withNode:
		for _, v := range n.values {
			s.visit(v)
		}
	case *assignBlockNode:
		s.visit(n.target)
	default:
		for _, c := range n.children() {
			s.visit(c)
		}
	}
}

func (s *symbols) visitIf(n *ifNode) {
	s.visit(n.test)
	branch := func(nodes []node) *symbols {
		b := s.copy()
		b.analyze(nodes...)
		return b
	}
	body := branch(n.body)
	var elifs []node
	for _, e := range n.elifs {
		elifs = append(elifs, e)
	}
	s.branchUpdate(body, branch(elifs), branch(n.orElse))
}

// findUndeclared reports which of names nodes load before they store them, in the
// visiting order of Jinja's own helper.
func findUndeclared(nodes []node, names ...string) map[string]bool {
	live := map[string]bool{}
	for _, n := range names {
		live[n] = true
	}
	found := map[string]bool{}
	var visit func(n node)
	visit = func(n node) {
		switch n := n.(type) {
		case *nameExpr:
			if n.ctx == ctxLoad && live[n.name] {
				found[n.name] = true
			} else {
				delete(live, n.name)
			}
			return
		}
		for _, c := range n.children() {
			visit(c)
		}
	}
	for _, n := range nodes {
		visit(n)
		if len(found) == len(live) && len(found) > 0 {
			break
		}
	}
	return found
}
