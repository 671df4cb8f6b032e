package filter

// deepStack is the stack that a decision needs: rendering a chat nests deeply. A
// growing stack doubles and copies its content, several times for each stream.
// With this much reserved at once it grows once, while it is nearly empty. The
// largest stacks that Go keeps for the next goroutine are 16 KB.
const deepStack = 8 << 10

// deepen grows the stack: Go makes room for all variables of a function when it is called. It clears
// them when the function comes to them, so with zero times nothing is cleared.
//
//go:noinline
func deepen(times int) {
	for range times {
		var room [deepStack]byte
		touch(&room)
	}
}

//go:noinline
func touch(room *[deepStack]byte) { room[0] = 1 }
