package kvevents

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
)

// The reasons for rejecting a payload. Errors returned by Decode wrap one of them and
// name the place, never a value: values may be token ids or salts.
var (
	ErrTruncated = errors.New("truncated")
	ErrTrailing  = errors.New("bytes after the batch")
	ErrType      = errors.New("unexpected msgpack type")
	ErrNilHash   = errors.New("nil block hash")
	ErrBlockSize = errors.New("block_size is not possible")
	ErrGroup     = errors.New("group_idx is not possible")
	ErrMissing   = errors.New("required field missing")
	ErrEvents    = errors.New("too many events")
)

// cursor reads msgpack from a byte slice. The first error stays, further reads return
// zeros, so callers check once per value that matters. It never allocates more than a
// small multiple of the received bytes: every element takes at least a byte, so a
// length above the rest is truncation.
type cursor struct {
	b   []byte
	i   int
	err error
}

func (c *cursor) fail(err error) {
	if c.err == nil {
		c.err = err
		c.i = len(c.b)
	}
}

// take returns the next n bytes.
func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.b)-c.i {
		c.fail(ErrTruncated)
		return nil
	}
	b := c.b[c.i : c.i+n]
	c.i += n
	return b
}

func (c *cursor) tag() byte {
	if c.i >= len(c.b) {
		c.fail(ErrTruncated)
		return tagNever
	}
	t := c.b[c.i]
	c.i++
	return t
}

func (c *cursor) peek() byte {
	if c.i >= len(c.b) {
		c.fail(ErrTruncated)
		return tagNever
	}
	return c.b[c.i]
}

// The msgpack tags that this package distinguishes. The format never uses 0xc1.
const (
	tagNil     = 0xc0
	tagNever   = 0xc1
	tagBin8    = 0xc4
	tagBin16   = 0xc5
	tagBin32   = 0xc6
	tagFloat32 = 0xca
	tagFloat64 = 0xcb
	tagUint8   = 0xcc
	tagUint16  = 0xcd
	tagUint32  = 0xce
	tagUint64  = 0xcf
	tagInt8    = 0xd0
	tagInt64   = 0xd3
	tagStr8    = 0xd9
	tagStr16   = 0xda
	tagStr32   = 0xdb
	tagArray16 = 0xdc
	tagArray32 = 0xdd
	tagMap16   = 0xde
	tagMap32   = 0xdf
)

// null consumes a nil if the next value is one.
func (c *cursor) null() bool {
	if c.peek() != tagNil {
		return false
	}
	c.i++
	return true
}

