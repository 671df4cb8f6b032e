package kvevents

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/vmihailenco/msgpack/v5"

	"warmroute/render/testkit/must"
)

// packed writes a value as the library does.
func packed(t *testing.T, put func(*msgpack.Encoder) error) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Do(t, put(msgpack.NewEncoder(&b)))
	return b.Bytes()
}

// TestIntegersOfEveryForm: each number in every form that holds it, at the edges of
// all forms; as integer, as int31, as seconds, as token, as hash.
func TestIntegersOfEveryForm(t *testing.T) {
	check := func(b []byte, bits uint64, negative bool) {
		t.Helper()
		c := cursor{b: b}
		if got, sign := c.integer(); got != bits || sign != negative || c.err != nil || c.i != len(b) {
			t.Errorf("% x: read %d, negative %v, %v, %d bytes", b, got, sign, c.err, c.i)
		}
		fits := -1
		if !negative && bits <= math.MaxInt32 {
			fits = int(bits)
		}
		if c = (cursor{b: b}); c.int31() != fits {
			t.Errorf("% x: does not give %d of 31 bits", b, fits)
		}
		seconds := float64(bits)
		if negative {
			seconds = float64(int64(bits))
		}
		if c = (cursor{b: b}); c.seconds() != seconds {
			t.Errorf("% x: does not give %g seconds", b, seconds)
		}
		if c = (cursor{b: b}); c.hash() != bits {
			t.Errorf("% x: does not give the hash %d", b, bits)
		}
		c = cursor{b: append([]byte{0x92}, append(bytes.Clone(b), 7)...)}
		if ids, ok := c.tokens(nil); ok != (!negative && bits <= math.MaxUint32) || len(ids) != 2 || ids[1] != 7 || ok && uint64(ids[0]) != bits {
			t.Errorf("% x: tokens %v, %v", b, ids, ok)
		}
		if !isInt(b[0]) || isStr(b[0]) || isBin(b[0]) {
			t.Errorf("% x is not taken for an integer", b)
		}
	}
	for _, n := range []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, math.MaxUint32 + 1, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
		check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeUint(n) }), n, false)
		if n <= math.MaxUint8 {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeUint8(uint8(n)) }), n, false)
		}
		if n <= math.MaxUint16 {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeUint16(uint16(n)) }), n, false)
		}
		if n <= math.MaxUint32 {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeUint32(uint32(n)) }), n, false)
		}
		check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeUint64(n) }), n, false)
	}
	for _, n := range []int64{0, 5, 127, -1, -31, -32, -33, -128, -129, -32768, -32769, math.MinInt32, math.MinInt32 - 1, math.MinInt64, math.MaxInt64} {
		check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeInt(n) }), uint64(n), n < 0)
		if n == int64(int8(n)) {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeInt8(int8(n)) }), uint64(n), n < 0)
		}
		if n == int64(int16(n)) {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeInt16(int16(n)) }), uint64(n), n < 0)
		}
		if n == int64(int32(n)) {
			check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeInt32(int32(n)) }), uint64(n), n < 0)
		}
		check(packed(t, func(e *msgpack.Encoder) error { return e.EncodeInt64(n) }), uint64(n), n < 0)
	}
	for _, other := range []byte{0x80, 0xdf, 0xc0, 0xcb, 0xd4} { // besides the integers' first bytes
		c := cursor{b: []byte{other, 1, 2, 3, 4, 5, 6, 7, 8}}
		if c.integer(); isInt(other) || !errors.Is(c.err, ErrType) {
			t.Errorf("%x is taken for an integer", other)
		}
		c = cursor{b: []byte{0x91, other, 1, 2, 3, 4, 5, 6, 7, 8}}
		if _, ok := c.tokens(nil); ok {
			t.Errorf("%x is taken for a token", other)
		}
	}
	for _, b := range [][]byte{{0xcb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0}, {0xca, 0x3f, 0xc0, 0, 0}} {
		if c := (cursor{b: b}); c.seconds() != 1.5 || c.i != len(b) {
			t.Errorf("% x is not 1.5 s", b)
		}
	}
}

