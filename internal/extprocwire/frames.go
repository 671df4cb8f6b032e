package extprocwire

import "sync"

// Frames are the buffers of received frames, a mem.BufferPool. gRPC's own pool clears a
// buffer whenever it hands it out, and each frame is read over all of it anyway.
type Frames struct{ small, large sync.Pool }

// Sizes of frames: the largest one that gRPC and Envoy send, and a small one, so that
// many short frames take no more than a few times their bytes.
const smallFrame, largeFrame = 4 << 10, 16 << 10

// Get implements mem.BufferPool. The bytes are those of an earlier frame.
func (f *Frames) Get(n int) *[]byte {
	switch {
	case n <= smallFrame:
		return frame(&f.small, n, smallFrame)
	case n <= largeFrame:
		return frame(&f.large, n, largeFrame)
	}
	b := make([]byte, n)
	return &b
}

// frame returns a buffer of n bytes from a pool whose buffers have size bytes.
func frame(of *sync.Pool, n, size int) *[]byte {
	b, _ := of.Get().(*[]byte)
	if b == nil {
		made := make([]byte, size)
		b = &made
	}
	*b = (*b)[:n]
	return b
}

// Put implements mem.BufferPool.
func (f *Frames) Put(b *[]byte) {
	switch cap(*b) {
	case smallFrame:
		f.small.Put(b)
	case largeFrame:
		f.large.Put(b)
	}
}
