package jinja

import (
	"math"
	"math/big"
	"strings"

	"warmroute/render/internal/pyvalue"
)

var binaryOps = map[string]func(st *state, a, b any) any{
	"-":  (*state).sub,
	"*":  (*state).mul,
	"/":  (*state).div,
	"//": (*state).floorDiv,
	"%":  (*state).mod,
	"**": (*state).pow,
}

var compareOps = map[string]func(st *state, a, b any) bool{
	"==":     (*state).equal,
	"!=":     func(st *state, a, b any) bool { return !st.equal(a, b) },
	"<":      (*state).less,
	"<=":     (*state).lessEqual,
	">":      func(st *state, a, b any) bool { return st.less(b, a) },
	">=":     func(st *state, a, b any) bool { return st.lessEqual(b, a) },
	"in":     func(st *state, a, b any) bool { return st.contains(b, a) },
	"not in": func(st *state, a, b any) bool { return !st.contains(b, a) },
}

func (st *state) lessEqual(a, b any) bool {
	defined(a)
	defined(b)
	le, err := pyvalue.LessEqual(st.work, a, b)
	st.check(err)
	return le
}

func badOperands(op string, a, b any) any {
	defined(a)
	defined(b)
	typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, pyvalue.TypeName(a), pyvalue.TypeName(b))
	return nil
}

// asInt returns an int or bool as an int64 or *big.Int.
func asInt(v any) (any, bool) {
	switch v := v.(type) {
	case int64, *big.Int:
		return v, true
	case bool:
		if v {
			return int64(1), true
		}
		return int64(0), true
	}
	return nil, false
}

// asFloat returns a number as the float that it is in mixed arithmetic.
func asFloat(v any) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case int64:
		return float64(v), true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			fail(ErrRuntime, "int too large to convert to float")
		}
		return f, true
	}
	return 0, false
}

// arith computes + - or * of two numbers; false: one is not a number.
func arith(op byte, a, b any) (any, bool) {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		return arithInt(op, x, y), true
	}
	f, ok := asFloat(a)
	g, ok2 := asFloat(b)
	if !ok || !ok2 {
		return nil, false
	}
	switch op {
	case '+':
		return f + g, true
	case '-':
		return f - g, true
	}
	return f * g, true
}

func arithInt(op byte, x, y any) any {
	i, small := x.(int64)
	j, small2 := y.(int64)
	if small && small2 {
		switch op {
		case '+':
			if s := i + j; (s > i) == (j > 0) {
				return s
			}
		case '-':
			if s := i - j; (s < i) == (j > 0) {
				return s
			}
		case '*':
			if a, b := max(i, -i), max(j, -j); a >= 0 && b >= 0 && a < 1<<31 && b < 1<<31 {
				return i * j
			}
		}
	}
	r := new(big.Int)
	switch op {
	case '+':
		r.Add(pyvalue.AsBig(x), pyvalue.AsBig(y))
	case '-':
		r.Sub(pyvalue.AsBig(x), pyvalue.AsBig(y))
	default:
		r.Mul(pyvalue.AsBig(x), pyvalue.AsBig(y))
	}
	return pyvalue.Int(r)
}

// chargeBig charges for arithmetic on huge integers.
func (st *state) chargeBig(vs ...any) {
	for _, v := range vs {
		if b, ok := v.(*big.Int); ok && b.BitLen() > 1024 {
			bytes := b.BitLen() / 8
			st.charge(bytes * (1 + bytes/1024))
		}
	}
}

func (st *state) add(a, b any) any {
	if s, ok := a.(string); ok {
		switch t := b.(type) {
		case string:
			return st.joinStrings([]string{s, t}, len(s)+len(t))
		case markup:
			return st.joinMarkup(st.escape(s), t)
		case *undefined:
			t.fail()
		}
		typeError("can only concatenate str (not \"%s\") to str", pyvalue.TypeName(b))
	}
	st.chargeBig(a, b)
	if v, ok := arith('+', a, b); ok {
		return v
	}
	switch x := a.(type) {
	case markup:
		switch t := b.(type) {
		case string:
			return st.joinMarkup(x, st.escape(t))
		case markup:
			return st.joinMarkup(x, t)
		}
	case *list:
		if y, ok := b.(*list); ok {
			return &list{Items: st.joinItems(x.Items, y.Items)}
		}
	case *tuple:
		if y, ok := b.(*tuple); ok {
			return &tuple{Items: st.joinItems(x.Items, y.Items)}
		}
	case bytesVal:
		if y, ok := b.(bytesVal); ok {
			st.charge(len(x) + len(y))
			return x + y
		}
	}
	return badOperands("+", a, b)
}

