package prefixhash

// blockEncoder serialises the input of vLLM's hash of one block, the Python tuple
//
//	(parent digest: bytes, token ids: tuple[int], extra keys: tuple | None)
//
// into buf. Untagged extra keys are str (LoRA name, salt) and (str, int)
// (multimodal); tagged ones are ("lora", name, path), ("mm", id, offset),
// ("cache_salt", salt). Requests with prompt embeddings have no keys here.
type blockEncoder struct {
	buf      []byte
	keys     []ExtraKey // scratch of a block's extra keys
	pickle   bool
	tagged   bool
	lora     LoRA
	loraPath string
}

// keyType is the type of an extra key.
type keyType uint8

const (
	keyLoRA keyType = iota
	keyMM
	keySalt
)

// tags are the constants vLLM 0.32 puts in front of extra keys.
var tags = [...]string{keyLoRA: "lora", keyMM: "mm", keySalt: "cache_salt"}

// block replaces e.buf by the encoding of one block.
func (e *blockEncoder) block(parent *Digest, tokens []uint32, keys []ExtraKey) {
	if e.pickle {
		p := pickler{buf: e.buf[:0]}
		p.block(e, parent.b[:parent.n], tokens, keys)
		e.buf = p.buf
		return
	}
	e.buf = e.appendCBORBlock(e.buf[:0], parent.b[:parent.n], tokens, keys)
}

// typeOf returns the type of the extra key at position i of a block: vLLM puts
// the adapter's name first in every block of a request that has one, and a bare
// string elsewhere can only be the salt.
func (e *blockEncoder) typeOf(i int, k *ExtraKey) keyType {
	switch {
	case k.HasOffset:
		return keyMM
	case i == 0 && e.lora.Set:
		return keyLoRA
	}
	return keySalt
}
