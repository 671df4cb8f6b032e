package policy

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Match is what a candidate has of a request's prompts, by place: stretches that follow each
// other from the prompt's beginning, in the order of Place. Tokens that are also in an earlier
// place count there alone. A stretch without tokens is not there.
type Match [places]Stretch

// Stretch is the part of the prompts that a candidate has in one place.
type Stretch struct {
	Tokens int32   `json:"tokens"`
	Source Source  `json:"source"`
	Credit float32 `json:"credit"`                       // share of the tokens that it is expected to find there, 0 to 1
	Token  float32 `json:"seconds_each_token,omitempty"` // s to load one of them, learned or set; 0 = nothing is to be loaded
}

// Place is where tokens lie.
type Place uint8

const (
	GPU     Place = iota // in the cache from which the engine computes
	Coming               // in that cache as soon as the requests that are on their way there are computed
	CPU                  // in the replica's CPU memory
	Storage              // in its own storage
	Shared               // in a store that other replicas read too
	Cut                  // in full attention alone: other cache groups lack them, so no credit is given
	places
)

// Lower are the places below the GPU, from which tokens are loaded.
var Lower = [...]Place{CPU, Storage, Shared}

var placeNames = [places]string{"gpu", "coming", "cpu", "storage", "shared", "cut"}

func (p Place) String() string { return placeNames[p] }

// MarshalText writes the place's name.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a place's name.
func (p *Place) UnmarshalText(text []byte) error { return named(p, placeNames[:], text) }

// Source says how it is known that tokens lie in a place. The set is closed: metrics have one
// series for each.
type Source uint8

const (
	NoSource Source = iota // there are none, or prompts were not compared
	Reported               // KV events or a sidecar have told, or will tell in a moment
	History                // the token ids were sent there before
	Text                   // the text was sent there before
	sources
)

var sourceNames = [sources]string{"", "reported", "history", "text"}

func (s Source) String() string { return sourceNames[s] }

// MarshalText writes the source's name.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a source's name.
func (s *Source) UnmarshalText(text []byte) error { return named(s, sourceNames[:], text) }

// named sets v to the value with a name.
func named[T ~uint8](v *T, names []string, name []byte) error {
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("policy: %q is none of %q", name, names)
	}
	*v = T(i)
	return nil
}

// Sources returns every Source but NoSource.
func Sources() []Source { return []Source{Reported, History, Text} }

// Found returns the tokens that the candidate is expected to find.
func (s *Stretch) Found() int { return int(float64(s.Tokens)*float64(s.Credit) + 0.5) }

// Seconds returns the time to load what is expected to be found.
func (s *Stretch) Seconds() float64 { return float64(s.Found()) * float64(s.Token) }

// counts returns the stretch's tokens, 0 if none is expected to be found.
func (s *Stretch) counts() int {
	if s.Credit == 0 {
		return 0
	}
	return int(s.Tokens)
}

// Cached returns the tokens that are on the GPU.
func (m *Match) Cached() int { return m[GPU].counts() }

// Matched returns the tokens that are on the GPU or on their way to it.
func (m *Match) Matched() int { return m[GPU].counts() + m[Coming].counts() }

// Credited returns the tokens of Matched that the candidate is expected to find.
func (m *Match) Credited() int { return m[GPU].Found() + m[Coming].Found() }

// Below returns the tokens that the candidate is expected to find below its GPU.
func (m *Match) Below() (tokens int) {
	for _, p := range Lower {
		tokens += m[p].Found()
	}
	return tokens
}

// Loads returns the tokens that a candidate need not compute, and the seconds in which it loads
// those below its GPU. An engine loads what it finds, also where computing would take less time.
func (m *Match) Loads() (held int, seconds float64) {
	held = m.Credited()
	for _, p := range Lower {
		if m[p].Tokens > 0 {
			held += m[p].Found()
			seconds += m[p].Seconds()
		}
	}
	return held, seconds
}

// Learned reports whether the tokens on the GPU are known from what was sent there alone.
func (m *Match) Learned() bool { return m[GPU].Source > Reported }

// Doubted reports whether the candidate has told of tokens on its GPU and is expected to find
// none of them.
func (m *Match) Doubted() bool { return m[GPU].Tokens > 0 && m[GPU].Credit == 0 }

// Doubt takes the credit of every stretch: the candidate counts as holding nothing.
func (m *Match) Doubt() {
	m[Cut] = Stretch{}
	for p := range m {
		m[p].Credit = 0
	}
}

// Source returns how it is known what the candidate has on its GPU.
func (m *Match) Source() Source {
	switch {
	case m.Matched() == 0:
		return NoSource
	case m.Learned():
		return m[GPU].Source
	}
	return Reported
}

// IsZero reports whether there is no stretch.
func (m Match) IsZero() bool { return m == Match{} }

// placed is a stretch in JSON.
type placed struct {
	Place Place `json:"place"`
	Stretch
}

// MarshalJSON writes the list of the stretches that are there.
func (m Match) MarshalJSON() ([]byte, error) {
	list := make([]placed, 0, places)
	for p, s := range m {
		if s.Tokens > 0 {
			list = append(list, placed{Place(p), s})
		}
	}
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Match) UnmarshalJSON(text []byte) error {
	var list []placed
	err := json.Unmarshal(text, &list)
	*m = Match{}
	for _, s := range list {
		m[s.Place] = s.Stretch
	}
	return err
}
