package kvevents

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// SGLangOptions are the facts about a publisher that its events do not contain.
type SGLangOptions struct {
	// Dynamo says that it publishes in format dynamo, in which the hashes of namespaces
	// (extra_key) differ.
	Dynamo bool
}

// sglang is the Adapter of SGLang (sglang/srt/disaggregation/kv_events.py).
type sglang struct {
	o        SGLangOptions
	adapters adapterKeys
	rows     [][]prefixhash.ExtraKey
	first    []prefixhash.ExtraKey
	hash     prefixhash.SGLang
	page     []uint32
}

// SGLang returns an Adapter for an SGLang.
func SGLang(o SGLangOptions) Adapter { return &sglang{o: o} }

// The order of fields before SGLang 0.5.20, whose events are maps. Events before 0.5.9 end
// with lora_id.
var sglangFields = [...][]field{
	index.Stored:  {blockHashes, parentHash, tokenIDs, blockSize, loraID, medium},
	index.Removed: {blockHashes, medium},
	index.Cleared: nil,
}

func (*sglang) fields(kind index.EventType) []field { return sglangFields[kind] }

func (*sglang) tier(medium string) index.Tier {
	if medium == "CPU_PINNED" {
		return index.TierCPU
	}
	return tierOf(medium)
}

// byHash implements Adapter: SGLang describes the blocks of all tiers.
func (*sglang) byHash(e *Event, _ index.Tier, _ string) (index.Connector, bool) {
	return index.NoConnector, e.Placeholder()
}

// extras implements Adapter. SGLang names the adapter and the salt in fields of their own. A
// namespace has no name in events, but its first hash differs from that of its tokens.
func (s *sglang) extras(e *Event) [][]prefixhash.ExtraKey {
	var rows [][]prefixhash.ExtraKey
	if e.LoRA.Set {
		rows = s.adapters.of(e.LoRA, len(e.Hashes))
	}
	if e.HasParent || e.Salt == "" && !s.o.Dynamo {
		return rows
	}
	s.first = s.first[:0]
	if e.LoRA.Set {
		s.first = append(s.first, rows[0]...)
	}
	if e.Salt != "" {
		s.first = append(s.first, prefixhash.ExtraKey{ID: e.Salt})
	}
	if s.o.Dynamo && !e.LoRA.Set {
		if tag, ok := s.namespaceOf(e); ok {
			s.first = append(s.first, tag)
		}
	}
	switch {
	case len(s.first) == 0:
	case rows == nil:
		rows = append(s.rows[:0], s.first)
		s.rows = rows
		for range len(e.Hashes) - 1 {
			rows = append(rows, nil)
		}
		s.rows = rows
	default:
		rows[0] = s.first
	}
	return rows
}

// namespaceOf returns the extra key of the namespace of a prompt's first blocks, if they are
// in one.
func (s *sglang) namespaceOf(e *Event) (prefixhash.ExtraKey, bool) {
	if len(e.Hashes) == 0 || len(e.Tokens) < e.BlockSize || e.Ahead > 1 {
		return prefixhash.ExtraKey{}, false
	}
	s.page = append(s.page[:0], e.Tokens[:e.BlockSize]...)
	switch {
	case e.Ahead == 0:
	case len(e.Tokens) > e.BlockSize:
		s.page = append(s.page, e.Tokens[e.BlockSize])
	default:
		s.page = append(s.page, e.Behind...)
	}
	plain := s.hash.Namespaced(s.hash.First(s.page, e.Ahead == 1, e.Salt), "", e.Salt)
	return prefixhash.NamespaceKey(e.Hashes[0]), plain != e.Hashes[0]
}
