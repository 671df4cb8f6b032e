package prefixhash

// Key identifies one block inside an index scope: 64 bits, chained, so that
// equal keys mean equal prefixes. For vLLM's own schemes it is the low 64 bits,
// big-endian, of the block's digest: the integer form vLLM publishes.
type Key uint64

// Content is the 64-bit hash of one block's own token ids and extra keys,
// without its parent. An index keeps it for a block whose parent it does not know yet:
// no token id leaves the hasher.
type Content uint64

// LoRA names the adapter of a block. The zero value is "no LoRA", which differs from
// an adapter whose name is empty.
type LoRA struct {
	Name string
	Path string // where its weights were loaded from: the same name from another path is another adapter; "" if unknown
	Set  bool
}

// Same reports whether l and o have one name, from whichever path.
func (l LoRA) Same(o LoRA) bool { return l.Name == o.Name && l.Set == o.Set }

// ExtraKey is one of the values that vLLM mixes into a block besides its tokens, in
// the untagged form of KV events: a LoRA name or a cache salt (ID alone), a multimodal
// identifier with its offset relative to the block's start, or the digest of a block's
// prompt embeddings (ID holds raw bytes).
type ExtraKey struct {
	ID        string
	Offset    int64
	HasOffset bool
}
