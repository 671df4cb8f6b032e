// Package configtest makes the reference of the configuration from the comments
// of its fields in the source, and the JSON Schema of its files from that. `make docs` writes both;
// no program links it.
package configtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Comments reads the comments of struct fields in the module at root. Types of
// package main are in the package named main.
func Comments(root, module, main string) func(owner reflect.Type, field string) (string, error) {
	read := map[string]map[string]string{} // per package, by Type.Field
	return func(owner reflect.Type, field string) (string, error) {
		pkg := owner.PkgPath()
		if pkg == "main" {
			pkg = main
		}
		if read[pkg] == nil {
			dir, ours := strings.CutPrefix(pkg, module)
			if !ours {
				return "", fmt.Errorf("%s is not of this module", owner)
			}
			comments, err := comments(filepath.Join(root, dir))
			if err != nil {
				return "", err
			}
			read[pkg] = comments
		}
		text := read[pkg][owner.Name()+"."+field]
		if text == "" {
			return "", fmt.Errorf("%s.%s has no comment with its meaning", owner, field)
		}
		return sentence(text, field), nil
	}
}

func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, fmt.Errorf("configtest: %w", err)
	}
	out := map[string]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, fmt.Errorf("configtest: %w", err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			if s, is := spec.Type.(*ast.StructType); is {
				for _, f := range s.Fields.List {
					for _, name := range f.Names {
						out[spec.Name.Name+"."+name.Name] = strings.Join(strings.Fields(f.Doc.Text()+" "+f.Comment.Text()), " ")
					}
				}
			}
			return false
		})
	}
	return out, nil
}

// sentence returns a comment as a sentence of its own, without the field's Go name.
func sentence(text, field string) string {
	for _, verb := range []string{"is ", "are ", "holds ", "may "} {
		if rest, cut := strings.CutPrefix(text, field+" "+verb); cut {
			text = strings.TrimPrefix(strings.TrimPrefix(verb, "is "), "are ") + rest
		}
	}
	word, _, _ := strings.Cut(text, " ")
	if first, size := utf8.DecodeRuneInString(text); word == strings.ToLower(word) { // no word like gRPC, vLLM's
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}