func (st *state) joinMarkup(a, b markup) markup {
	st.charge(len(a) + len(b))
	return a + b
}

func (st *state) joinItems(a, b []any) []any {
	st.charge(16 * (len(a) + len(b)))
	return append(append(make([]any, 0, len(a)+len(b)), a...), b...)
}

func (st *state) sub(a, b any) any {
	st.chargeBig(a, b)
	if v, ok := arith('-', a, b); ok {
		return v
	}
	return badOperands("-", a, b)
}

func (st *state) mul(a, b any) any {
	st.chargeBig(a, b)
	if v, ok := arith('*', a, b); ok {
		return v
	}
	if _, ok := asInt(a); ok {
		a, b = b, a
	}
	if _, isUndefined := a.(*undefined); !isUndefined {
		if n, ok := asInt(b); ok {
			if v, ok := st.repeat(a, n); ok {
				return v
			}
		}
	}
	return badOperands("*", a, b)
}

func (st *state) repeat(a, n any) (any, bool) {
	count := func(size int) int {
		i, ok := n.(int64)
		if !ok {
			if n.(*big.Int).Sign() < 0 {
				return 0
			}
			fail(ErrRuntime, "cannot fit 'int' into an index-sized integer")
		}
		if i <= 0 || size == 0 {
			return 0
		}
		if i > int64(st.limits.Output/size) {
			fail(ErrLimit, "a value of more than %d bytes", st.limits.Output)
		}
		st.charge(int(i) * size)
		return int(i)
	}
	repeatItems := func(items []any) []any {
		var out []any
		for range count(16 * len(items)) {
			out = append(out, items...)
		}
		return out
	}
	switch a := a.(type) {
	case string:
		return strings.Repeat(a, count(len(a))), true
	case markup:
		return markup(strings.Repeat(string(a), count(len(a)))), true
	case bytesVal:
		return bytesVal(strings.Repeat(string(a), count(len(a)))), true
	case *list:
		return &list{Items: repeatItems(a.Items)}, true
	case *tuple:
		return &tuple{Items: repeatItems(a.Items)}, true
	}
	return nil, false
}

func (st *state) div(a, b any) any {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		i, small := x.(int64)
		j, small2 := y.(int64)
		if small && small2 && j != 0 && max(i, -i) <= 1<<53 && max(j, -j) <= 1<<53 && i != math.MinInt64 && j != math.MinInt64 {
			return float64(i) / float64(j)
		}
		den := pyvalue.AsBig(y)
		if den.Sign() == 0 {
			fail(ErrRuntime, "division by zero")
		}
		st.chargeBig(x, y)
		f, _ := new(big.Rat).SetFrac(pyvalue.AsBig(x), den).Float64()
		if math.IsInf(f, 0) {
			fail(ErrRuntime, "integer division result too large for a float")
		}
		return f
	}
	f, ok := asFloat(a)
	g, ok2 := asFloat(b)
	if !ok || !ok2 {
		return badOperands("/", a, b)
	}
	if g == 0 {
		fail(ErrRuntime, "float division by zero")
	}
	return f / g
}

// divMod returns Python's divmod of two numbers.
func (st *state) divMod(op string, a, b any) (q, r any) {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt {
		i, small := x.(int64)
		j, small2 := y.(int64)
		if small && small2 && j != 0 && j != -1 {
			q, r := i/j, i%j
			if r != 0 && (r < 0) != (j < 0) {
				q--
				r += j
			}
			return q, r
		}
		den := pyvalue.AsBig(y)
		if den.Sign() == 0 {
			fail(ErrRuntime, "integer division or modulo by zero")
		}
		st.chargeBig(x, y)
		qb, rb := new(big.Int).DivMod(pyvalue.AsBig(x), den, new(big.Int))
		if den.Sign() < 0 && rb.Sign() != 0 { // Go's r is never negative, Python's has den's sign
			qb.Sub(qb, big.NewInt(1))
			rb.Add(rb, den)
		}
		return pyvalue.Int(qb), pyvalue.Int(rb)
	}
	f, ok := asFloat(a)
	g, ok2 := asFloat(b)
	if !ok || !ok2 {
		badOperands(op, a, b)
	}
	if g == 0 {
		fail(ErrRuntime, "float floor division by zero")
	}
	return floatDivMod(f, g)
}

// floatDivMod follows CPython's float_divmod.
func floatDivMod(f, g float64) (q, r any) {
	mod := math.Mod(f, g)
	div := (f - mod) / g
	if mod != 0 {
		if (g < 0) != (mod < 0) {
			mod += g
			div--
		}
	} else {
		mod = math.Copysign(0, g)
	}
	floor := math.Copysign(0, f/g)
	if div != 0 {
		if floor = math.Floor(div); div-floor > 0.5 {
			floor++
		}
	}
	return floor, mod
}

