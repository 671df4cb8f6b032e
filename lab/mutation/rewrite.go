package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one change. Its number is its position in the list.
type mutant struct{ at, what string }

// insertion is a text and its position in a file.
type insertion struct {
	offset, order int
	text          string
}

// rewriter turns the files of one package into files that hold all mutants.
type rewriter struct {
	fset       *token.FileSet
	info       types.Info
	statements bool
	module     string // path of the package's module
	mutants    []mutant
	inserts    []insertion
}

// rewrite returns the mutated text of every file of the package in dir.
func (r *rewriter) rewrite(dir string) (map[string][]byte, error) {
	files, imports, err := load(dir)
	if err != nil {
		return nil, err
	}
	r.fset = token.NewFileSet()
	var parsed []*ast.File
	for _, f := range files {
		file, err := parser.ParseFile(r.fset, f, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, file)
	}
	r.info = types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	open := func(path string) (io.ReadCloser, error) { return os.Open(imports[path]) }
	conf := types.Config{Importer: importer.ForCompiler(r.fset, "gc", open)}
	if _, err := conf.Check(dir, r.fset, parsed, &r.info); err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for i, file := range parsed {
		if before := len(r.mutants); r.mutate(file) > before {
			if out[files[i]], err = r.apply(files[i], file); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// load lists a package's files, and the export data files of its imports.
func load(dir string) (files []string, imports map[string]string, err error) {
	cmd := exec.Command("go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \",\"}}", dir)
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return nil, nil, err
	}
	imports = map[string]string{}
	for line := range strings.Lines(string(list)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		imports[f[0]] = f[1]
		files = nil // the package itself is the last line
		for name := range strings.SplitSeq(f[3], ",") {
			files = append(files, filepath.Join(f[2], name))
		}
	}
	return files, imports, nil
}

// mutate collects the mutants of a file and returns the number of mutants so far.
func (r *rewriter) mutate(file *ast.File) int {
	r.inserts = nil
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			return n.Tok == token.VAR // compilation fixes constants and types
		case ast.Expr:
			if r.info.Types[n].Value != nil || r.info.Types[n].IsType() {
				return false
			}
		}
		switch n := n.(type) {
		case *ast.BinaryExpr:
			r.binary(n)
		case *ast.UnaryExpr:
			if n.Op == token.SUB {
				r.call(n, "Neg", "- to +")
				r.blank(n.OpPos, 1)
			}
		case *ast.IncDecStmt:
			r.step(n)
		case *ast.BlockStmt:
			r.block(n.List)
		case *ast.CaseClause:
			r.block(n.Body)
		case *ast.CommClause:
			r.block(n.Body)
		}
		return true
	})
	return len(r.mutants)
}

var arithmetic = map[token.Token][2]string{
	token.ADD: {"Add", "+ to -"}, token.SUB: {"Sub", "- to +"}, token.MUL: {"Mul", "* to /"}, token.QUO: {"Quo", "/ to *"},
}

func (r *rewriter) binary(n *ast.BinaryExpr) {
	switch n.Op {
	case token.ADD, token.SUB, token.MUL, token.QUO:
		t, ok := r.info.Types[n].Type.Underlying().(*types.Basic)
		if !ok || t.Info()&(types.IsInteger|types.IsFloat) == 0 || t.Info()&types.IsUntyped != 0 || r.shifts(n) {
			return
		}
		m := arithmetic[n.Op]
		r.call(n, m[0], m[1])
		r.comma(n)
	case token.EQL, token.NEQ:
		r.call(n, "Not", n.Op.String()+" negated")
	case token.LSS, token.LEQ, token.GTR, token.GEQ:
		r.call(n, "Not", n.Op.String()+" negated")
		if _, generic := r.info.Types[n.X].Type.(*types.TypeParam); generic || r.shifts(n) {
			return
		}
		switch n.Op {
		case token.LSS:
			r.call(n, "Less", "< to <=")
		case token.LEQ:
			r.call(n, "LessEq", "<= to <")
		case token.GTR: // x > y is not x <= y
			r.call(n, "LessEq", "> to >=")
			r.negate()
		case token.GEQ:
			r.call(n, "Less", ">= to >")
			r.negate()
		}
		r.comma(n)
	}
}

