package vllmsim

// Ideal serves requests one after another from a single cache, in no time. Its hits bound
// those of a fleet whose blocks are one pool (or, with blocks for everything, of a fleet
// that never evicts). The cache obeys the same rules as a replica's. Not safe for
// concurrent use.
type Ideal struct {
	s *Sim
	e *engine
}

// NewIdeal returns an empty cache for the replicas that o describes, with the
// given number of blocks.
func NewIdeal(o Options, blocks int) (*Ideal, error) {
	o.Blocks = blocks
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	return &Ideal{s: &Sim{o: o}, e: newEngine(0, o, func([]event) {})}, nil
}

// Serve answers a prompt with so many tokens and returns the number of cached tokens of the
// prompt.
func (i *Ideal) Serve(tokens []uint32, answer int) (hit int, err error) {
	g := &generation{prompts: []prompt{{tokens: tokens}}, n: 1, maxTokens: answer}
	seqs, out, err := i.s.sequences(g)
	if err != nil {
		return 0, err
	}
	i.e.submit(seqs...)
	for {
		if _, any := i.e.schedule(); !any {
			break
		}
		i.e.finishStep()
	}
	return (<-out).hit, nil
}
