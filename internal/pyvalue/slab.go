package pyvalue

// Slab hands out dicts and lists carved from larger pieces of memory: for the
// many small values of one document, which live and die together. The zero value
// is ready. It is not safe for concurrent use; what it has handed out is
// independent of it.
type Slab struct {
	dicts   []Dict
	lists   []List
	entries []dictEntry
	items   []any
}

// slabValues is how many values a piece of memory holds: those of some tens of
// messages, 2 KB at most.
const slabValues = 64

// Dict returns an empty dict with room for n entries.
func (s *Slab) Dict(n int) *Dict {
	d := &carve(&s.dicts, 1)[0]
	d.entries = carve(&s.entries, n)[:0]
	return d
}

// List returns a list of n items, all None.
func (s *Slab) List(n int) *List {
	l := &carve(&s.lists, 1)[0]
	l.Items = carve(&s.items, n)
	return l
}

func carve[T any](free *[]T, n int) []T {
	if len(*free) < n {
		*free = make([]T, max(n, slabValues))
	}
	out := (*free)[:n:n]
	*free = (*free)[n:]
	return out
}