func (st *state) floorDiv(a, b any) any {
	q, _ := st.divMod("//", a, b)
	return q
}

func (st *state) mod(a, b any) any {
	if i, ok := a.(int64); ok { // mostly the loop's index
		if j, ok := b.(int64); ok && i >= 0 && j > 0 {
			return i % j
		}
	}
	if s, ok := pyvalue.Text(a); ok {
		_, isMarkup := a.(markup)
		out := st.percent(s, b, isMarkup)
		if isMarkup {
			return markup(out)
		}
		return out
	}
	_, r := st.divMod("%", a, b)
	return r
}

// maxPowBits bounds an integer power, in bits: far more than the 4300 digits that can
// be printed.
const maxPowBits = 1 << 20

func (st *state) pow(a, b any) any {
	x, xInt := asInt(a)
	y, yInt := asInt(b)
	if xInt && yInt && pyvalue.AsBig(y).Sign() >= 0 {
		base, exp := pyvalue.AsBig(x), pyvalue.AsBig(y)
		if base.BitLen() > 1 {
			if !exp.IsInt64() || exp.Int64() > maxPowBits || int64(base.BitLen())*exp.Int64() > maxPowBits {
				fail(ErrLimit, "an integer of more than %d bits", maxPowBits)
			}
			st.charge(base.BitLen() * int(exp.Int64()) / 8)
		} else if !exp.IsInt64() {
			exp = new(big.Int).And(exp, big.NewInt(1)) // 0, 1 or -1 to a huge power
			if base.Sign() == 0 {
				return int64(0)
			}
		}
		return pyvalue.Int(new(big.Int).Exp(base, exp, nil))
	}
	f, ok := asFloat(a)
	g, ok2 := asFloat(b)
	if !ok || !ok2 {
		return badOperands("** or pow()", a, b)
	}
	switch {
	case f == 0 && g < 0:
		fail(ErrRuntime, "0.0 cannot be raised to a negative power")
	case f < 0 && g != math.Trunc(g) && !math.IsInf(f, 0) && !math.IsInf(g, 0):
		refuse("complex number")
	}
	r := math.Pow(f, g)
	if math.IsInf(r, 0) && !math.IsInf(f, 0) && !math.IsInf(g, 0) {
		fail(ErrRuntime, "Numerical result out of range")
	}
	return r
}

func (st *state) signed(v any, neg bool) any {
	if i, ok := asInt(v); ok {
		if neg {
			return arithInt('-', int64(0), i)
		}
		return i
	}
	if f, ok := v.(float64); ok {
		if neg {
			return -f
		}
		return f
	}
	defined(v)
	typeError("bad operand type for unary sign: '%s'", pyvalue.TypeName(v))
	return nil
}

// contains reports whether x is in c.
func (st *state) contains(c, x any) bool {
	if s, ok := pyvalue.Text(c); ok {
		sub, ok := pyvalue.Text(x)
		if !ok {
			typeError("'in <string>' requires string as left operand, not %s", pyvalue.TypeName(x))
		}
		st.search(s, sub)
		return strings.Contains(s, sub)
	}
	switch c := c.(type) {
	case *dict:
		st.hashable(x)
		_, ok := c.Get(x)
		return ok
	case *dictView:
		switch c.kind {
		case "dict_keys":
			st.hashable(x)
			_, ok := c.d.Get(x)
			return ok
		case "dict_items":
			if t, ok := x.(*tuple); ok && len(t.Items) == 2 {
				st.hashable(t.Items[0])
				v, ok := c.d.Get(t.Items[0])
				return ok && st.equal(v, t.Items[1])
			}
			return false
		}
	case bytesVal:
		if sub, ok := x.(bytesVal); ok {
			st.search(string(c), string(sub))
			return strings.Contains(string(c), string(sub))
		}
	case *list, *tuple, *rangeVal, *generator, *undefined, *loopContext:
	default:
		if !st.iterable(c) {
			typeError("argument of type '%s' is not iterable", pyvalue.TypeName(c))
		}
	}
	for it := st.iterate(c); ; {
		v, ok := it.next()
		if !ok {
			return false
		}
		st.step()
		if st.equal(v, x) {
			return true
		}
	}
}

// search charges for searching s for sub.
func (st *state) search(s, sub string) { st.scan(len(s) + len(sub)) }

func (st *state) hashable(v any) {
	pyvalue.ChargeHash(st.work, v)
	if !pyvalue.Hashable(v) {
		typeError("unhashable type: '%s'", pyvalue.TypeName(v))
	}
}
