package decision

import (
	"strconv"
	"time"

	"warmroute/index"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
)

// Decision is the answer to one Ask.
type Decision struct {
	Reason      Reason
	Destination string       // "ip:port[,ip:port...]", "" = no hint
	Rank        string       // data-parallel rank for the first of them, "" = none
	Reservation *Reservation // of the request on the first of them; nil without a hint

	Model             string // the served model's id, "" = none; never a string of the request
	Tokens, Predicted int    // tokens of the prompts; of these, tokens expected in the first one's cache
}

// Record explains a decision later: it has names, numbers and verdicts, no text and no
// token ids. Its buffers are reused between records.
type Record struct {
	Seq        uint64            `json:"seq"`
	ID         string            `json:"id,omitempty"`
	At         time.Time         `json:"at"`
	Took       time.Duration     `json:"took_ns"`
	Route      string            `json:"route"`
	Model      string            `json:"model,omitempty"`
	Tenant     string            `json:"tenant,omitempty"`
	Reason     Reason            `json:"reason"`
	Policy     policy.Name       `json:"policy,omitempty"`
	Source     string            `json:"token_source,omitempty"`
	Prompts    int               `json:"prompts,omitempty"`
	Tokens     int               `json:"prompt_tokens,omitempty"`
	Blocks     int               `json:"blocks,omitempty"`
	Predicted  int               `json:"predicted_cached_tokens"`
	Chosen     string            `json:"chosen,omitempty"`
	Input      policy.Request    `json:"request"`
	Candidates []CandidateRecord `json:"candidates,omitempty"`
}

// CandidateRecord is one candidate of a Record.
type CandidateRecord struct {
	Replica string           `json:"replica"`
	Rank    int              `json:"rank"`
	State   policy.Candidate `json:"state"`
	Score   policy.Score     `json:"score"`
	Cache   *index.Groups    `json:"cache,omitempty"` // when requested: the prompt's blocks in its cache groups
	// Routers is the load of the other routers of the fleet there, by router; in
	// explanations of a present decision.
	Routers map[string]load.Share `json:"other_routers,omitempty"`
}

// Reset empties r and keeps its buffer.
func (r *Record) Reset() { *r = Record{Candidates: r.Candidates[:0]} }

// rankNames holds the header values of small ranks, so that setting one
// allocates nothing.
var rankNames = [...]string{"0", "1", "2", "3", "4", "5", "6", "7"}

func rankName(rank int) string {
	if rank < len(rankNames) {
		return rankNames[rank]
	}
	return strconv.Itoa(rank)
}
