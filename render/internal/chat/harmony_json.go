package chat

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"warmroute/render/internal/pyvalue"
)

// json prints a value as Rust's serde_json prints it after reading it from Python's json:
// serde_json does not always read the nearest float.
func (t *typescript) json(v any) string {
	return string(t.appendJSON(nil, v))
}

func (t *typescript) appendJSON(dst []byte, v any) []byte {
	t.work.Step(fieldSteps)
	t.work.Memory(16)
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case *big.Int:
		if v.IsUint64() {
			return v.Append(dst, 10)
		}
		return t.appendFloat(dst, v.String())
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			t.unknown = true
			return dst
		}
		return t.appendFloat(dst, string(pyvalue.AppendFloat(nil, v)))
	case string:
		t.work.Step(len(v) / 4)
		t.work.Memory(2 * len(v))
		return appendSerdeString(dst, v)
	case *pyvalue.List:
		dst = append(dst, '[')
		for i, item := range v.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = t.appendJSON(dst, item)
		}
		return append(dst, ']')
	case *pyvalue.Dict:
		dst = append(dst, '{')
		first := true
		for key, item := range v.All() {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			t.work.Step(len(key.(string)) / 4)
			t.work.Memory(2 * len(key.(string)))
			dst = append(appendSerdeString(dst, key.(string)), ':')
			dst = t.appendJSON(dst, item)
		}
		return append(dst, '}')
	}
	t.unknown = true
	return dst
}

// appendFloat prints the shortest digits of the number that serde_json reads: as
// a decimal from 1e-5 to below 1e16, else with an exponent that has a sign.
func (t *typescript) appendFloat(dst []byte, number string) []byte {
	f, ok := serdeFloat(number)
	if !ok {
		t.unknown = true
		return dst
	}
	if a := math.Abs(f); f == 0 || a >= 1e-5 && a < 1e16 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return append(dst, s...)
	}
	digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
	return append(append(append(append(dst, digits...), 'e'), exponent[0]), strings.TrimLeft(exponent[1:], "0")...)
}

// serdeFloat reads a number as serde_json does without its feature float_roundtrip: it
// converts the digits that fit 64 bits to a float, and multiplies or divides that by a
// power of ten.
func serdeFloat(number string) (f float64, ok bool) {
	number, negative := strings.CutPrefix(number, "-")
	mantissa, e, _ := strings.Cut(number, "e")
	exponent, err := 0, error(nil)
	if e != "" {
		if exponent, err = strconv.Atoi(e); err != nil {
			return 0, false
		}
	}
	var significand uint64
	full, point := false, false
	for _, c := range []byte(mantissa) {
		if c == '.' {
			point = true
			continue
		}
		digit := uint64(c - '0')
		full = full || significand > (math.MaxUint64-digit)/10
		switch {
		case full && !point:
			exponent++
		case !full:
			significand = significand*10 + digit
			if point {
				exponent--
			}
		}
	}
	f = float64(significand)
	for exponent < -308 && f != 0 {
		f /= 1e308
		exponent += 308
	}
	switch {
	case f == 0:
	case exponent > 308:
		return 0, false
	case exponent >= 0:
		f *= powerOfTen(exponent)
	default:
		f /= powerOfTen(-exponent)
	}
	if negative {
		f = -f
	}
	return f, !math.IsInf(f, 0)
}

// powerOfTen returns the float nearest to 10ⁿ.
func powerOfTen(n int) float64 {
	f, _ := strconv.ParseFloat("1e"+strconv.Itoa(n), 64) // always valid
	return f
}

func appendSerdeString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c >= 0x20:
			dst = append(dst, c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		default:
			const hex = "0123456789abcdef"
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(dst, '"')
}
