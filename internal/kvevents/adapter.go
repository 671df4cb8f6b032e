package kvevents

import (
	"strings"

	"warmroute/index"
	"warmroute/prefixhash"
)

// Adapter is what one inference engine's KV events have of their own. VLLM and SGLang make one
// for each publisher. An Adapter belongs to one subscription.
type Adapter interface {
	// fields returns the order of the fields behind the tag of an event that is an array.
	// Fields behind the last of them are skipped.
	fields(kind index.EventType) []field
	// tier returns the tier that a medium names.
	tier(medium string) index.Tier
	// byHash reports whether a Stored event of a tier does not describe its blocks for keys of a
	// scheme, and which connector has copied them, if that is known.
	byHash(e *Event, tier index.Tier, scheme string) (connector index.Connector, is bool)
	// extras returns the extra keys of the event's blocks as requests have them
	// (prefixhash.Request). They are valid until the next call.
	extras(e *Event) [][]prefixhash.ExtraKey
}

// tierOf maps a medium to a tier. vLLM writes "GPU", "CPU" and "STORAGE"; its connectors
// also write "cpu" and names of their own, all of them slower than main memory. An empty
// medium is the GPU.
func tierOf(medium string) index.Tier {
	switch {
	case medium == "" || strings.EqualFold(medium, "GPU"):
		return index.TierGPU
	case strings.EqualFold(medium, "CPU"):
		return index.TierCPU
	}
	return index.TierStorage
}

// adapterKeys makes the rows of extra keys that name an adapter.
type adapterKeys struct {
	lora map[string][]prefixhash.ExtraKey // one key per adapter
	rows [][]prefixhash.ExtraKey
}

// of returns the adapter's name as the extra key of so many blocks.
func (a *adapterKeys) of(l prefixhash.LoRA, blocks int) [][]prefixhash.ExtraKey {
	key, ok := a.lora[l.Name]
	if !ok {
		if a.lora == nil || len(a.lora) >= internLimit {
			a.lora = make(map[string][]prefixhash.ExtraKey)
		}
		key = []prefixhash.ExtraKey{{ID: l.Name}}
		a.lora[l.Name] = key
	}
	a.rows = a.rows[:0]
	for range blocks {
		a.rows = append(a.rows, key)
	}
	return a.rows
}
