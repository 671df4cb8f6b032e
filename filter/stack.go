package filter

// deepStack is the stack that a decision needs: rendering a chat nests deeply. A
// growing stack doubles and copies its content, several times for each stream.
// With this much reserved at once it grows once, while it is nearly empty. The
// largest stacks that Go keeps for the next goroutine are 16 KB.
const deepStack = 8 << 10

// deepen grows the stack.
//
//go:noinline
func deepen() byte {
	var room [deepStack]byte
	return room[len(untouched)]
}

var untouched []byte // nil: not known when room is laid out
