package pyvalue

// Slab hands out dicts and lists carved from larger pieces of memory: for the
// many small values of one document, which live and die together. The zero value
// is ready. It is not safe for concurrent use; what it has handed out is
// independent of it.
type Slab struct {
	dicts   piece[Dict]
	lists   piece[List]
	entries piece[dictEntry]
	items   piece[any]
}

// Dict returns an empty dict with room for n entries.
func (s *Slab) Dict(n int) *Dict {
	d := &s.dicts.carve(1)[0]
	d.entries = s.entries.carve(n)[:0]
	return d
}

// List returns a list of n items, all None.
func (s *Slab) List(n int) *List {
	l := &s.lists.carve(1)[0]
	l.Items = s.items.carve(n)
	return l
}

// piece is the memory values of one type are carved from.
type piece[T any] struct {
	free []T
	size int // of the piece last taken
}

// What a piece holds: a few values at first, for most documents are small, and
// no more than 2 KB of them.
const (
	firstPiece = 4
	fullPiece  = 64
)

func (p *piece[T]) carve(n int) []T {
	if len(p.free) < n {
		p.size = min(max(firstPiece, 2*p.size), fullPiece)
		p.free = make([]T, max(n, p.size))
	}
	out := p.free[:n:n]
	p.free = p.free[n:]
	return out
}
