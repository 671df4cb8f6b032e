package prefixhash

import "github.com/zeebo/xxh3"

// pieceTokens is the number of tokens hashed at once: 32 tokens are 128 bytes, the
// longest input of XXH3's seeded short form, which needs no secret to be derived per
// call; it also bounds the buffer on machines that must copy bytes.
const pieceTokens = 32

// Seeds keep the roots of different chains and of different parts apart: the
// first bytes of their names, so that the choice is not arbitrary.
const (
	seedTokenRoot = 0x746f6b656e730000 // "tokens"
	seedLoRARoot  = 0x6c6f726100000000 // "lora"
	seedLoRAPath  = 0x7061746800000000 // "path"
	seedTextRoot  = 0x7465787400000000 // "text"
	seedExtra     = 0x6578747261000000 // "extra": a LoRA name, a salt, a digest
	seedItem      = 0x6974656d00000000 // "item": a multimodal identifier
)

// TokenRoot returns the parent of the first block of every token chain of a
// model (its canonical name) and an adapter. It is never 0.
func TokenRoot(model string, lora LoRA) Key {
	root := xxh3.HashStringSeed(model, seedTokenRoot)
	if lora.Set {
		root = mix(root, xxh3.HashStringSeed(lora.Name, seedLoRARoot))
		if lora.Path != "" {
			root = mix(root, xxh3.HashStringSeed(lora.Path, seedLoRAPath))
		}
	}
	return notZero(root)
}

// Link returns the key of the block with content c behind parent. For one
// parent, different contents have different keys, except one pair in 2^64; the same holds
// for one content and different parents. The result is never 0, so an index may use 0 for
// "no key".
func Link(parent Key, c Content) Key { return notZero(mix(uint64(parent), uint64(c))) }

// mix combines two 64-bit values into one that depends on their order. With one of them
// fixed it is a permutation of the other: an odd factor (2^64 / golden ratio) and a sum,
// then XXH3's avalanche, so that the bits of short chains are spread over all 64.
func mix(a, b uint64) uint64 {
	return avalanche(a*0x9e3779b97f4a7c15 + b)
}

// avalanche spreads the bits of h over all 64.
func avalanche(h uint64) uint64 {
	h ^= h >> 37
	h *= 0x165667919e3779f9
	return h ^ h>>32
}

func notZero(h uint64) Key {
	if h == 0 {
		return 1
	}
	return Key(h)
}

// Blocks is the size of blocks in tokens, and the number of tokens behind a block that its
// content covers too, as the hashes of vLLM 0.33 do when it drafts.
type Blocks struct{ Size, Ahead int }

// AppendContents appends the contents of the full blocks of tokens; a block without all the
// tokens behind it that its content covers has none. extras holds the blocks' extra keys by
// block index, as of AppendExtras; blocks behind its end have none.
func AppendContents(dst []Content, tokens []uint32, b Blocks, extras [][]ExtraKey) []Content {
	if b.Size <= 0 || b.Ahead < 0 {
		return dst
	}
	for i := 0; len(tokens) >= b.Size+b.Ahead; i++ {
		dst = append(dst, contentAt(tokens[:b.Size+b.Ahead], extras, i))
		tokens = tokens[b.Size:]
	}
	return dst
}

// AppendLinks appends the keys of consecutive blocks with the given contents,
// the first one behind parent.
func AppendLinks(dst []Key, parent Key, contents []Content) []Key {
	for _, c := range contents {
		parent = Link(parent, c)
		dst = append(dst, parent)
	}
	return dst
}

// AppendTokens appends the keys of the full blocks of tokens, the first one behind
// parent: AppendContents and AppendLinks in one pass. To resume a chain, pass its last
// key as parent and the extras of the following blocks.
func AppendTokens(dst []Key, parent Key, tokens []uint32, b Blocks, extras [][]ExtraKey) []Key {
	if b.Size <= 0 || b.Ahead < 0 {
		return dst
	}
	for i := 0; len(tokens) >= b.Size+b.Ahead; i++ {
		parent = Link(parent, contentAt(tokens[:b.Size+b.Ahead], extras, i))
		dst = append(dst, parent)
		tokens = tokens[b.Size:]
	}
	return dst
}

// contentAt hashes the tokens of block i as little-endian bytes, in pieces of
// pieceTokens, each seeded by the hash of the piece before it and the first by
// the block's extra keys.
func contentAt(block []uint32, extras [][]ExtraKey, i int) Content {
	var h uint64
	if i < len(extras) && len(extras[i]) > 0 {
		h = extraSeed(extras[i])
	}
	if len(block) == usualBlock {
		return Content(hashSixteen(block, h))
	}
	for len(block) > pieceTokens {
		h = hashPiece(block[:pieceTokens], h)
		block = block[pieceTokens:]
	}
	return Content(hashPiece(block, h))
}

// extraSeed folds a block's extra keys, in order, into a seed. The seed of an identifier
// says whether an offset follows, so no two lists give the same input.
func extraSeed(keys []ExtraKey) uint64 {
	h := uint64(len(keys))
	for _, k := range keys {
		if k.HasOffset {
			h = mix(mix(h, xxh3.HashStringSeed(k.ID, seedItem)), uint64(k.Offset))
		} else {
			h = mix(h, xxh3.HashStringSeed(k.ID, seedExtra))
		}
	}
	return h
}
