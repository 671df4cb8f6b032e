package e2e

import ()

// explained has the fields of a decision that the test reads.
type explained struct {
	Reason, Chosen, Model string
	Source                string `json:"token_source"`
	Predicted             int    `json:"predicted_cached_tokens"`
	Candidates            []struct {
		Replica string
		State   struct {
			Match []struct{ Tokens int }
		}
	}
}
