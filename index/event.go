package index

import (
	"time"

	"warmroute/index/internal/hybrid"
	"warmroute/prefixhash"
)

// SchemeTokens is the scheme of this project's own chain over token ids
// (prefixhash.TokenRoot, prefixhash.Link). Events of any other scheme carry the
// keys themselves.
const SchemeTokens = "tokens"

// Scope is the keyspace in which keys are compared. Keys of different scopes never
// match.
type Scope struct {
	Tenant    string          // "" is the shared tenant
	Model     string          // base model, after resolving aliases and adapters
	LoRA      prefixhash.LoRA // "no LoRA" is its own value
	Scheme    string          // hash scheme, e.g. "tokens"; never empty in a stored entry
	BlockSize int             // tokens per block
	Group     int             // KV cache group
}

// Holder is one KV cache of the fleet: a rank of a replica.
type Holder struct {
	Replica string // "ip:port", the address that Envoy dials
	Rank    int
}

// Tier is the memory that has a copy.
type Tier uint8

const (
	TierGPU Tier = iota
	TierCPU
	TierStorage

	tiers      = 3
	tierLeased = Tier(tiers) // what a reporter without removals tells: it counts as on GPU
	layers     = tiers + 1
)

// EventType is the kind of change that an Event reports.
type EventType uint8

const (
	Stored EventType = iota + 1
	Removed
	Cleared
)

// Event is one change of a holder's cache, free of token ids.
//
// Stored: Hashes holds the hashes of the blocks, each chained on its
// predecessor, the first on Parent when HasParent; without HasParent the first
// is the first block of a prompt. Content, as long as Hashes, holds the blocks'
// contents, which the index links into keys from the scope's root or the
// parent's key. Content nil: vLLM's hashes are the keys. With ByHash, the event does not
// describe its blocks, which are in a tier below the GPU: they have the keys that other
// events of the holder gave these hashes, in any scope of the model's cache group.
// Removed: Hashes names the blocks, in every scope of Part and Scope.Group in which this
// holder has them; the rest of Scope is not read.
// Cleared: the holder has dropped everything of Part.
type Event struct {
	Kind      EventType
	Scope     Scope
	Tier      Tier
	Connector Connector // that has copied the blocks to CPU memory, if it is known
	ByHash    bool
	Part      *Part // Removed and Cleared only; nil: the whole cache, as vLLM's own events mean it
	HasParent bool
	Parent    uint64
	Hashes    []uint64
	Content   []prefixhash.Content

	// Until is when the blocks end, if their holder announces no removals; zero: they do not.
	// Only their keys count then, which are Hashes, whatever is before them. Stored only.
	Until time.Time

	Spec   string // vLLM's kv_cache_spec_kind, "" when not reported; Stored only
	Window int    // of a sliding window, in tokens; 0 when not reported
	Tokens int    // tokens that the event covers: more than the blocks of Hashes if it leaves blocks out
	Ahead  int    // tokens behind each block that its hash and its content cover too

	// Last is the content of the last block alone, if contents cover tokens behind.
	Last prefixhash.Content
}

// FullAttention reports whether the event is of a group of full attention: a block is reusable only with
// all blocks before it.
func (ev *Event) FullAttention() bool { return hybrid.KindOf(ev.Spec) == hybrid.Full }

// KnownKind reports whether a kv_cache_spec_kind is a kind of which hits can be told.
func KnownKind(spec string) bool { return hybrid.KindOf(spec) != hybrid.Unknown }

// OtherKind reports whether the event is of a group of another kind: no prefix of it is a cached
// prefix.
func (ev *Event) OtherKind() bool {
	return ev.Spec != "" && ev.Spec != "unknown" && !ev.FullAttention()
}

// Part is a part of the scopes: those of a tenant and, if it names them, of a model and a hash
// scheme.
type Part struct{ Tenant, Model, Scheme string }

// covers reports whether a shard's scopes belong to the part; nil covers every scope.
func (p *Part) covers(k shardKey) bool {
	return p.coversModel(k.modelKey()) && (p == nil || p.Scheme == "" || p.Scheme == k.scheme)
}

func (p *Part) coversModel(k modelKey) bool {
	return p == nil || p.Tenant == k.tenant && (p.Model == "" || p.Model == k.model)
}

// Batch is a set of events that one holder published at once. Events apply in order,
// before any later batch of the same holder; a batch of an incarnation that is no
// longer current changes nothing. A batch without events reports that the holder is
// alive.
type Batch struct {
	Holder      Holder
	Incarnation uint64
	Full        bool   // the holder re-announces blocks (vLLM's kv_cache_report_mode full): a repeated Stored is not a second copy
	Keying      Keying // of vLLM's own hashes; without Hash, the index does not know how to compute them
	Doubt       string // why the holder's events may not tell everything that it holds, one sentence; "" if they do
	Shared      bool   // an event tells of blocks in a store that other holders may read too
	Events      []Event
}

// Result counts blocks.
type Result struct {
	Stored   int // now held: first copies
	Repeated int // announced while held: second copies, or re-announcements when Batch.Full
	Removed  int // last copies gone
	Copies   int // removals that left another copy behind
	Unknown  int // removals of blocks the holder was not known to have
	Orphaned int // left out: a block before them is not known, or was removed
	Dropped  int // not indexed: no scheme, malformed event, cap reached

	twins bool // a block was announced by a second hash
}
