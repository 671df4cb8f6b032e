package jinja

import "sort"

// Undeclared returns the names that the template looks up in its context, sorted:
// jinja2.meta.find_undeclared_variables. vLLM passes only the chat_template_kwargs
// among them to the template.
func (t *Template) Undeclared() []string {
	var names []string
	for _, name := range t.names {
		if globals[name] == nil || name == "raise_exception" || name == "strftime_now" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	return names
}

// OpenAIContent reports whether the template iterates over the parts of a message's
// content. vLLM passes content as a list of parts ("openai") to such a template, else
// as one string. It is vLLM's _detect_content_format, as of 0.32; with older it is
// 0.21's, which did not look for macros and bare `content`.
func (t *Template) OpenAIContent(older bool) (openai bool) {
	defer func() {
		if recover() != nil {
			openai = false // vLLM logs and takes its default, "string"
		}
	}()
	return contentLoop(t.tree, older)
}

// unexpected ends a detection that fails an assert of vLLM.
type unexpected struct{}

func targetName(e expr) string {
	n, ok := e.(*nameExpr)
	if !ok {
		panic(unexpected{})
	}
	return n.name
}

func findAll[T node](root node) []T {
	var out []T
	walk(root, func(n node) bool {
		if t, ok := n.(T); ok {
			out = append(out, t)
		}
		return true
	})
	return out
}

func isVarAccess(e expr, name string) bool {
	n, ok := e.(*nameExpr)
	return ok && n.ctx == ctxLoad && n.name == name
}

func isAttrAccess(e expr, name, key string) bool {
	switch e := e.(type) {
	case *getitemExpr:
		c, ok := e.arg.(*constExpr)
		return ok && isVarAccess(e.object, name) && c.value == key
	case *getattrExpr:
		return isVarAccess(e.object, name) && e.attr == key
	}
	return false
}

// isVarOrElems reports whether e is the variable (or its key, unless empty) itself,
// filtered, tested or sliced.
func isVarOrElems(e expr, name, key string) bool {
	switch x := e.(type) {
	case *filterExpr:
		return x.operand != nil && isVarOrElems(x.operand, name, key)
	case *testExpr:
		return isVarOrElems(x.operand, name, key)
	case *getitemExpr:
		if _, ok := x.arg.(*sliceExpr); ok {
			return isVarOrElems(x.object, name, key)
		}
	}
	if key != "" {
		return isAttrAccess(e, name, key)
	}
	return isVarAccess(e, name)
}

// messageLists returns the variables that hold messages or a part of them. vLLM looks
// each assignment up again for every name that it finds, and has no guard against two
// assignments of each other; here a set bounds the names.
func messageLists(root node) []string {
	names := []string{"messages"}
	seen := map[string]bool{"messages": true}
	assigns := findAll[*assignNode](root)
	for i := 0; i < len(names); i++ {
		for _, a := range assigns {
			if isVarOrElems(a.value, names[i], "") {
				if name := targetName(a.target); !seen[name] {
					seen[name] = true
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// messageVars returns the loop variables that hold a message.
func messageVars(root node) []string {
	lists := messageLists(root)
	var vars []string
	for _, l := range findAll[*forNode](root) {
		for _, name := range lists {
			if isVarOrElems(l.iter, name, "") {
				vars = append(vars, targetName(l.target))
				break
			}
		}
	}
	return vars
}

// contentLoop reports whether a loop runs over a message's content.
func contentLoop(root node, older bool) bool {
	vars := messageVars(root)
	isContent := func(e expr) bool {
		for _, v := range vars {
			if isVarOrElems(e, v, "content") {
				return true
			}
		}
		return false
	}
	inMacro := map[*forNode]bool{}
	params := map[*forNode]map[string]bool{}
	if !older {
		for _, m := range findAll[*macroNode](root) {
			if m.name == "" {
				continue // call blocks and generation blocks are no macros to vLLM
			}
			names := contentParams(root, m, isContent)
			for _, l := range findAll[*forNode](m) {
				inMacro[l] = true
				if len(names) > 0 {
					params[l] = names
				}
			}
		}
	}
	for _, l := range findAll[*forNode](root) {
		if isContent(l.iter) {
			targetName(l.target)
			return true
		}
		name, ok := l.iter.(*nameExpr)
		if older || !ok {
			continue
		}
		if params[l][name.name] || !inMacro[l] && name.name == "content" {
			targetName(l.target)
			return true
		}
	}
	return false
}

// contentParams returns the macro's parameters that get a message's content in some
// call.
func contentParams(root node, m *macroNode, isContent func(expr) bool) map[string]bool {
	names := map[string]bool{}
	for _, call := range findAll[*callExpr](root) {
		fn, ok := call.fn.(*nameExpr)
		if !ok || fn.name != m.name {
			continue
		}
		for i, a := range call.args {
			if i < len(m.args) && isContent(a) {
				names[m.args[i].name] = true
			}
		}
		for i, k := range call.kwNames {
			for _, p := range m.args {
				if p.name == k && isContent(call.kwValues[i]) {
					names[k] = true
				}
			}
		}
	}
	return names
}
