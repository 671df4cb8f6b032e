package ends

import "math/bits"

// bitmap is a set of offsets. It lacks every offset behind its last word.
type bitmap []uint64

func (b bitmap) has(i int) bool { return i>>6 < len(b) && b[i>>6]>>(i&63)&1 != 0 }

func (b *bitmap) put(i int, on bool) {
	if i>>6 >= len(*b) {
		if !on {
			return
		}
		*b = append(*b, make([]uint64, i>>6+1-len(*b))...)
	}
	if on {
		(*b)[i>>6] |= 1 << (i & 63)
	} else {
		(*b)[i>>6] &^= 1 << (i & 63)
	}
}

// cut removes all offsets from i on.
func (b *bitmap) cut(i int) {
	if i>>6 < len(*b) {
		(*b)[i>>6] &= 1<<(i&63) - 1
		*b = (*b)[:i>>6+1]
	}
	for len(*b) > 0 && (*b)[len(*b)-1] == 0 {
		*b = (*b)[:len(*b)-1]
	}
}

func (b bitmap) empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// next returns the first offset from i on that is in the bitmap, or, without in, that
// is not in it. It returns -1 if the bitmap has no offset from i on.
func (b bitmap) next(i int, in bool) int {
	for ; i>>6 < len(b); i = (i>>6 + 1) << 6 {
		w := b[i>>6]
		if !in {
			w = ^w
		}
		if w = w >> (i & 63) << (i & 63); w != 0 {
			return i>>6<<6 + bits.TrailingZeros64(w)
		}
	}
	if in {
		return -1
	}
	return i
}
