package pyvalue

// Slab carves dicts and lists from larger pieces of memory, for the many small values
// of one document, which live and die together. The zero value is ready. A Slab is not
// safe for concurrent use; its dicts and lists do not depend on it.
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

// piece is memory from which values of one type are carved.
type piece[T any] struct {
	free []T
	size int // of the last piece
}

// A piece has few values at first, because most documents are small, and at most 2 KB.
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
