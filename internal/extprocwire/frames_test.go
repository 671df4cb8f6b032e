package extprocwire

import (
	"testing"

	"google.golang.org/grpc/mem"

	"warmroute/render/testkit/race"
)

// A frame's buffer has its length, and no more room than a few times of it. A buffer that
// comes back is handed out again as it is, without a pass over its bytes.
func TestFrames(t *testing.T) {
	var pool mem.BufferPool = new(Frames)
	for _, c := range []struct {
		n, room int
		again   bool
	}{
		{1, smallFrame, true}, {smallFrame, smallFrame, true}, {smallFrame + 1, largeFrame, true}, {largeFrame, largeFrame, true},
		{largeFrame + 1, largeFrame + 1, false},
	} {
		b := pool.Get(c.n)
		if len(*b) != c.n || cap(*b) != c.room {
			t.Errorf("%d bytes: length %d, room for %d, want %d", c.n, len(*b), cap(*b), c.room)
		}
		(*b)[0] = 0xA5
		*b = (*b)[:1] // gRPC has shortened the frame by its padding
		pool.Put(b)
		if race.Enabled {
			continue // the race detector drops pooled memory at random
		}
		if b = pool.Get(c.n); len(*b) != c.n || ((*b)[0] == 0xA5) != c.again {
			t.Errorf("%d bytes again: length %d, first byte %#x", c.n, len(*b), (*b)[0])
		}
	}
}