// everyKind is a value of each kind that msgpack has, in each of its forms.
func everyKind(t *testing.T) (all [][]byte) {
	for _, first := range []byte{0xc0, 0xc2, 0xc3, 0x00, 0x7f, 0xe0, 0xff} {
		all = append(all, []byte{first})
	}
	for form, size := range map[byte]int{0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8, 0xd0: 1, 0xd1: 2, 0xd2: 4, 0xd3: 8, 0xca: 4, 0xcb: 8,
		0xd4: 1 + 1, 0xd5: 1 + 2, 0xd6: 1 + 4, 0xd7: 1 + 8, 0xd8: 1 + 16} {
		all = append(all, append([]byte{form}, make([]byte, size)...))
	}
	for _, n := range []int{0, 1, 31, 32, 255, 256, 65535, 65536} {
		all = append(all, packed(t, func(e *msgpack.Encoder) error { return e.EncodeBytes(make([]byte, n)) }))
		all = append(all, packed(t, func(e *msgpack.Encoder) error { return e.EncodeString(string(make([]byte, n))) }))
		all = append(all, packed(t, func(e *msgpack.Encoder) error {
			if err := e.EncodeExtHeader(5, n); err != nil {
				return err
			}
			_, err := e.Writer().Write(make([]byte, n))
			return err
		}))
	}
	for _, n := range []int{0, 15, 16, 65535, 65536} {
		all = append(all, packed(t, func(e *msgpack.Encoder) error { return e.EncodeArrayLen(n) }), nil)
		all[len(all)-2] = append(all[len(all)-2], make([]byte, n)...)
		all[len(all)-1] = append(packed(t, func(e *msgpack.Encoder) error { return e.EncodeMapLen(n) }), make([]byte, 2*n)...)
	}
	return all
}

// TestSkipPassesEveryKind, alone, in a row and in an array, and reads no byte more.
func TestSkipPassesEveryKind(t *testing.T) {
	for _, b := range everyKind(t) {
		show := b[:min(len(b), 8)]
		c := cursor{b: append(bytes.Clone(b), 9)}
		if c.skip(1); c.err != nil || c.i != len(b) {
			t.Errorf("% x…: passed %d of %d bytes, %v", show, c.i, len(b), c.err)
		}
		c = cursor{b: append([]byte{0x92}, append(bytes.Clone(b), b...)...)}
		if c.skip(1); c.err != nil || c.i != len(c.b) {
			t.Errorf("two of % x… in an array: passed %d of %d bytes, %v", show, c.i, len(c.b), c.err)
		}
		c = cursor{b: b[:len(b)-1]}
		if c.skip(1); !errors.Is(c.err, ErrTruncated) {
			t.Errorf("% x… without its last byte: %v", show, c.err)
		}
	}
	if c := (cursor{b: []byte{0xc1}}); true {
		if c.skip(1); !errors.Is(c.err, ErrType) {
			t.Errorf("the byte that begins nothing: %v", c.err)
		}
	}
}

// TestLengthsAreBounded by the remaining bytes: an element takes a byte at least, a
// pair two.
func TestLengthsAreBounded(t *testing.T) {
	for _, tt := range []struct {
		b    []byte
		read func(*cursor) int
		want int // -1: refused
	}{
		{[]byte{0x93, 1, 2, 3}, (*cursor).array, 3},
		{[]byte{0x93, 1, 2}, (*cursor).array, -1},
		{[]byte{0xdc, 0, 2, 1, 2}, (*cursor).array, 2},
		{[]byte{0xdd, 0, 0, 0, 2, 1}, (*cursor).array, -1},
		{[]byte{0x82, 1, 2, 3, 4}, (*cursor).dict, 2},
		{[]byte{0x82, 1, 2, 3}, (*cursor).dict, -1},
		{[]byte{0xde, 0, 1, 1, 2}, (*cursor).dict, 1},
		{[]byte{0xdf, 0xff, 0xff, 0xff, 0xff, 1, 2}, (*cursor).dict, -1},
	} {
		c := cursor{b: tt.b}
		if got := tt.read(&c); (c.err != nil) != (tt.want < 0) || got != max(0, tt.want) {
			t.Errorf("% x: %d, %v", tt.b, got, c.err)
		}
	}
}

// TestInternedStringsAreBounded: beyond the bound strings are allocated again.
func TestInternedStringsAreBounded(t *testing.T) {
	s := interned{}
	for i := range internLimit + 10 {
		b := []byte{byte(i), byte(i >> 8)}
		for range 2 { // new, then perhaps kept
			if s.of(b) != string(b) {
				t.Fatal("another string")
			}
		}
	}
	if len(s) != internLimit {
		t.Errorf("%d strings are kept", len(s))
	}
}
