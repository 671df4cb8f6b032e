package policy

// Name is the name of a policy.
type Name string

// The policies.
const (
	NameTTFT     Name = "ttft"              // least expected time to first token
	NameBalance  Name = "filter-then-score" // longest match among the balanced
	NameDisabled Name = "disabled"          // no hint, and nothing is read or counted
)

// Settings rank the requests of one model. They are immutable.
type Settings struct {
	Policy   Name
	HintCold bool    // also name a replica for requests whose prefix no replica has
	MaxTTFT  float64 // seconds to the first token beyond which no replica is named; 0 = no limit
	Balance  Balance // for filter-then-score; MinMatch also defines a hot match
	TTFT     TTFT    // for ttft; its prefill constants also price load under filter-then-score
	Version  uint64  // of the Book it came from

	PrefillDecode PrefillDecode
	Sessions      Sessions // how cold prompts are held; by default they are not
}

// DefaultSettings returns the settings of a model without settings of its own.
func DefaultSettings() Settings {
	return Settings{Policy: NameTTFT, HintCold: true, Balance: DefaultBalance(), TTFT: DefaultTTFT()}
}

// Pick ranks the candidates by the policy; see TTFT.Pick and Balance.Pick.
func (s *Settings) Pick(ranked []int32, n int, r Request, cands []Candidate, scores []Score) []int32 {
	switch s.Policy {
	case NameBalance:
		return s.Balance.Pick(ranked, n, r, cands, scores)
	case NameDisabled:
		return ranked
	}
	return s.TTFT.Pick(ranked, n, r, cands, scores)
}

// Disturbed reports whether a load guard overrode a hot match: a candidate that
// holds a good part of the prompt, more than chosen does, was guarded out.
func (s *Settings) Disturbed(chosen int32, r Request, cands []Candidate, scores []Score) bool {
	for i := range cands {
		if scores[i].Verdict == LoadGuarded && cands[i].Match.Credited() > cands[chosen].Match.Credited() && s.Balance.Hot(r, &cands[i]) {
			return true
		}
	}
	return false
}

// Saturated reports whether every candidate is beyond MaxTTFT.
func (s *Settings) Saturated(r Request, cands []Candidate) bool {
	if s.MaxTTFT <= 0 {
		return false
	}
	for i := range cands {
		if s.TTFT.Wait(r, &cands[i]) <= s.MaxTTFT {
			return false
		}
	}
	return true
}
