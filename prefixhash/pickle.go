package prefixhash

import "encoding/binary"

// pickler writes the pickle protocol 5 stream that CPython's C pickler writes
// for a block's tuple. Two of its rules matter:
//
// It memoises every bytes, str and non-empty tuple it has written and writes a
// reference when the very same object comes again. Same object, not equal value:
// the only object that comes twice is the constant "mm" in vLLM's code; two equal
// identifiers of one request reach vLLM's engine as two objects, so they are
// written twice.
//
// It cuts the stream into frames of at least 64 KiB, and leaves strings of that
// size out of them. Blocks so large are rare but possible.
type pickler struct {
	buf   []byte
	frame int // where the open frame's header starts
	limit int // len(buf) from which on the frame is closed before the next object
	memo  int // objects remembered
	mm    int // memo index of "mm"; 0 is the parent's, so 0 means not yet
}

// Opcodes and sizes from CPython's Modules/_pickle.c.
const (
	opMark       = '('
	opStop       = '.'
	opBinInt     = 'J'
	opBinInt1    = 'K'
	opBinInt2    = 'M'
	opNone       = 'N'
	opBinUnicode = 'X'
	opShortBytes = 'C'
	opBinGet     = 'h'
	opTuple      = 't'
	opTuple1     = 0x85 // opTuple1+1 and +2: tuples of two and three
	opLong1      = 0x8a
	opShortUnic  = 0x8c
	opMemoize    = 0x94
	opFrame      = 0x95

	frameHeader = 9       // opFrame and 8 bytes of length
	frameTarget = 1 << 16 // a frame of this size or more is closed
	frameMin    = 4       // a frame shorter than this has no header
)

// appendPickledString appends the pickle of one str.
func appendPickledString(dst []byte, s string) []byte {
	p := pickler{buf: dst}
	p.start()
	p.str(s)
	p.stop()
	return p.buf
}

func (p *pickler) block(e *blockEncoder, parent []byte, tokens []uint32, keys []ExtraKey) {
	p.start()
	p.object()
	p.buf = append(append(p.buf, opShortBytes, byte(len(parent))), parent...)
	p.memoize()
	p.object()
	p.mark(len(tokens))
	p.tokens(tokens)
	p.tuple(len(tokens))
	p.object()
	if len(keys) == 0 {
		p.buf = append(p.buf, opNone)
	} else {
		p.mark(len(keys))
		for i := range keys {
			p.key(e, e.typeOf(i, &keys[i]), &keys[i])
		}
		p.tuple(len(keys))
	}
	p.tuple(3)
	p.stop()
}

func (p *pickler) key(e *blockEncoder, kind keyType, k *ExtraKey) {
	n := 1
	if kind == keyMM || kind == keyLoRA && e.tagged {
		n = 2
	}
	if e.tagged {
		n++
	}
	if n > 1 {
		p.object()
	}
	if e.tagged {
		p.tag(kind)
	}
	p.str(k.ID)
	switch {
	case kind == keyMM:
		p.int(k.Offset)
	case kind == keyLoRA && e.tagged:
		p.str(e.loraPath)
	}
	if n > 1 {
		p.tuple(n)
	}
}

func (p *pickler) tag(kind keyType) {
	if kind != keyMM {
		p.str(tags[kind])
		return
	}
	if p.mm == 0 {
		p.mm = p.memo
		p.str(tags[kind])
		return
	}
	p.object()
	p.buf = append(p.buf, opBinGet, byte(p.mm)) // behind parent, tokens and at most one adapter: always small
}

func (p *pickler) start() {
	p.buf = append(p.buf, 0x80, 5)
	p.open()
}

func (p *pickler) stop() {
	p.buf = append(p.buf, opStop)
	p.close()
}

// object precedes every object: CPython looks there whether a frame is full.
func (p *pickler) object() {
	if len(p.buf) >= p.limit {
		p.close()
		p.open()
	}
}

func (p *pickler) open() {
	p.frame = len(p.buf)
	p.buf = append(p.buf, opFrame, 0, 0, 0, 0, 0, 0, 0, 0)
	p.limit = len(p.buf) + frameTarget
}

func (p *pickler) close() {
	body := p.frame + frameHeader
	n := len(p.buf) - body
	if n < frameMin {
		copy(p.buf[p.frame:], p.buf[body:])
		p.buf = p.buf[:p.frame+n]
		return
	}
	binary.LittleEndian.PutUint64(p.buf[p.frame+1:], uint64(n))
}

func (p *pickler) memoize() {
	p.buf = append(p.buf, opMemoize)
	p.memo++
}

// mark opens a tuple of n elements; tuple closes it.
func (p *pickler) mark(n int) {
	if n > 3 {
		p.buf = append(p.buf, opMark)
	}
}

func (p *pickler) tuple(n int) {
	if n > 3 {
		p.buf = append(p.buf, opTuple)
	} else {
		p.buf = append(p.buf, opTuple1+byte(n-1))
	}
	p.memoize()
}

// tokens writes a block's token ids, which are most of it: on a local slice,
// twice as fast as through p.
func (p *pickler) tokens(tokens []uint32) {
	buf := p.buf
	for _, t := range tokens {
		if len(buf) >= p.limit {
			p.buf = buf
			p.object()
			buf = p.buf
		}
		buf = appendPickledUint(buf, t)
	}
	p.buf = buf
}

func appendPickledUint(dst []byte, n uint32) []byte {
	switch {
	case n < 1<<8:
		return append(dst, opBinInt1, byte(n))
	case n < 1<<16:
		return append(dst, opBinInt2, byte(n), byte(n>>8))
	case n < 1<<31:
		return append(dst, opBinInt, byte(n), byte(n>>8), byte(n>>16), byte(n>>24))
	}
	return append(dst, opLong1, 5, byte(n), byte(n>>8), byte(n>>16), byte(n>>24), 0) // 0: the sign
}

func (p *pickler) int(n int64) {
	p.object()
	if n >= 0 && n < 1<<32 {
		p.buf = appendPickledUint(p.buf, uint32(n))
		return
	}
	if n >= -1<<31 && n < 0 {
		p.buf = binary.LittleEndian.AppendUint32(append(p.buf, opBinInt), uint32(n))
		return
	}
	size := 5 // the shortest two's complement
	for size < 8 && n != n<<(64-8*size)>>(64-8*size) {
		size++
	}
	p.buf = append(p.buf, opLong1, byte(size))
	for i := range size {
		p.buf = append(p.buf, byte(n>>(8*i)))
	}
}

func (p *pickler) str(s string) {
	p.object()
	if len(s) < 1<<8 {
		p.buf = append(append(p.buf, opShortUnic, byte(len(s))), s...)
	} else {
		p.long(s)
	}
	p.memoize()
}

// long writes a string of 256 bytes to 4 GiB, outside of frames if it would fill
// one.
func (p *pickler) long(s string) {
	framed := len(s) < frameTarget
	if !framed {
		p.close()
	}
	p.buf = append(p.buf, opBinUnicode)
	p.buf = append(binary.LittleEndian.AppendUint32(p.buf, uint32(len(s))), s...)
	if !framed {
		p.open()
	}
}
