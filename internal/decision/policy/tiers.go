package policy

// Tiers are the seconds to load a token from a place below the GPU; 0 = learned for each
// replica.
type Tiers struct {
	CPU     float64 `yaml:"cpu" unit:"seconds"`     // loading a token from CPU memory; 0 = learned for each replica
	Storage float64 `yaml:"storage" unit:"seconds"` // loading a token from a replica's own storage; 0 = learned for each replica
	Shared  float64 `yaml:"shared" unit:"seconds"`  // loading a token from a store that several replicas read; 0 = learned for each replica
}

// Of returns the seconds that are set for a place, 0 if none are.
func (t *Tiers) Of(p Place) float64 {
	switch p {
	case CPU:
		return t.CPU
	case Storage:
		return t.Storage
	case Shared:
		return t.Shared
	}
	return 0
}
