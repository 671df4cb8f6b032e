package kvevents

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// Batch is one decoded payload. After Decoder.Decode its slices belong to the
// decoder and to the payload, until the next call.
type Batch struct {
	Time    float64  // the publisher's clock, seconds since 1970; 0 when absent or not finite
	Rank    int      // data_parallel_rank; -1 when absent
	Events  []Event  // in the published order
	Unknown int      // events skipped because their tag is not known
	Strange []string // names of the tags, fields and media that are not known, as published; a few of them
	Payload []byte   // the payload itself
}

// Event is one decoded event, token ids included: it must not leave the process.
type Event struct {
	Kind index.EventType

	Hashes    []uint64 // low 64 bits, big-endian
	Parent    uint64   // hash of the parent of the first block; the others chain on their predecessor
	HasParent bool

	Tokens     []uint32 // nil when the decoder skips them
	TokenCount int
	BlockSize  int // tokens; 0 only in a placeholder

	AdapterLoad
	Memory
	Keys
	CacheGroup
	Lookahead
	Unkeyed bool // a token id or an extra key that a key cannot represent: no key of this project is right

	raw
}

// AdapterLoad is a load of an adapter.
type AdapterLoad struct {
	LoRA  prefixhash.LoRA
	HasID bool   // lora_id given
	ID    uint64 // lora_id, which differs each time an adapter is loaded, unless in place; 0 if it is no number
}

// Memory is where an event's blocks are.
type Memory struct {
	Medium string
	Local  bool // the publisher says that the blocks are in its own memory
	Remote bool // the publisher says that the blocks are in no memory or storage of its own
}

// Keys are what the publisher hashes into blocks besides tokens.
type Keys struct {
	Salt   string                  // cache_salt, "" if the publisher does not give it
	Extras [][]prefixhash.ExtraKey // per block; nil when no block has any
	Told   bool                    // the event has a list of extra keys, maybe of none
}

// CacheGroup is the cache group of an event's blocks.
type CacheGroup struct {
	Group  int    // 0 when absent
	Spec   string // kv_cache_spec_kind, "" if the publisher does not give it
	Window int    // kv_cache_spec_sliding_window, tokens; 0 if not given
}

// Lookahead is what hashes cover behind their blocks.
type Lookahead struct {
	Ahead  int      // tokens behind each block that its hash covers too (lookahead_token_ids)
	Behind []uint32 // the tokens behind the last block; nil when the decoder skips tokens
}

// raw are the msgpack values, for Digests.
type raw struct{ hashes, parent []byte }

// Placeholder reports whether the event has only a hash: vLLM's offloading
// connectors announce undescribed blocks of lower tiers with block_size 0 and no
// token ids.
func (e *Event) Placeholder() bool {
	return e.Kind == index.Stored && e.BlockSize == 0
}

// Digests returns the published hashes if they are bytes, else nil. The slices
// alias the payload.
func (e *Event) Digests() [][]byte {
	c := cursor{b: e.hashes}
	if len(e.hashes) == 0 {
		return nil
	}
	n := c.array()
	out := make([][]byte, 0, n)
	for ; n > 0; n-- {
		if !isBin(c.peek()) {
			return nil
		}
		out = append(out, c.bytes())
	}
	return out
}

// ParentDigest returns the parent's published hash if it is bytes, else nil.
func (e *Event) ParentDigest() []byte {
	c := cursor{b: e.parent}
	if len(e.parent) == 0 || !isBin(c.peek()) {
		return nil
	}
	return c.bytes()
}
