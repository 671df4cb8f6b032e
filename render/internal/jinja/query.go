package jinja

import (
	"sort"
	"strings"
)

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

// Detection is a release of vLLM that changed how a template's content format is found.
type Detection int

const (
	Detection21 Detection = iota
	Detection32           // looks for macros and bare `content`, too
	Detection33           // and for messages in a namespace
)

// OpenAIContent reports whether the template iterates over the parts of a message's
// content. vLLM passes content as a list of parts ("openai") to such a template, else
// as one string. It is the _detect_content_format of the release d.
func (t *Template) OpenAIContent(d Detection) (openai bool) {
	defer func() {
		if recover() != nil {
			openai = false // vLLM logs and takes its default, "string"
		}
	}()
	return contentLoop(t.tree, d)
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
	switch e := e.(type) {
	case *nameExpr:
		return e.ctx == ctxLoad && e.name == name
	case *getattrExpr: // of a namespace
		of, attr, dotted := strings.Cut(name, ".")
		return dotted && e.attr == attr && isVarAccess(e.object, of)
	}
	return false
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
func messageLists(root node, d Detection) []string {
	names := []string{"messages"}
	seen := map[string]bool{"messages": true}
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	assigns := findAll[*assignNode](root)
	for i := 0; i < len(names); i++ {
		for _, a := range assigns {
			holds := isVarOrElems(a.value, names[i], "")
			switch target := a.target.(type) {
			case *nameExpr:
				if holds {
					add(target.name)
				}
				if call, ok := a.value.(*callExpr); ok && d >= Detection33 {
					for _, key := range namespaceKeys(call, names[i]) {
						add(target.name + "." + key)
					}
				}
			case *nsRefExpr:
				if holds && d >= Detection33 {
					add(target.name + "." + target.attr)
				}
			}
			if holds && d < Detection33 {
				targetName(a.target) // or vLLM fails
			}
		}
	}
	return names
}

// namespaceKeys returns the keys under which a call of namespace() keeps a variable.
func namespaceKeys(call *callExpr, name string) (keys []string) {
	if fn, ok := call.fn.(*nameExpr); !ok || fn.name != "namespace" {
		return nil
	}
	for i, key := range call.kwNames {
		if isVarOrElems(call.kwValues[i], name, "") {
			keys = append(keys, key)
		}
	}
	return keys
}

// messageVars returns the loop variables that hold a message.
func messageVars(root node, d Detection) []string {
	lists := messageLists(root, d)
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
func contentLoop(root node, d Detection) bool {
	older := d < Detection32
	vars := messageVars(root, d)
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
