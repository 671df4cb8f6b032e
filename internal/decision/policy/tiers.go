package policy

// Stretch is the part of a prompt that a candidate loads from one place below the GPU.
type Stretch struct {
	Tokens int32   `json:"tokens"`
	Token  float32 `json:"seconds_each_token"` // s to load one of them, learned or set
}

// Below is what a candidate has of a prompt below its GPU, in the order of the prompt. Tokens
// that are also in an earlier place count there alone.
type Below struct {
	CPU     Stretch `json:"cpu,omitzero"`     // its CPU memory
	Storage Stretch `json:"storage,omitzero"` // its own storage
	Shared  Stretch `json:"shared,omitzero"`  // a store that other replicas read too
}

// Tokens returns the number of tokens of all places.
func (b *Below) Tokens() int { return int(b.CPU.Tokens + b.Storage.Tokens + b.Shared.Tokens) }

// Tiers are the seconds to load a token from a place below the GPU; 0 = learned for each
// replica.
type Tiers struct {
	CPU     float64 `yaml:"cpu" unit:"seconds"`     // loading a token from CPU memory; 0 = learned for each replica
	Storage float64 `yaml:"storage" unit:"seconds"` // loading a token from a replica's own storage; 0 = learned for each replica
	Shared  float64 `yaml:"shared" unit:"seconds"`  // loading a token from a store that several replicas read; 0 = learned for each replica
}

// Loads returns the tokens of the prompt that a candidate need not compute, and the seconds
// in which it loads those below its GPU. An engine loads what it finds, also where computing
// would take less time.
func (c *Candidate) Loads() (held int, seconds float64) {
	held = c.Credited()
	if b := &c.Below; *b != (Below{}) {
		held += b.Tokens()
		seconds = b.CPU.Seconds() + b.Storage.Seconds() + b.Shared.Seconds()
	}
	return held, seconds
}

// Seconds returns the time to load the stretch.
func (s Stretch) Seconds() float64 { return float64(s.Tokens) * float64(s.Token) }
