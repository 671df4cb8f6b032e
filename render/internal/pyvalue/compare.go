package pyvalue

import (
	"fmt"
	"math/big"

	"warmroute/render/work"
)

// lookupSteps is the cost of finding a key in a large dict.
const lookupSteps = 16

// Equal returns a == b, charged to w (nil: to nothing). Errors: ErrDepth.
func Equal(w *work.Budget, a, b any) (bool, error) { return equal(work.Or(w), a, b, 0) }

func equal(w *work.Budget, a, b any, depth int) (bool, error) {
	if depth > maxNesting {
		return false, ErrDepth
	}
	w.Step(1)
	switch x := a.(type) {
	case string:
		t, ok := Text(b)
		if len(t) == len(x) {
			w.Read(len(x))
		}
		return ok && t == x, nil
	case Texter:
		t, ok := Text(b)
		w.Read(len(t))
		return ok && t == x.PyText(), nil
	case nil:
		return b == nil, nil
	case bool, int64, *big.Int, float64:
		return equalNumbers(a, b), nil
	case *List:
		y, ok := b.(*List)
		if !ok {
			return false, nil
		}
		return equalItems(w, x.Items, y.Items, depth)
	}
	return equalMore(w, a, b, depth)
}

func equalNumbers(a, b any) bool {
	switch x := a.(type) {
	case bool:
		if y, ok := b.(bool); ok {
			return x == y
		}
	case int64:
		if y, ok := b.(int64); ok {
			return x == y
		}
	}
	c, ok := compareNumbers(a, b)
	return ok && c == 0
}

func equalMore(w *work.Budget, a, b any, depth int) (bool, error) {
	switch x := a.(type) {
	case *Tuple:
		y, ok := b.(*Tuple)
		if !ok {
			return false, nil
		}
		return equalItems(w, x.Items, y.Items, depth)
	case *Dict:
		y, ok := b.(*Dict)
		if !ok || x.Len() != y.Len() {
			return false, nil
		}
		for i := range x.entries {
			w.Step(lookupSteps)
			ChargeHash(w, x.entries[i].key)
			other, ok := y.Get(x.entries[i].key)
			if !ok {
				return false, nil
			}
			if eq, err := same(w, x.entries[i].value, other, depth+1); !eq || err != nil {
				return false, err
			}
		}
		return true, nil
	case Equaler:
		return x.PyEqual(w, b), nil
	}
	if y, ok := b.(Equaler); ok {
		return y.PyEqual(w, a), nil
	}
	return a == b, nil
}

// same compares items of containers. Python's shortcut there, identity counts as
// equality, matters only for NaN objects, whose identity is not kept here: two NaNs are
// different.
func same(w *work.Budget, a, b any, depth int) (bool, error) { return equal(w, a, b, depth) }

func equalItems(w *work.Budget, a, b []any, depth int) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	for i := range a {
		if eq, err := same(w, a[i], b[i], depth+1); !eq || err != nil {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers compares two numbers without rounding; ok is false if one is NaN or no
// number.
func compareNumbers(a, b any) (c int, ok bool) {
	switch x := a.(type) {
	case bool:
		a = boolInt(x)
	case float64:
		if y, isFloat := b.(float64); isFloat {
			switch {
			case x < y:
				return -1, true
			case x > y:
				return 1, true
			}
			return 0, x == y
		}
		if !isInt(b) {
			return 0, false
		}
		c, ok = CompareIntFloat(intOf(b), x)
		return -c, ok
	case int64, *big.Int:
	default:
		return 0, false
	}
	if f, isFloat := b.(float64); isFloat {
		return CompareIntFloat(a, f)
	}
	if !isInt(b) {
		return 0, false
	}
	b = intOf(b)
	x, small := a.(int64)
	y, small2 := b.(int64)
	if small && small2 {
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, true
	}
	return AsBig(a).Cmp(AsBig(b)), true
}

func boolInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func intOf(v any) any {
	if b, ok := v.(bool); ok {
		return boolInt(b)
	}
	return v
}

func isInt(v any) bool {
	switch v.(type) {
	case bool, int64, *big.Int:
		return true
	}
	return false
}

func isNumber(v any) bool {
	if _, ok := v.(float64); ok {
		return true
	}
	return isInt(v)
}

// Less returns a < b, charged to w (nil: to nothing). Errors: ErrType if Python cannot
// order the two, ErrDepth.
func Less(w *work.Budget, a, b any) (bool, error) { return order(work.Or(w), a, b, "<", 0) }

// LessEqual returns a <= b, with the errors of Less.
func LessEqual(w *work.Budget, a, b any) (bool, error) { return order(work.Or(w), a, b, "<=", 0) }

func order(w *work.Budget, a, b any, op string, depth int) (bool, error) {
	if depth > maxNesting {
		return false, ErrDepth
	}
	w.Step(1)
	if isNumber(a) && isNumber(b) {
		c, ok := compareNumbers(a, b)
		return ok && (c < 0 || c == 0 && op == "<="), nil
	}
	if s, ok := Text(a); ok {
		if t, ok := Text(b); ok {
			w.Read(min(len(s), len(t)))
			return s < t || op == "<=" && s == t, nil
		}
	}
	switch x := a.(type) {
	case *List:
		if y, ok := b.(*List); ok {
			return orderItems(w, x.Items, y.Items, op, depth)
		}
	case *Tuple:
		if y, ok := b.(*Tuple); ok {
			return orderItems(w, x.Items, y.Items, op, depth)
		}
	}
	return false, fmt.Errorf("%w: '%s' not supported between instances of '%s' and '%s'", ErrType, op, TypeName(a), TypeName(b))
}

func orderItems(w *work.Budget, a, b []any, op string, depth int) (bool, error) {
	for i := 0; i < len(a) && i < len(b); i++ {
		eq, err := same(w, a[i], b[i], depth+1)
		if err != nil {
			return false, err
		}
		if !eq {
			return order(w, a[i], b[i], op, depth+1)
		}
	}
	return len(a) < len(b) || op == "<=" && len(a) == len(b), nil
}