// uint reads n (1, 2, 4 or 8) bytes, big-endian.
func (c *cursor) uint(n int) uint64 {
	b := c.take(n)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// array reads an array's length, dict a map's number of pairs.
func (c *cursor) array() int { return c.length(0x90, tagArray16, 1) }
func (c *cursor) dict() int  { return c.length(0x80, tagMap16, 2) }

// length reads a length: it is in a short tag, or in 2 bytes behind long or in 4 behind the next tag.
func (c *cursor) length(short, long byte, each uint64) int {
	t := c.tag()
	switch {
	case t&0xf0 == short:
		return c.bounded(uint64(t&0x0f), each)
	case t == long:
		return c.bounded(c.uint(2), each)
	case t == long+1:
		return c.bounded(c.uint(4), each)
	}
	c.fail(ErrType)
	return 0
}

func (c *cursor) bounded(n uint64, each uint64) int {
	if n*each > uint64(len(c.b)-c.i) {
		c.fail(ErrTruncated)
		return 0
	}
	return int(n)
}

func isArray(t byte) bool { return t&0xf0 == 0x90 || t == tagArray16 || t == tagArray32 }
func isMap(t byte) bool   { return t&0xf0 == 0x80 || t == tagMap16 || t == tagMap32 }
func isStr(t byte) bool   { return t&0xe0 == 0xa0 || t >= tagStr8 && t <= tagStr32 }
func isBin(t byte) bool   { return t >= tagBin8 && t <= tagBin32 }
func isInt(t byte) bool {
	return t < 0x80 || t >= 0xe0 || t >= tagUint8 && t <= tagInt64
}

// bytes reads a str or a bin, aliasing the payload.
func (c *cursor) bytes() []byte {
	t := c.tag()
	switch {
	case t&0xe0 == 0xa0:
		return c.take(int(t & 0x1f))
	case t == tagStr8 || t == tagBin8:
		return c.take(int(c.uint(1)))
	case t == tagStr16 || t == tagBin16:
		return c.take(int(c.uint(2)))
	case t == tagStr32 || t == tagBin32:
		return c.take(int(c.uint(4)))
	}
	c.fail(ErrType)
	return nil
}

// integer reads any msgpack integer as its 64 bits; negative says how to read them.
func (c *cursor) integer() (bits uint64, negative bool) {
	t := c.tag()
	switch {
	case t < 0x80:
		return uint64(t), false
	case t >= 0xe0:
		return uint64(int64(int8(t))), true
	case t >= tagUint8 && t <= tagUint64:
		return c.uint(1 << (t - tagUint8)), false
	case t >= tagInt8 && t <= tagInt64:
		size := 1 << (t - tagInt8)
		shift := 64 - 8*size
		v := int64(c.uint(size)<<shift) >> shift
		return uint64(v), v < 0
	}
	c.fail(ErrType)
	return 0, false
}

// int31 reads an integer that must fit 31 bits; others give -1.
func (c *cursor) int31() int {
	v, negative := c.integer()
	if negative || v > math.MaxInt32 {
		return -1
	}
	return int(v)
}

// seconds reads a number, integer or floating point.
func (c *cursor) seconds() float64 {
	switch c.peek() {
	case tagFloat32:
		c.i++
		return float64(math.Float32frombits(uint32(c.uint(4))))
	case tagFloat64:
		c.i++
		return math.Float64frombits(c.uint(8))
	}
	v, negative := c.integer()
	if negative {
		return float64(int64(v))
	}
	return float64(v)
}

// hash reads one block hash: an integer's 64 bits unchanged (also above 2^63, also
// negative: some engines publish them signed), or of bytes the last eight,
// big-endian: vLLM publishes the same digest so as an integer.
func (c *cursor) hash() uint64 {
	if c.i < len(c.b) && c.b[c.i] == tagUint64 {
		c.i++
		return c.uint(8)
	}
	t := c.peek()
	switch {
	case isInt(t):
		v, _ := c.integer()
		return v
	case isBin(t):
		b := c.bytes()
		if len(b) == 0 {
			c.fail(ErrType)
		}
		var v uint64
		for _, x := range b[max(0, len(b)-8):] {
			v = v<<8 | uint64(x)
		}
		return v
	case t == tagNil:
		c.fail(ErrNilHash)
		return 0
	}
	c.fail(ErrType)
	return 0
}

// hashes appends an array of block hashes to dst.
func (c *cursor) hashes(dst []uint64) []uint64 {
	n := c.array()
	dst = slices.Grow(dst, n)
	for ; n > 0 && c.err == nil; n-- {
		dst = append(dst, c.hash())
	}
	return dst
}

// nested reports whether the next value is an array and may have arrays as elements: its
// first one is, or it is empty and followed by one.
func (c *cursor) nested() bool {
	at := c.i + 1
	switch c.peek() {
	case tagArray16:
		at += 2
	case tagArray32:
		at += 4
	}
	return at < len(c.b) && isArray(c.peek()) && isArray(c.b[at])
}

// tokens appends an array of n token ids to dst. ok is false if an id is not an
// unsigned 32-bit number (some engines write negative placeholders): the array is
// still read, but its ids are not used.
func (c *cursor) tokens(dst []uint32) (out []uint32, ok bool) {
	n := c.array()
	dst = slices.Grow(dst, n)
	ok = true
	b, i := c.b, c.i
	for ; n > 0; n-- {
		// The three forms of nearly all ids of real vocabularies, inline.
		if i+5 <= len(b) {
			switch t := b[i]; {
			case t == tagUint16:
				dst = append(dst, uint32(b[i+1])<<8|uint32(b[i+2]))
				i += 3
				continue
			case t == tagUint32:
				dst = append(dst, binary.BigEndian.Uint32(b[i+1:]))
				i += 5
				continue
			case t < 0x80:
				dst = append(dst, uint32(t))
				i++
				continue
			}
		}
		c.i = i
		v, negative := c.integer()
		if negative || v > math.MaxUint32 {
			ok = false
		}
		if c.err != nil {
			return dst, false
		}
		dst = append(dst, uint32(v))
		i = c.i
	}
	if c.err == nil {
		c.i = i
	}
	return dst, ok && c.err == nil
}

// skip passes n values of any kind. It counts instead of recursing, so nesting
// costs nothing and cannot overflow a stack.
func (c *cursor) skip(n int) {
	for n > 0 && c.err == nil {
		n--
		t := c.peek()
		switch {
		case t < 0x80 || t >= 0xe0 || t == tagNil || t == 0xc2 || t == 0xc3:
			c.i++
		case isArray(t):
			n += c.array()
		case isMap(t):
			n += 2 * c.dict()
		case isStr(t) || isBin(t):
			c.bytes()
		case t == tagFloat32:
			c.take(1 + 4)
		case t == tagFloat64:
			c.take(1 + 8)
		case t >= tagUint8 && t <= tagInt64:
			c.integer()
		case t >= 0xd4 && t <= 0xd8: // fixext: a type byte and 1 to 16 bytes
			c.take(1 + 1 + 1<<(t-0xd4))
		case t >= 0xc7 && t <= 0xc9: // ext: a length, a type byte, bytes
			c.i++
			size := c.uint(1 << (t - 0xc7))
			c.take(1 + int(size))
		default:
			c.fail(ErrType)
		}
	}
}
