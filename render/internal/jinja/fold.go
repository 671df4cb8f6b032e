package jinja

import (
	"context"
	"errors"
	"math"
	"math/big"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// Jinja computes constant expressions when it compiles, and so does this file. Results
// differ from later computation in two cases: a slice of a constant goes through the
// forgiving getitem, and a float without a literal (inf) becomes an unknown name in the
// generated code.

// contextFilters need the render's context and are never folded.
var contextFilters = wordSet("map select reject selectattr rejectattr random")

// constant reports whether Jinja folds e: all evaluated parts are constant; branches
// that are not evaluated may have variables.
func (c *compiler) constant(e expr, sc scope) bool {
	c.work.Step(stepCost)
	switch x := e.(type) {
	case *constExpr, *dataExpr:
		return true
	case *nameExpr, *nsRefExpr, *callExpr, *blockExpr:
		return false
	case *condExpr:
		test, ok := c.compute(x.test, sc)
		switch {
		case !ok:
			return false
		case truth(test):
			return c.constant(x.then, sc)
		}
		return x.orElse != nil && c.constant(x.orElse, sc)
	case *binExpr:
		if x.op == "and" || x.op == "or" {
			left, ok := c.compute(x.left, sc)
			return ok && (truth(left) == (x.op == "or") || c.constant(x.right, sc))
		}
	case *compareExpr:
		if !c.constant(x.first, sc) {
			return false
		}
		for i := range x.ops {
			if !c.constant(x.rest[i], sc) {
				return false
			}
			prefix := &compareExpr{first: x.first, ops: x.ops[:i+1], rest: x.rest[:i+1]}
			if v, ok := c.evaluate(prefix, sc); i+1 < len(x.ops) && ok && !truth(v) {
				return true // the rest is never evaluated
			}
		}
		return true
	case *filterExpr:
		if x.operand == nil || filters[x.name] == nil || contextFilters[x.name] {
			return false
		}
	case *testExpr:
		if tests[x.name] == nil {
			return false
		}
	}
	for _, child := range e.children() {
		if !c.constant(child.(expr), sc) {
			return false
		}
	}
	return true
}

// fold computes a constant expression. ok is false if Python raises, or if the
// expression is part of one that is being computed.
func (c *compiler) fold(e expr, sc scope) (v any, ok bool) {
	if c.folding {
		return nil, false
	}
	return c.compute(e, sc)
}

func (c *compiler) compute(e expr, sc scope) (v any, ok bool) {
	if k, isConst := e.(*constExpr); isConst {
		return k.value, true
	}
	if !c.constant(e, sc) {
		return nil, false
	}
	return c.evaluate(e, sc)
}

func (c *compiler) evaluate(e expr, sc scope) (v any, ok bool) {
	outer := c.folding
	c.folding = true
	b := work.New(context.Background(), foldLimits, 0)
	st := &state{work: b, outputMax: foldOutput, limits: Limits{Depth: DefaultDepth, Output: foldOutput}}
	defer func() {
		c.folding = outer
		steps, _ := b.Spent()
		defer c.work.Step(steps + st.unpaid*stepCost)
		if r := recover(); r != nil {
			_, isOurs := r.(*Error)
			if _, stopped := work.Stopped(r); !isOurs && !stopped {
				panic(r)
			}
			v, ok = nil, false
		}
	}()
	return c.exprOf(e, sc)(st, nil), true
}

// foldLimits and foldOutput bound the folding of one constant. Each render computes an
// expression beyond them, within the render's limits.
var foldLimits = work.Limits{Steps: 80_000, Memory: 1 << 20}

const foldOutput = 1 << 16

// safeRepr reports whether a folded value can stand in generated Python.
func safeRepr(v any) bool {
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64, string, markup, *rangeVal:
		return true
	case *list:
		return allSafe(v.Items)
	case *tuple:
		return v.Names == nil && allSafe(v.Items)
	case *dict:
		for k, x := range v.All() {
			if !safeRepr(k) || !safeRepr(x) {
				return false
			}
		}
		return true
	}
	return false
}

func allSafe(items []any) bool {
	for _, it := range items {
		if !safeRepr(it) {
			return false
		}
	}
	return true
}

// finite reports whether v holds no inf or nan, which have no literal.
func finite(v any) bool {
	switch v := v.(type) {
	case float64:
		return !math.IsInf(v, 0) && !math.IsNaN(v)
	case *list:
		return allFinite(v.Items)
	case *tuple:
		return allFinite(v.Items)
	case *dict:
		for k, x := range v.All() {
			if !finite(k) || !finite(x) {
				return false
			}
		}
	}
	return true
}

func allFinite(items []any) bool {
	for _, it := range items {
		if !finite(it) {
			return false
		}
	}
	return true
}

// constantFn compiles a folded value.
func constantFn(v any) evalFn {
	if !finite(v) {
		return func(*state, *frame) any {
			fail(ErrRuntime, "name 'inf' is not defined")
			return nil
		}
	}
	return func(*state, *frame) any { return v }
}

// constantText compiles the printing of a constant; nil if e is not constant.
func (c *compiler) constantText(e expr, sc scope) execFn {
	v, ok := c.fold(e, sc)
	if !ok {
		return nil
	}
	text, err := pyvalue.Str(c.work, v)
	switch {
	case errors.Is(err, pyvalue.ErrAddress):
		return func(st *state, _ *frame) jump {
			st.check(err)
			return jumpNone
		}
	case err != nil:
		return nil
	}
	return func(st *state, _ *frame) jump {
		st.write(text)
		return jumpNone
	}
}
