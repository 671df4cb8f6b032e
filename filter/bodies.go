package filter

import "warmroute/internal/tokens"

// SmallShare is the part of MaxBodies that only small bodies use, so that no number of
// large ones refuses a small one.
const SmallShare = 8 << 20

// take counts n more bytes of the stream's body, and reports whether the limit has room
// for them. Later steps hold them or work on them.
func (st *stream) take(n int) bool {
	limit := st.o.MaxBodies
	if max(n, st.size) > tokens.SmallBody {
		limit -= SmallShare
	}
	if !st.srv.router.metrics.bodies.Take(int64(n), limit) {
		return false
	}
	st.taken += n
	return true
}

// takeCopy counts the copy of a held body in one piece, unless the body is in one.
func (st *stream) takeCopy() bool { return len(st.held) <= 1 || st.take(st.size) }

// free ends the count of the stream's body. A decision's panic ends its stream, which
// frees, too.
func (st *stream) free() {
	if st.taken > 0 {
		st.srv.router.metrics.bodies.Give(int64(st.taken))
		st.taken = 0
	}
}
