package index

import (
	"time"

	"warmroute/prefixhash"
)

// Scope is the space keys are compared in. Keys of different scopes never match.
type Scope struct {
	Tenant    string          // "" is the shared tenant
	Model     string          // base model, after resolving aliases and adapters
	LoRA      prefixhash.LoRA // "no LoRA" is its own value
	Scheme    string          // hash scheme, e.g. "tokens"; never empty in a stored entry
	BlockSize int             // tokens per block
	Group     int             // KV cache group
}

// Holder is one KV cache: a replica's data-parallel rank.
type Holder struct {
	Replica string // "ip:port", exactly what Envoy dials
	Rank    int
}

// Tier says where a copy lives.
type Tier uint8

const (
	TierGPU Tier = iota
	TierCPU
	TierStorage
)

// Kind is the kind of an Event.
type Kind uint8

const (
	Stored Kind = iota + 1
	Removed
	Cleared
)

// Event is one change of a holder's cache, free of token ids.
//
// Stored: Engine holds the blocks' engine hashes, each chained on its
// predecessor, the first on Parent (HasParent) or on the scope's root.
// Content holds the blocks' contents, the index links them into keys; nil means
// that only the engine hashes are known (no own keys).
// Removed: Engine names the blocks, in whatever scope this holder has them.
// Cleared: the holder forgets everything.
type Event struct {
	Kind      Kind
	Scope     Scope // Stored only
	Tier      Tier
	HasParent bool
	Parent    uint64
	Engine    []uint64
	Content   []prefixhash.Content
}

// Batch is what one holder published at once. Events apply in order, before
// any later batch of the same holder; a batch of an incarnation that is no
// longer current changes nothing.
type Batch struct {
	Holder      Holder
	Incarnation uint64
	At          time.Time
	Events      []Event
}
