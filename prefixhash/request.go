package prefixhash

import (
	"cmp"
	"slices"
)

// MM is one multimodal item of a prompt: its identifier (vLLM's hash of the
// item) and the placeholder tokens it stands on. Offset and Length count tokens,
// Offset from the prompt's start.
type MM struct {
	ID     string
	Offset int
	Length int
}

// Request has the properties of a request that vLLM hashes into its blocks besides the
// tokens. The zero value has none.
type Request struct {
	LoRA      LoRA
	LoRAPath  string  // the adapter's path on the replica; only vLLM's Tagged generation hashes it
	CacheSalt *string // nil and "" are the same: vLLM hashes no empty salt
	Namespace string  // SGLang's extra_key; InNamespace alone reads it
	MM        []MM    // by rising Offset, as vLLM orders them; other orders are sorted, at the price of a copy
}

// AppendExtras appends the extra keys of the first blocks blocks of blockSize tokens, and of the
// ahead tokens behind each, one element per block, in vLLM's order: LoRA name, multimodal
// items, cache salt. It stops behind the last block with extra keys, so a request without them appends
// nothing.
//
// Elements between dst's length and its capacity are reused, so they must be this
// caller's own: passing the last result cut to length 0 makes the call free of
// allocations.
func (r Request) AppendExtras(dst [][]ExtraKey, blocks, blockSize, ahead int) [][]ExtraKey {
	if blockSize <= 0 || blocks <= 0 || r.plain() {
		return dst
	}
	items := mmCursor{items: byOffset(r.MM)}
	first := len(dst)
	for i := range r.mayHaveExtras(blocks, blockSize) {
		n := len(dst)
		if n < cap(dst) {
			dst = dst[:n+1]
		} else {
			dst = append(dst, nil)
		}
		dst[n] = r.appendBlock(dst[n][:0], &items, i*blockSize, (i+1)*blockSize+ahead)
		items.back((i + 1) * blockSize)
	}
	for len(dst) > first && len(dst[len(dst)-1]) == 0 {
		dst = dst[:len(dst)-1]
	}
	return dst
}

// plain reports whether no block of the request has extra keys.
func (r *Request) plain() bool {
	return !r.LoRA.Set && len(r.MM) == 0 && !r.salted()
}

func (r *Request) salted() bool { return r.CacheSalt != nil && *r.CacheSalt != "" }

// mayHaveExtras returns a number of leading blocks, at most blocks, behind which
// none has extra keys.
func (r *Request) mayHaveExtras(blocks, blockSize int) int {
	if r.LoRA.Set {
		return blocks
	}
	reach := 1 // tokens; the salt is in the first block
	for _, m := range r.MM {
		reach = max(reach, m.Offset+max(m.Length, 1))
	}
	return min((reach-1)/blockSize+1, blocks)
}

// appendBlock appends the extra keys of the block of tokens [start, end). Blocks
// must be appended in rising order with the same cursor.
func (r *Request) appendBlock(dst []ExtraKey, items *mmCursor, start, end int) []ExtraKey {
	if r.LoRA.Set {
		dst = append(dst, ExtraKey{ID: r.LoRA.Name})
	}
	dst = items.appendBlock(dst, start, end)
	if start == 0 && r.salted() {
		dst = append(dst, ExtraKey{ID: *r.CacheSalt})
	}
	return dst
}

// mmCursor walks a prompt's multimodal items along with its blocks, as vLLM's
// _gen_mm_extra_hash_keys does (vllm/v1/core/kv_cache_utils.py): an item belongs
// to every block it overlaps.
type mmCursor struct {
	items []MM
	next  int
}

func (c *mmCursor) appendBlock(dst []ExtraKey, start, end int) []ExtraKey {
	for c.next < len(c.items) {
		m := c.items[c.next]
		switch behind := m.Offset + m.Length; {
		case end <= m.Offset: // not reached yet
			return dst
		case start >= behind: // passed
			c.next++
			continue
		case end < behind: // continues in the next block
			return append(dst, ExtraKey{ID: m.ID, Offset: int64(m.Offset) - int64(start), HasOffset: true})
		}
		dst = append(dst, ExtraKey{ID: m.ID, Offset: int64(m.Offset) - int64(start), HasOffset: true})
		c.next++
	}
	return dst
}

// back returns to the items that continue after a place.
func (c *mmCursor) back(to int) {
	for c.next > 0 && c.items[c.next-1].Offset+c.items[c.next-1].Length > to {
		c.next--
	}
}

func byOffset(items []MM) []MM {
	order := func(a, b MM) int { return cmp.Compare(a.Offset, b.Offset) }
	if slices.IsSortedFunc(items, order) {
		return items
	}
	items = slices.Clone(items)
	slices.SortStableFunc(items, order)
	return items
}
