// Package hybrid predicts the hits of prompts in caches with several KV cache groups.
//
// There are only a few types in hybrid: Layout, Member, Model, Query and Answer. A Layout
// is the groups of one cache, and has vLLM's rule for their common hit. A Member is
// one holder's cache of one model: its settings, its groups by events and its
// blocks. A Model has the members that serve it. A Query asks for their hits of a
// prompt; a Lookup finds an Answer for each. The rest is inside: a Plan is the way in which
// lookups find the members of one layout, and a Shard follows members along the index's
// nodes.
//
// # Example
//
// A model has a window of two blocks (group 0) and full attention (group 1). Two members
// hold parts of the prompt a0 … a7, in blocks of 16 tokens:
//
//	member 0   full     a0 a1 a2 a3 a4 a5 a6 a7
//	           window         a2 a3       a6 a7
//	member 1   full     a0 a1 a2 a3 a4
//	           window            a3 a4
//
// The Shard keeps the window's blocks along the nodes of full attention, with the set of
// members that have each (package spans).
//
// A lookup of a0 … a5 b6 b7 finds in the nodes that full attention of member 0 has six
// blocks of it, and of member 1 five. It then evaluates vLLM's rule once for each of these
// depths, which looks for the last two blocks in a row that the window has, span by span:
// a3 and a4 for member 1, a2 and a3 for member 0. So the answers are
//
//	member 0   Hit 64, Full 96
//	member 1   Hit 80, Full 80
//
// # Phases of a lookup
//
//   - search: look the prompt up in the nodes of the group that the caller names.
//   - elsewhere: look it up in the other homes of full attention, for their members.
//   - evaluate: for members whose blocks are not all in nodes, evaluate vLLM's rule block by
//     block, once for all members for which every probe of a block has the same result.
//   - below: for members whose connector copies blocks to CPU memory (tier.go), evaluate the
//     connector's rule behind what they take from the GPU.
//
// # Phases of an event
//
//   - observe: learn from all events of a batch which groups there are. If that is new,
//     derive the Layout, plan lookups by it, and publish the blocks for them.
//   - repeat: leave events out that only announce a request's hit again.
//   - store, remove: count copies by group and hash; publish a block when all groups of a
//     spec have it, and have the Shard read which specs have it.
//
// # Invariants
//
// A Member never hits more than its groups allow by the rule, as far as events show them. A
// block counts under vLLM's hash of it; its key is known by the events of full attention, by
// vLLM's own hashes, or not at all. Layout, Plan, Settings and Query do not depend on the
// index: it hands in a Host for each Member and an Index for each Lookup. Units are tokens
// unless noted; a slot is a holder's number in a Shard, a seat its number in a Model.
//
// # Concurrency
//
// One writer at a time changes a Member (Host.Lock), and one a Shard. A Model has a lock of
// its own for writers. Lookups have entered an epoch and take no lock: they read the roster, the
// plans, the tables and the spans, each of which is immutable or atomic. A Layout and a Plan are immutable.
package hybrid
