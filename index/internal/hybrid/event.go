package hybrid

import "warmroute/prefixhash"

// Event is a Stored event of a group, on GPU. The zero Event stands for any other event.
type Event struct {
	Group, Block int
	Spec         string // vLLM's name of the kind, or ""
	Window       int    // tokens, or 0
	Ahead        int    // tokens behind each block that its hash covers too
	Tokens       int    // tokens that the event covers: more than its blocks' if it leaves blocks out

	LoRA      prefixhash.LoRA
	HasParent bool
	Parent    uint64 // the hash of the block before the first
	Hashes    []uint64
	Contents  []prefixhash.Content // as many as Hashes, or none
	Keys      bool                 // without Contents: the hashes are the blocks' keys
	Keyless   bool                 // neither is known: the hashes are of a scheme of their own
}

// valid reports whether the event can be followed.
func (e *Event) valid() bool { return e.Group >= 0 && e.Group < MaxGroups && e.Block > 0 }

// masked reports whether the event leaves blocks out.
func (e *Event) masked() bool { return e.Tokens > len(e.Hashes)*e.Block }

// observed has the facts that a member's events have shown. It ends with the holder's process.
type observed struct {
	groups [MaxGroups]observedGroup
	kinds  bool   // the events name kinds
	beyond bool   // there are groups beyond MaxGroups
	ahead  int    // tokens behind their block that hashes cover
	keying Keying // of vLLM's hashes, if the index knows how to compute them
	doubt  string // why the events may not tell everything, one sentence; "" if they do
}

// observedGroup holds the properties that events have shown of one group.
type observedGroup struct {
	seen   bool
	masked bool // blocks were left out
	spec   string
	window int
	block  int // the largest block: a smaller one is the end of a prompt
	least  int // the smallest block
}

// note records an event, and reports whether it has shown anything new.
func (o *observed) note(e *Event) (news bool) {
	g := &o.groups[e.Group]
	was := *g
	g.seen = true
	g.masked = g.masked || e.masked()
	g.block = max(g.block, e.Block)
	if g.least == 0 || e.Block < g.least {
		g.least = e.Block
	}
	if e.Spec != "" {
		g.spec = e.Spec
	}
	if e.Window > 0 {
		g.window = e.Window
	}
	return *g != was
}
