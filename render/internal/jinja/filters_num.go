package jinja

import (
	"errors"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// parseInt returns int(s, base) of a text; false: Python raises ValueError.
func parseInt(b *work.Budget, s string, base int) (any, bool) {
	s, ok := plainDigits(b, pyvalue.Strip(b, s))
	if !ok || s == "" || base != 0 && (base < 2 || base > 36) {
		return nil, false
	}
	sign := ""
	if s[0] == '+' || s[0] == '-' {
		if s[0] == '-' {
			sign = "-"
		}
		s = s[1:]
	}
	if len(s) > 2 && s[0] == '0' {
		radix := map[byte]int{'x': 16, 'o': 8, 'b': 2}[s[1]|0x20]
		if radix != 0 && (base == 0 || base == radix) {
			base, s = radix, strings.TrimPrefix(s[2:], "_")
		}
	}
	if base == 0 {
		if base = 10; len(s) > 1 && s[0] == '0' && strings.Trim(s, "0_") != "" {
			return nil, false
		}
	}
	if s == "" || s[0] == '_' || s[len(s)-1] == '_' || strings.Contains(s, "__") || s[0] == '+' || s[0] == '-' {
		return nil, false
	}
	digits := strings.ReplaceAll(s, "_", "")
	if len(digits) > pyvalue.MaxDigits && base&(base-1) != 0 {
		return nil, false
	}
	b.Step(len(digits) * (1 + len(digits)/1024))
	n, ok := new(big.Int).SetString(sign+digits, base)
	if !ok {
		return nil, false
	}
	return pyvalue.Int(n), true
}

// plainDigits turns decimal digits of any script into ASCII: int() and float() accept
// them.
func plainDigits(w *work.Budget, s string) (string, bool) {
	w.Step(len(s) / 4) // int() and float() read the text a few times
	w.Memory(4 * len(s))
	if pyvalue.IsASCII(s) {
		return s, true
	}
	var b strings.Builder
	for _, r := range s {
		w.Step(4)
		switch {
		case r < unicode.MaxASCII:
			b.WriteRune(r)
		case pyvalue.IsDecimal(r):
			b.WriteByte('0' + byte(digitValue(r)))
		case pyvalue.IsSpace(r):
			b.WriteByte(' ')
		default:
			return "", false
		}
	}
	return b.String(), true
}

// digitValue returns the value of a decimal digit. Decimal digits come in runs of ten
// that start at a zero.
func digitValue(r rune) int {
	start := r
	for pyvalue.IsDecimal(start - 1) {
		start--
	}
	return int(r-start) % 10
}

// parseFloat returns float(s) of a text; false: Python raises ValueError.
func parseFloat(b *work.Budget, s string) (float64, bool) {
	s, ok := plainDigits(b, pyvalue.Strip(b, s))
	if !ok || s == "" {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] == '_' && (i == 0 || i+1 == len(s) || !isDigit(s[i-1]) || !isDigit(s[i+1])) {
			return 0, false
		}
	}
	lower := strings.ToLower(s)
	switch strings.TrimLeft(lower, "+-") {
	case "inf", "infinity", "nan":
		if len(lower)-len(strings.TrimLeft(lower, "+-")) > 1 {
			return 0, false
		}
		f, err := strconv.ParseFloat(strings.TrimLeft(lower, "+"), 64)
		if strings.HasSuffix(lower, "nan") {
			return math.NaN(), true
		}
		return f, err == nil
	}
	if strings.ContainsAny(lower, "xpin") {
		return 0, false
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if errors.Is(err, strconv.ErrRange) {
		return f, true
	}
	return f, err == nil
}

// toFloat returns float(v); false: Python raises TypeError or ValueError.
func toFloat(b *work.Budget, v any) (float64, bool) {
	if s, ok := pyvalue.Text(v); ok {
		return parseFloat(b, s)
	}
	defined(v)
	if text, ok := v.(bytesVal); ok {
		return parseFloat(b, string(text))
	}
	return asFloat(v)
}

func filterInt(st *state, v any, a *args) any {
	p := a.bind("int", 0, "default", "base")
	base := 10
	if p[1] != absent {
		base = intArg("int", p[1])
	}
	var def any = int64(0)
	if p[0] != absent {
		def = p[0]
	}
	if s, ok := pyvalue.Text(v); ok {
		if i, ok := parseInt(st.work, s, base); ok {
			return i
		}
	} else if i, ok := asInt(v); ok {
		return i
	} else if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return def
		}
		return truncate(f) // infinity is an OverflowError, which Jinja does not catch here
	}
	f, ok := toFloat(st.work, v)
	if !ok || math.IsNaN(f) || math.IsInf(f, 0) {
		return def
	}
	return truncate(f)
}

