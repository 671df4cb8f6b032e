package hybrid

import "warmroute/prefixhash"

// Prompt is a prompt that is looked up.
type Prompt interface {
	// Tokens returns its length.
	Tokens() int
	// AppendChain appends the keys after each full unit of the prompt, the last
	// token included; nothing if that chain cannot be computed.
	AppendChain(dst []prefixhash.Key, c Keying) []prefixhash.Key
}

// Mixed is a Prompt of a request that may mix values into its blocks besides their tokens.
type Mixed interface {
	Prompt
	// Mixes returns which.
	Mixes() Mix
}

// Query asks how much of a prompt the members of a model hit. A lookup may change Asked.
type Query struct {
	Prompt Prompt
	Tokens int  // the length of the prompt
	Asked  Home // the group in which the caller asks
	Keys   []prefixhash.Key
	Linked bool // Keys are of this project's own chain, so they are the same in all groups
}

// covered reports whether Keys reach as far as a hit can.
func (q *Query) covered() bool {
	return q.Linked && q.Asked.Block > 0 && max(0, q.Tokens-1)/q.Asked.Block <= len(q.Keys)
}

// Answer is one member's hit of a prompt, in tokens.
type Answer struct {
	Hit  int32 // the tokens that it takes from its cache
	Full int32 // the tokens that its full attention holds from the start; 0: unknown
}

// Index is the index as one lookup sees it: the blocks of full attention, and the place of
// the answers.
type Index interface {
	// Search looks the query up in a group, and returns how many holders it finds. With
	// hits, it finds members with their hits (Shard.Narrow), otherwise with the blocks that
	// they hold.
	Search(group int, hits bool) (found int)
	// Probe fills the results of a probe. They are 0 before.
	Probe(p *Probe)
	// Answer replaces the result of Search for a member.
	Answer(m *Member, a Answer)
	// Hits fills in the tokens that members have been found to take from the GPU, by seat.
	Hits(tokens []int32)
	// Loaded adds to the results of members the tokens that they load from CPU memory, by
	// seat. device is how many tokens they take from the GPU then, at most those of Hits.
	Loaded(members []*Member, device, tokens []int32)
}

// Probe asks for the depths of members in one group of the nodes.
type Probe struct {
	Home    Home
	Keys    []prefixhash.Key
	Tokens  int // the length of the prompt
	Members []*Member

	// Results by seat, in blocks from the prompt's start: how many a member holds, and how
	// many of them it hits if the group is its home.
	Held, Hit []int32
}

// depths are the results of a probe, in memory that the next lookup uses again.
type depths struct{ held, hit []int32 }

// memo is a few values by key, in memory that the next lookup uses again.
type memo[K comparable, V any] struct{ entries []memoized[K, V] }

type memoized[K comparable, V any] struct {
	key   K
	value V
}

// at returns the entry of key, or a reused entry to fill and false.
func (m *memo[K, V]) at(key K) (v *V, known bool) {
	for i := range m.entries {
		if m.entries[i].key == key {
			return &m.entries[i].value, true
		}
	}
	n := len(m.entries)
	if n == cap(m.entries) {
		m.entries = append(m.entries, memoized[K, V]{})
	}
	m.entries = m.entries[:n+1]
	m.entries[n].key = key
	return &m.entries[n].value, false
}

func (m *memo[K, V]) reset() { m.entries = m.entries[:0] }
