package filter

import (
	"cmp"

	"github.com/cespare/xxhash/v2"

	"warmroute/internal/decision"
)

// Trial says which requests pass without their hint, although a decision is taken,
// recorded and counted for them. The zero value withholds none.
type Trial struct {
	Shadow bool    // every hint is withheld
	Share  float64 // percent of the requests that get their hints; 0 = 100
	// ShareBy is the header, in lower case, by whose value the share is drawn, so that
	// requests with equal values stay together. "", and a request without the header: by
	// the request's id.
	ShareBy string
	OptOut  string // header, in lower case, by which a request passes without a hint; "" = none
}

// withheld returns why the request gets no hint. Its own wish comes first, so that such
// requests are in neither of the groups that a trial compares.
func (t *Trial) withheld(r *trialRequest) decision.Withheld {
	switch {
	case r.optedOut:
		return decision.WithheldOptedOut
	case t.Shadow:
		return decision.WithheldShadow
	case t.Share > 0 && t.Share < 100 && !t.draws(r):
		return decision.WithheldShare
	}
	return decision.WithheldNot
}

// draws reports whether the request is in the share. Every router draws alike. A request
// with neither an id nor the header is not in it.
func (t *Trial) draws(r *trialRequest) bool {
	value := cmp.Or(r.value, r.id)
	return value != "" && fraction(value)*100 < t.Share
}

// shareSeed keeps the draw apart from the hash rings of gateways, which hash the same
// headers with xxHash, too.
const shareSeed = 0x77_61_72_6d_72_6f_75_74

// fraction returns the place of a value between 0 and 1: a larger share contains a
// smaller one.
func fraction(value string) float64 {
	var d xxhash.Digest
	d.ResetWithSeed(shareSeed)
	_, _ = d.WriteString(value)
	return float64(d.Sum64()>>11) / (1 << 53)
}

// trialRequest is what a trial reads of a request.
type trialRequest struct {
	id, value string // its id, and the first value of ShareBy
	optedOut  bool
}

// read takes a request header.
func (t *Trial) read(r *trialRequest, name, value string) {
	if name == t.ShareBy && r.value == "" {
		r.value = value
	}
	if name == t.OptOut && value != "" && value != "0" && value != "false" {
		r.optedOut = true
	}
}