func filterFloat(st *state, v any, a *args) any {
	p := a.bind("float", 0, "default")
	if f, ok := toFloat(st.work, v); ok {
		return f
	}
	if p[0] != absent {
		return p[0]
	}
	return 0.0
}

func filterRound(st *state, v any, a *args) any {
	p := a.bind("round", 0, "precision", "method")
	how := "common"
	if p[1] != absent {
		st.hashable(p[1])
		how, _ = pyvalue.Text(p[1])
	}
	var precision any = int64(0)
	if p[0] != absent {
		precision = p[0]
	}
	switch how {
	case "common":
		st.chargeBig(v)
		return roundHalfEven(v, precision)
	case "ceil", "floor":
	default:
		fail(ErrRuntime, "method must be common, ceil or floor")
	}
	scale := st.pow(int64(10), precision)
	scaled := st.mul(v, scale)
	i, ok := asInt(scaled)
	if !ok {
		f, isFloat := scaled.(float64)
		if !isFloat {
			typeError("must be real number, not %s", pyvalue.TypeName(scaled))
		}
		if how == "ceil" {
			f = math.Ceil(f)
		} else {
			f = math.Floor(f)
		}
		i = truncate(f)
	}
	return st.div(i, scale)
}

// roundHalfEven returns round(v, precision).
func roundHalfEven(v, precision any) any {
	n := 0
	if precision != nil {
		n = sizeArg("round", precision)
	}
	if i, ok := asInt(v); ok {
		return roundInt(i, n)
	}
	f, ok := v.(float64)
	if !ok {
		defined(v)
		typeError("type %s doesn't define __round__ method", pyvalue.TypeName(v))
	}
	if precision == nil {
		return truncate(math.RoundToEven(f))
	}
	if math.IsNaN(f) || math.IsInf(f, 0) || n > 323 {
		return f
	}
	if n < -308 {
		return math.Copysign(0, f)
	}
	if n >= 0 {
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', n, 64), 64)
		if err != nil {
			fail(errOverflow, "rounded value too large to represent")
		}
		return r
	}
	b, _ := new(big.Float).SetFloat64(math.Trunc(f)).Int(nil)
	half := f - math.Trunc(f) // it breaks ties of the integer part
	r := roundBig(b, -n, half)
	out, _ := new(big.Float).SetInt(r).Float64()
	if math.IsInf(out, 0) {
		fail(errOverflow, "rounded value too large to represent")
	}
	if out == 0 {
		return math.Copysign(0, f)
	}
	return out
}

func roundInt(i any, n int) any {
	if n >= 0 {
		return i
	}
	if n < -pyvalue.MaxDigits {
		return int64(0)
	}
	return pyvalue.Int(roundBig(pyvalue.AsBig(i), -n, 0))
}

// roundBig rounds b to a multiple of 10^digits, ties to even; rest is a fraction with
// b's sign that breaks ties.
func roundBig(b *big.Int, digits int, rest float64) *big.Int {
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil)
	q, r := new(big.Int).QuoRem(b, unit, new(big.Int))
	twice := new(big.Int).Abs(r)
	twice.Lsh(twice, 1)
	c := twice.Cmp(unit)
	if c > 0 || c == 0 && (rest != 0 || q.Bit(0) == 1) {
		if b.Sign() < 0 {
			q.Sub(q, big.NewInt(1))
		} else {
			q.Add(q, big.NewInt(1))
		}
	}
	return q.Mul(q, unit)
}
