package prefixhash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// SGLang computes the hashes that an SGLang publishes for the pages of a prompt, as far as the
// first one: events have the tokens of the others. The zero value is ready; it is not safe for
// concurrent use.
type SGLang struct {
	sum hash.Hash
	buf []byte
}

// First returns the hash of a prompt's first page: of its tokens behind the salt, as SGLang
// does since 0.5.20. With pairs, SGLang drafts with EAGLE: tokens has one more than the page,
// and each is hashed with the one behind it.
func (s *SGLang) First(tokens []uint32, pairs bool, salt string) uint64 {
	s.begin()
	if salt != "" {
		s.sum.Write([]byte("sglang-cache-salt-v1\x00"))
		s.sum.Write([]byte(salt))
		root := s.end()
		s.begin()
		s.sum.Write(root[:])
	}
	s.buf = s.buf[:0]
	for i, t := range tokens {
		if pairs && i > 0 && i < len(tokens)-1 { // the end of one pair, and the start of the next
			s.buf = binary.LittleEndian.AppendUint32(s.buf, t)
		}
		s.buf = binary.LittleEndian.AppendUint32(s.buf, t)
	}
	s.sum.Write(s.buf)
	return firstEight(s.end())
}

// Namespaced returns the hash that SGLang publishes in format dynamo for a page with a hash
// in a namespace (extra_key) and with a salt; "" stands for none of them.
func (s *SGLang) Namespaced(page uint64, namespace, salt string) uint64 {
	if namespace == "" && salt == "" {
		return page
	}
	s.begin()
	s.sum.Write([]byte("sglang-kv-event-namespace-v1"))
	for _, part := range [...]string{namespace, salt} {
		s.buf = append(s.buf[:0], 0)
		if part != "" {
			s.buf = append(binary.LittleEndian.AppendUint64(append(s.buf[:0], 1), uint64(len(part))), part...)
		}
		s.sum.Write(s.buf)
	}
	seed := s.end()
	s.begin()
	s.sum.Write(seed[:])
	s.sum.Write(binary.BigEndian.AppendUint64(s.buf[:0], page))
	return firstEight(s.end())
}

func (s *SGLang) begin() {
	if s.sum == nil {
		s.sum = sha256.New()
	}
	s.sum.Reset()
}

func (s *SGLang) end() (digest [sha256.Size]byte) {
	s.sum.Sum(digest[:0])
	return digest
}

// firstEight returns the first 8 bytes of a digest, which SGLang publishes as an integer.
func firstEight(digest [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(digest[:]) }

// NamespaceKey returns the extra key of the first block of a namespace: the hash that SGLang
// publishes for this block, because events do not name the namespace itself.
func NamespaceKey(first uint64) ExtraKey {
	return ExtraKey{ID: string(binary.BigEndian.AppendUint64(nil, first))}
}

// InNamespace returns the extra keys of AppendExtras with the request's namespace in the
// first one. Blocks of size tokens cover ahead tokens behind them. A request with an adapter
// has none, because SGLang mixes the namespace with a number that only it knows.
func (r Request) InNamespace(extras [][]ExtraKey, tokens []uint32, b Blocks) [][]ExtraKey {
	if r.Namespace == "" || r.LoRA.Set || b.Size <= 0 || len(tokens) < b.Size+b.Ahead {
		return extras
	}
	var s SGLang
	salt := ""
	if r.CacheSalt != nil {
		salt = *r.CacheSalt
	}
	first := s.First(tokens[:b.Size+b.Ahead], b.Ahead > 0, salt)
	if len(extras) == 0 {
		extras = append(extras, nil)
	}
	extras[0] = append(extras[0], NamespaceKey(s.Namespaced(first, r.Namespace, salt)))
	return extras
}
