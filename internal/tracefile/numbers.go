package tracefile

import "warmroute/prefixhash"

// numbers gives blocks numbers in the order in which they first appear. It remembers the
// blocks of two generations; a block that neither has gets a new number, as if it were a
// block that no prompt had before.
type numbers struct {
	next          uint64
	young, former map[prefixhash.Key]uint64
	most          int // blocks of a generation
}

// remembered is the blocks of a generation: 16 Mi tokens in blocks of 16, more than the
// caches of forty H100 with an 8B model hold. Both generations take about 80 MiB when
// they are full.
const remembered = 1 << 20

func newNumbers(most int) *numbers { return &numbers{most: most, young: map[prefixhash.Key]uint64{}} }

// appendSpans appends the numbers of keys as ranges.
func (n *numbers) appendSpans(spans []Span, keys []prefixhash.Key) []Span {
	for _, k := range keys {
		v := n.of(k)
		if last := len(spans) - 1; last >= 0 && spans[last].First+spans[last].Count == v {
			spans[last].Count++
			continue
		}
		spans = append(spans, Span{v, 1})
	}
	return spans
}

func (n *numbers) of(k prefixhash.Key) uint64 {
	v, ok := n.young[k]
	if ok {
		return v
	}
	if v, ok = n.former[k]; !ok {
		v = n.next
		n.next++
	}
	if len(n.young) >= n.most {
		n.former, n.young = n.young, make(map[prefixhash.Key]uint64, n.most)
	}
	n.young[k] = v
	return v
}
