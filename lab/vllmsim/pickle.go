package vllmsim

import "encoding/binary"

// pickler writes the few Python values that vLLM hashes, as pickle protocol 5 does. It
// memoises every text, bytes and tuple that it writes, so each of them must be a Python
// object of its own; constant writes the names in vLLM's source, each of which is one
// object everywhere.
type pickler struct {
	out       []byte
	memo      int
	constants map[string]int
}

const (
	opProto, opFrame, opStop, opMemoize = 0x80, 0x95, '.', 0x94
	opMark, opTuple, opEmptyTuple       = '(', 't', ')'
	opTuple1, opNone, opBinGet          = 0x85, 'N', 'h'
	opShortBytes, opShortText, opText   = 'C', 0x8c, 'X'
	opInt1, opInt2, opInt4, opLong1     = 'K', 'M', 'J', 0x8a
)

func (p *pickler) memoize() {
	p.out = append(p.out, opMemoize)
	p.memo++
}

func (p *pickler) bytes(b []byte) { // b is a digest: at most 255 bytes
	p.out = append(append(p.out, opShortBytes, byte(len(b))), b...)
	p.memoize()
}

func (p *pickler) text(s string) {
	if len(s) < 256 {
		p.out = append(p.out, opShortText, byte(len(s)))
	} else {
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opText), uint32(len(s)))
	}
	p.out = append(p.out, s...)
	p.memoize()
}

func (p *pickler) constant(s string) {
	if at, ok := p.constants[s]; ok {
		p.out = append(p.out, opBinGet, byte(at))
		return
	}
	if p.constants == nil {
		p.constants = map[string]int{}
	}
	p.constants[s] = p.memo
	p.text(s)
}

func (p *pickler) none() { p.out = append(p.out, opNone) }

func (p *pickler) int(v int) {
	switch {
	case v >= 0 && v < 1<<8:
		p.out = append(p.out, opInt1, byte(v))
	case v >= 0 && v < 1<<16:
		p.out = binary.LittleEndian.AppendUint16(append(p.out, opInt2), uint16(v))
	case v >= -1<<31 && v < 1<<31:
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opInt4), uint32(int32(v)))
	default: // token ids from 2^31 on: five bytes, the last one the sign
		p.out = binary.LittleEndian.AppendUint32(append(p.out, opLong1, 5), uint32(v))
		p.out = append(p.out, byte(v>>32))
	}
}

// closeTuple makes a tuple of the last n (1 to 3) values.
func (p *pickler) closeTuple(n int) {
	p.out = append(p.out, opTuple1+byte(n)-1)
	p.memoize()
}

// tupleOf writes a tuple of n values.
func (p *pickler) tupleOf(n int, item func(int)) {
	switch {
	case n == 0:
		p.out = append(p.out, opEmptyTuple)
		return
	case n <= 3:
		for i := range n {
			item(i)
		}
		p.closeTuple(n)
		return
	}
	p.out = append(p.out, opMark)
	for i := range n {
		item(i)
	}
	p.out = append(p.out, opTuple)
	p.memoize()
}

func (p *pickler) ints(v []uint32) {
	p.tupleOf(len(v), func(i int) { p.int(int(v[i])) })
}

// frameMin is the size below which Python writes no frame opcode. Python starts another
// frame after 64 KiB, which no block reaches: a block of 4096 tokens takes 20 KiB.
const frameMin = 4

// finish appends the whole pickle to dst.
func (p *pickler) finish(dst []byte) []byte {
	dst = append(dst, opProto, 5)
	if n := len(p.out) + 1; n >= frameMin {
		dst = binary.LittleEndian.AppendUint64(append(dst, opFrame), uint64(n))
	}
	return append(append(dst, p.out...), opStop)
}
