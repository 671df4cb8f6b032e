package jinja

// arena is memory for the values of one render, which none of them outlives: a later render uses
// it again. The zero value, that of constants, gives each value memory of its own.
type arena struct {
	values   block[any]
	calls    block[args]
	unknowns block[undefined]
	loops    block[loopContext]
}

// pooled makes the arena carve values from blocks.
func (a *arena) pooled() {
	a.values.size, a.calls.size, a.unknowns.size, a.loops.size = 64, 16, 16, 4
}

// clear keeps the memory for the next render, and nothing that is in it.
func (a *arena) clear() {
	a.values.clear()
	a.calls.clear()
	a.unknowns.clear()
	a.loops.clear()
}

// block is the latest memory for values of one type. A full one belongs to its values.
type block[T any] struct {
	size int // of the next, at least
	all  []T
	used int
}

func (b *block[T]) carve(n int) []T {
	if len(b.all)-b.used < n {
		b.all, b.used = make([]T, max(n, b.size)), 0
	}
	from := b.used
	b.used += n
	return b.all[from:b.used:b.used]
}

func (b *block[T]) clear() {
	if len(b.all) > b.size {
		b.all = nil
	} else {
		clear(b.all[:b.used])
	}
	b.used = 0
}
