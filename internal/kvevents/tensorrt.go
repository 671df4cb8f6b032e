package kvevents

import (
	"warmroute/index"
	"warmroute/prefixhash"
)

// tensorRT is the Adapter of TensorRT-LLM (_torch/pyexecutor/kv_cache_events.py), whose events
// are maps with vLLM's names. They announce blocks on GPU, of the layers with the widest
// window alone, and show neither salts nor the names of adapters. Blocks with media have
// mm_keys and are kept by hash.
type tensorRT struct{}

// TensorRT returns an Adapter for a TensorRT-LLM.
func TensorRT() Adapter { return tensorRT{} }

// fields implements Adapter: it writes no arrays.
func (tensorRT) fields(index.EventType) []field { return nil }

func (tensorRT) tier(medium string) index.Tier { return tierOf(medium) }

func (tensorRT) byHash(e *Event, _ index.Tier, _ string) (index.Connector, bool) {
	return index.NoConnector, e.Placeholder()
}

func (tensorRT) rename(*Event) {}

func (tensorRT) extras(e *Event) [][]prefixhash.ExtraKey { return e.Extras }
