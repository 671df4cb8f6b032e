package pyvalue

import (
	"math"
	"math/big"
	"strconv"
)

// AppendFloat appends repr(f): the shortest text that reads back as f, with an
// exponent below 1e-4 and from 1e16 on.
func AppendFloat(dst []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "nan"...)
	case math.IsInf(f, 1):
		return append(dst, "inf"...)
	case math.IsInf(f, -1):
		return append(dst, "-inf"...)
	case f == 0:
		if math.Signbit(f) {
			dst = append(dst, '-')
		}
		return append(dst, "0.0"...)
	}
	if a := math.Abs(f); a >= 1e-4 && a < 1e16 {
		n := len(dst)
		dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
		for _, c := range dst[n:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, ".0"...)
	}
	return strconv.AppendFloat(dst, f, 'e', -1, 64) // two exponent digits, as Python
}

// CompareIntFloat compares without rounding, as Python does: -1, 0 or 1; ok is false
// for NaN.
func CompareIntFloat(i any, f float64) (c int, ok bool) {
	if math.IsNaN(f) {
		return 0, false
	}
	if math.IsInf(f, 1) {
		return -1, true
	}
	if math.IsInf(f, -1) {
		return 1, true
	}
	if n, isSmall := i.(int64); isSmall && n > -1<<53 && n < 1<<53 {
		switch g := float64(n); {
		case g < f:
			return -1, true
		case g > f:
			return 1, true
		}
		return 0, true
	}
	b := AsBig(i)
	return new(big.Float).SetInt(b).Cmp(big.NewFloat(f)), true
}

// AsBig returns an int64, bool or *big.Int as a *big.Int that callers must not change.
func AsBig(v any) *big.Int {
	switch v := v.(type) {
	case int64:
		return big.NewInt(v)
	case bool:
		if v {
			return big.NewInt(1)
		}
		return new(big.Int)
	case *big.Int:
		return v
	}
	return nil
}

// appendInt appends the decimal text of b. It refuses integers that CPython refuses.
func appendInt(dst []byte, b *big.Int) ([]byte, error) {
	// 10^4300 has 14285 bits. Digits are counted only for integers near that size; the
	// conversion of larger ones is slow, and is not tried.
	if bits := b.BitLen(); bits > 14280 {
		if bits > 14285 {
			return dst, ErrDigits
		}
		s := new(big.Int).Abs(b).Text(10)
		if len(s) > MaxDigits {
			return dst, ErrDigits
		}
	}
	return b.Append(dst, 10), nil
}
