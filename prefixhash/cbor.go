package prefixhash

import "encoding/binary"

// Canonical CBOR (RFC 8949, as Python's cbor2 writes it with canonical=True): shortest
// heads, definite lengths.

const (
	cborUint  = 0 << 5
	cborNint  = 1 << 5
	cborBytes = 2 << 5
	cborText  = 3 << 5
	cborArray = 4 << 5
	cborNull  = 0xf6
)

func appendCBORHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return append(dst, major|25, byte(n>>8), byte(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

func appendCBORInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendCBORHead(dst, cborNint, uint64(-(n + 1)))
	}
	return appendCBORHead(dst, cborUint, uint64(n))
}

func appendCBORString(dst []byte, s string) []byte {
	return append(appendCBORHead(dst, cborText, uint64(len(s))), s...)
}

func (e *blockEncoder) appendCBORBlock(dst, parent []byte, tokens []uint32, keys []ExtraKey) []byte {
	dst = appendCBORHead(dst, cborArray, 3)
	dst = append(appendCBORHead(dst, cborBytes, uint64(len(parent))), parent...)
	dst = appendCBORHead(dst, cborArray, uint64(len(tokens)))
	for _, t := range tokens {
		dst = appendCBORHead(dst, cborUint, uint64(t))
	}
	if len(keys) == 0 {
		return append(dst, cborNull)
	}
	dst = appendCBORHead(dst, cborArray, uint64(len(keys)))
	for i := range keys {
		dst = e.appendCBORKey(dst, i, &keys[i])
	}
	return dst
}

func (e *blockEncoder) appendCBORKey(dst []byte, i int, k *ExtraKey) []byte {
	kind := e.typeOf(i, k)
	if e.tagged {
		n := uint64(2)
		if kind == keyLoRA || kind == keyMM {
			n = 3
		}
		dst = appendCBORString(appendCBORHead(dst, cborArray, n), tags[kind])
	} else if kind == keyMM {
		dst = appendCBORHead(dst, cborArray, 2)
	}
	dst = appendCBORString(dst, k.ID)
	switch {
	case kind == keyMM:
		dst = appendCBORInt(dst, k.Offset)
	case kind == keyLoRA && e.tagged:
		dst = appendCBORString(dst, e.loraPath)
	}
	return dst
}