// shifts reports whether an operand is a shift of an untyped constant, which has no type
// of its own.
func (r *rewriter) shifts(n *ast.BinaryExpr) (found bool) {
	for _, x := range []ast.Expr{n.X, n.Y} {
		ast.Inspect(x, func(n ast.Node) bool {
			if b, ok := n.(*ast.BinaryExpr); ok && (b.Op == token.SHL || b.Op == token.SHR) && r.info.Types[b.X].Value != nil {
				found = true
			}
			return !found
		})
	}
	return found
}

// step mutates x++ and x--. An element of a map has no address.
func (r *rewriter) step(n *ast.IncDecStmt) {
	if !r.info.Types[n.X].Addressable() {
		return
	}
	if _, generic := r.info.Types[n.X].Type.(*types.TypeParam); generic {
		return
	}
	name, what := "Inc", "++ to --"
	if n.Tok == token.DEC {
		name, what = "Dec", "-- to ++"
	}
	id := r.add(n.Pos(), what)
	r.insert(n.Pos(), fmt.Sprintf("mutant.%s(%d, &", name, id))
	r.insert(n.TokPos, ")")
	r.blank(n.TokPos, 2)
}

// block mutates statements by removing them.
func (r *rewriter) block(list []ast.Stmt) {
	if !r.statements {
		return
	}
	for _, s := range list {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.Ident); ok && f.Name == "panic" {
					continue
				}
			}
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.SendStmt, *ast.DeferStmt, *ast.GoStmt:
		default:
			continue
		}
		id := r.add(s.Pos(), "statement left out")
		r.insert(s.Pos(), fmt.Sprintf("if !mutant.On(%d) { ", id))
		r.close(s.End(), " }")
	}
}

func (r *rewriter) add(pos token.Pos, what string) int {
	at := r.fset.Position(pos)
	r.mutants = append(r.mutants, mutant{fmt.Sprintf("%s:%d:%d", filepath.Base(at.Filename), at.Line, at.Column), what})
	return len(r.mutants) - 1
}

// call wraps an expression into a call of package mutant.
func (r *rewriter) call(n ast.Expr, name, what string) {
	at := n.Pos()
	if b, ok := n.(*ast.BinaryExpr); ok {
		at = b.OpPos
	}
	id := r.add(at, what)
	r.insert(n.Pos(), fmt.Sprintf("mutant.%s(%d, ", name, id))
	r.close(n.End(), ")")
}

// negate puts a ! before the last inserted call.
func (r *rewriter) negate() {
	at := &r.inserts[len(r.inserts)-2]
	at.text = "!" + at.text
}

// comma replaces a binary operator by a comma.
func (r *rewriter) comma(n *ast.BinaryExpr) {
	r.insert(n.OpPos, ",")
	r.blank(n.OpPos, len(n.Op.String()))
}

// insert adds text before pos, after earlier insertions at pos.
func (r *rewriter) insert(pos token.Pos, text string) {
	r.inserts = append(r.inserts, insertion{r.fset.Position(pos).Offset, 1 << 20, text})
}

// close adds text after a node. mutate visits inner nodes later, and their text precedes
// the outer nodes' text.
func (r *rewriter) close(pos token.Pos, text string) {
	r.inserts = append(r.inserts, insertion{r.fset.Position(pos).Offset, -len(r.inserts), text})
}

// blank marks n bytes that apply replaces by spaces.
func (r *rewriter) blank(pos token.Pos, n int) {
	r.inserts = append(r.inserts, insertion{r.fset.Position(pos).Offset, 2 << 20, strings.Repeat("\x00", n)})
}

// apply writes the insertions into a file's text, and the import.
func (r *rewriter) apply(name string, file *ast.File) ([]byte, error) {
	src, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.inserts, func(a, b insertion) int {
		if a.offset != b.offset {
			return a.offset - b.offset
		}
		return a.order - b.order
	})
	var out bytes.Buffer
	last := 0
	for _, in := range r.inserts {
		if in.text[0] == 0 {
			for i := range in.text {
				src[in.offset+i] = ' '
			}
			continue
		}
		out.Write(src[last:in.offset])
		out.WriteString(in.text)
		last = in.offset
	}
	out.Write(src[last:])
	text := out.Bytes()
	end := r.fset.Position(file.Name.End()).Offset
	return slices.Concat(text[:end], []byte("; import \""+r.module+"/internal/mutant\""), text[end:]), nil
}
