package kvevents

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// vllm is the Adapter of vLLM.
type vllm struct {
	adapters adapterKeys
	tells    bool // the publisher lists extra keys in its events of blocks on GPU
}

// VLLM returns an Adapter for a vLLM, also for engines that write its events.
func VLLM() Adapter { return new(vllm) }

// The order of fields in vLLM's array-tagged generation; the last is the ownership.
var vllmFields = [...][]field{
	index.Stored:  {blockHashes, parentHash, tokenIDs, blockSize, loraID, medium, loraName, extraKeys, groupIdx, specKind, specWindow, locality, other},
	index.Removed: {blockHashes, medium, groupIdx, locality, other},
	index.Cleared: nil,
}

func (*vllm) fields(kind index.EventType) []field { return vllmFields[kind] }

func (*vllm) tier(medium string) index.Tier { return tierOf(medium) }

// byHash implements Adapter. A placeholder leaves out everything, other connectors the extra
// keys, which the publisher lists for blocks on GPU. By its tokens alone, a block with a salt
// would be another block.
func (v *vllm) byHash(e *Event, tier index.Tier, scheme string) (index.Connector, bool) {
	v.tells = v.tells || e.Told && tier == index.TierGPU
	connector := connectorOf(e, tier)
	return connector, connector != index.NoConnector || e.Placeholder() ||
		tier != index.TierGPU && scheme == index.SchemeTokens && !e.Told && v.tells
}

// connectorOf returns the connector that has announced a block in CPU memory, as far as its
// form shows that. Only SimpleCPUOffloadConnector says that its blocks are local, and besides
// it only OffloadingConnector names the kind of the cache group, or describes nothing.
func connectorOf(e *Event, tier index.Tier) index.Connector {
	switch {
	case tier != index.TierCPU:
		return index.NoConnector
	case e.Local:
		return index.OffloadSingles
	case e.Placeholder(), e.Spec != "":
		return index.OffloadChunks
	}
	return index.NoConnector
}

// extras implements Adapter. Publishers that do not describe extra keys (older than the
// field) still hash the adapter's name into every block, so extras adds it.
func (v *vllm) extras(e *Event) [][]prefixhash.ExtraKey {
	if e.Extras != nil || !e.LoRA.Set {
		return e.Extras
	}
	return v.adapters.of(e.LoRA, len(e.Hashes))
}
