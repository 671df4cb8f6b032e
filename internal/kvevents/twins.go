package kvevents

import "warmroute/prefixhash"

// maxTwins bounds the blocks of which twins are found, a few dozen bytes each.
const maxTwins = 1 << 20

// twins finds blocks with equal tokens and adapters but different hashes, and gives them the
// hash of the first: the index counts them as copies of one block.
type twins struct {
	of     map[uint64]twin // by published hash
	first  map[prefixhash.Key]firstTwin
	tokens []uint32
	blocks []prefixhash.Content
}

// firstTwin is the hash of the first block with a key, and how many hashes have the key now.
type firstTwin struct {
	hash   uint64
	hashes int
}

// twin is a block: its key, the hash of the first with this key, and the copies of its own.
type twin struct {
	key    prefixhash.Key
	first  uint64
	copies int
}

// stored gives an event's blocks, and their parent, the hashes of the first ones.
func (t *twins) stored(e *Event) {
	if e.Unkeyed || len(e.Behind) != e.Ahead || len(e.Hashes)*e.BlockSize != len(e.Tokens) || len(t.of) > maxTwins {
		return
	}
	if t.of == nil {
		t.of, t.first = map[uint64]twin{}, map[prefixhash.Key]firstTwin{}
	}
	key := prefixhash.TokenRoot(e.Salt, e.LoRA)
	if e.HasParent {
		parent, known := t.of[e.Parent]
		if !known {
			return
		}
		key, e.Parent = parent.key, parent.first
	}
	t.tokens = append(append(t.tokens[:0], e.Tokens...), e.Behind...)
	t.blocks = prefixhash.AppendContentsAhead(t.blocks[:0], t.tokens, prefixhash.Blocks{Size: e.BlockSize, Ahead: e.Ahead}, nil)
	for i, c := range t.blocks {
		key = prefixhash.Link(key, c)
		one := t.of[e.Hashes[i]]
		if one.copies == 0 {
			first := t.first[key]
			if first.hashes == 0 {
				first.hash = e.Hashes[i]
			}
			first.hashes++
			t.first[key] = first
			one.key, one.first = key, first.hash
		}
		one.copies++
		t.of[e.Hashes[i]] = one
		e.Hashes[i] = one.first
	}
}

// removed gives an event's blocks the hashes of the first ones.
func (t *twins) removed(e *Event) {
	for i, hash := range e.Hashes {
		one, known := t.of[hash]
		if !known {
			continue
		}
		e.Hashes[i] = one.first
		if one.copies--; one.copies > 0 {
			t.of[hash] = one
			continue
		}
		delete(t.of, hash)
		if first := t.first[one.key]; first.hashes > 1 {
			first.hashes--
			t.first[one.key] = first
		} else {
			delete(t.first, one.key)
		}
	}
}
