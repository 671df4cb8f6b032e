package hybrid

// Settings are the facts about a cache that its events do not contain: configuration,
// labels of /metrics and the model's files give them. They have priority over events.
// A Settings does not change once a Member has it.
type Settings struct {
	Rule        Rule
	Unit        int    // prefix_match_unit
	Block       int    // the block size of the groups whose first blocks are partial
	Eagle       uint32 // the groups that drop a block, as bits
	EagleKnown  bool
	Chunk       int
	Replay      int
	ReplayKnown bool // Replay is given, and may be 0
	Reports     bool // requests have their hits announced again

	Sight Sight // what the events show of the values that requests mix into their blocks
	// Loads says that blocks in CPU memory are loaded behind those on GPU, and LoadLeast is
	// the least number of tokens for which that is done.
	Loads     bool
	LoadLeast int

	// Limit is the reason, in one sentence, why predictions may be wrong although the
	// replica's own counts agree with them.
	// Of vLLM's, a cache of one group of full attention has none.
	Limit string
}
