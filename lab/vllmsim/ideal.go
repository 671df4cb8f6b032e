package vllmsim

// Ideal serves requests one after another from a single cache, in no time: what
// a fleet could at best find cached if all its blocks were one pool (or, with
// blocks for everything, if nothing were ever evicted). The cache obeys the
// same rules as a replica's. Not safe for concurrent use.
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

// Serve gives the prompt an answer of so many tokens and returns how many of the
// prompt's tokens were cached.
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
