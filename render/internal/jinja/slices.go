package jinja

import (
	"math"
	"math/big"
	"unicode/utf8"

	"warmroute/render/internal/pyvalue"
)

// index returns operator.index(v), cut to 64 bits; false: v is no subscript and no
// slice bound.
func index(v any) (int64, bool) {
	i, ok := asInt(v)
	if !ok {
		return 0, false
	}
	if n, ok := i.(int64); ok {
		return n, true
	}
	if i.(*big.Int).Sign() < 0 {
		return math.MinInt64, true
	}
	return math.MaxInt64, true
}

// sliceIndices returns slice(...).indices(n).
func sliceIndices(bounds [3]any, n int) (start, stop, step int64) {
	var b [3]int64
	var given [3]bool
	for i, v := range bounds {
		if v == nil {
			continue
		}
		x, ok := index(v)
		if !ok {
			typeError("slice indices must be integers or None or have an __index__ method")
		}
		b[i], given[i] = x, true
	}
	if !given[2] {
		b[2] = 1
	}
	if b[2] == 0 {
		valueError("slice step cannot be zero")
	}
	size := int64(n)
	low, high := int64(0), size
	if b[2] < 0 {
		low, high = -1, size-1
	}
	clamp := func(i int, def int64) int64 {
		v := b[i]
		if !given[i] {
			return def
		}
		if v < 0 {
			if v < -size {
				return low
			}
			return max(v+size, low)
		}
		return min(v, high)
	}
	if b[2] > 0 {
		return clamp(0, 0), clamp(1, size), b[2]
	}
	return clamp(0, high), clamp(1, low), b[2]
}

// sliceBounds returns the first index, the step and the number of a slice's items.
func sliceBounds(bounds [3]any, n int) (first, by, count int) {
	start, stop, step := sliceIndices(bounds, n)
	size := int64(n)
	switch {
	case step > 0 && start < stop:
		step = min(step, size+1)
		return int(start), int(step), int((stop-start-1)/step) + 1
	case step < 0 && start > stop:
		step = max(step, -size-1)
		return int(start), int(step), int((start-stop-1)/-step) + 1
	}
	return 0, 1, 0
}

// canSlice reports whether slice works without a TypeError.
func canSlice(v any, bounds [3]any) bool {
	for _, b := range bounds {
		if _, ok := index(b); b != nil && !ok {
			return false
		}
	}
	switch v.(type) {
	case string, markup, *list, *tuple, bytesVal, *rangeVal, *undefined:
		return true
	}
	return false
}

// slice returns v[a:b:c].
func (st *state) slice(v any, bounds [3]any) any {
	pick := func(items []any) []any {
		start, step, n := sliceBounds(bounds, len(items))
		st.charge(16 * n)
		st.walk(n)
		out := st.values.carve(n)
		for i := range out {
			out[i] = items[start+i*step]
		}
		return out
	}
	switch v := v.(type) {
	case string:
		return st.sliceString(v, bounds)
	case markup:
		return markup(st.sliceString(string(v), bounds))
	case *list:
		return &list{Items: pick(v.Items)}
	case *tuple:
		return &tuple{Items: pick(v.Items)}
	case bytesVal:
		start, step, n := sliceBounds(bounds, len(v))
		st.charge(n)
		st.walk(n)
		out := make([]byte, n)
		for i := range out {
			out[i] = v[start+i*step]
		}
		return bytesVal(out)
	case *rangeVal:
		start, stop, step := sliceIndices(bounds, v.len())
		return &rangeVal{v.start + start*v.step, v.start + stop*v.step, v.step * step}
	case *undefined:
		v.fail()
	}
	typeError("'%s' object is not subscriptable with a slice", pyvalue.TypeName(v))
	return nil
}

func (st *state) sliceString(s string, bounds [3]any) string {
	st.scan(len(s))
	if pyvalue.IsASCII(s) {
		start, step, n := sliceBounds(bounds, len(s))
		if step == 1 {
			return s[start : start+n]
		}
		st.charge(n)
		st.walk(n)
		out := make([]byte, n)
		for i := range out {
			out[i] = s[start+i*step]
		}
		return bytesString(out)
	}
	st.scan(len(s))
	start, step, n := sliceBounds(bounds, pyvalue.Len(s))
	if step == 1 {
		st.walk(start + n)
		from := byteOffset(s, start)
		return s[from : from+byteOffset(s[from:], n)]
	}
	st.walk(len(s))
	st.charge(4 * len(s))
	runes := []rune(s)
	st.charge(2 * n)
	st.walk(n)
	out := make([]byte, 0, n)
	for i := range n {
		out = utf8.AppendRune(out, runes[start+i*step])
	}
	return bytesString(out)
}

// byteOffset returns the byte offset of character n of s.
func byteOffset(s string, n int) int {
	i := 0
	for ; n > 0 && i < len(s); n-- {
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return i
}
