package kvevents

// internLimit bounds a set of interned strings: far above the adapters of one engine,
// small enough to drop and start again.
const internLimit = 1024

func (s interned) of(b []byte) string {
	if v, ok := s[string(b)]; ok {
		return v
	}
	v := string(b)
	if len(s) < internLimit {
		s[v] = v
	}
	return v
}

// interned holds strings made from bytes, so that a repeated one is not allocated again.
type interned map[string]string
