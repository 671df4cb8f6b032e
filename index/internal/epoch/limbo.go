package epoch

// Limbo keeps things that lookups may still see, oldest first. It has one
// writer at a time.
type Limbo[T any] struct {
	clock *Clock
	items []retired[T]
}

type retired[T any] struct {
	epoch uint64
	thing T
}

// Init sets the clock of the lookups.
func (l *Limbo[T]) Init(c *Clock) { l.clock = c }

// Put keeps a thing that has just become unreachable.
func (l *Limbo[T]) Put(thing T) {
	l.items = append(l.items, retired[T]{l.clock.Retire(), thing})
}

// Len returns how many things are kept.
func (l *Limbo[T]) Len() int { return len(l.items) }

// Reclaim passes each thing that no lookup can see to free, and drops it.
func (l *Limbo[T]) Reclaim(free func(T)) {
	if len(l.items) == 0 {
		return
	}
	oldest, n := l.clock.Oldest(), 0
	for n < len(l.items) && l.items[n].epoch <= oldest { // epochs rise
		free(l.items[n].thing)
		n++
	}
	kept := copy(l.items, l.items[n:])
	clear(l.items[kept:])
	l.items = l.items[:kept]
}
