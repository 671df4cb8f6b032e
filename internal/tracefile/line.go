package tracefile

import (
	"encoding/json"
	"time"
)

// Replica is a replica of the fleet, as a line of the trace describes it.
type Replica struct {
	Addr        string `json:"replica"`
	Model       string `json:"model"` // the base model that it serves
	BlockTokens int    `json:"block"`
	Blocks      int    `json:"blocks"` // of its KV cache, of one rank; 0 = not known
	Ranks       int    `json:"ranks"`
}

// Prefilled is what the replicas of a model have counted since the line before. It shows their speed
// where no request does: hints are withheld, and answers are not streamed.
type Prefilled struct {
	Model    string  `json:"prefills"` // the base model
	Seconds  float64 `json:"seconds"`  // of prefills, all requests together
	Tokens   int     `json:"tokens"`   // that these have computed
	Requests int     `json:"requests"`
}

// Span is a range of consecutive numbers of blocks.
type Span struct{ First, Count uint64 }

// Version is the format's. It changes when a reader of the former cannot read it.
const Version = 1

// The lines, beside what the types of the same name say themselves.
type (
	runLine struct {
		Version int     `json:"trace"`
		Run     string  `json:"run"`
		At      float64 `json:"t"`
	}
	fleetLine struct {
		Fleet []Replica `json:"fleet"`
	}
	decidedLine struct {
		*Decided
		*Session
		At     float64  `json:"t"`
		Block  int      `json:"block,omitempty"`  // with blocks
		Blocks []uint64 `json:"blocks,omitempty"` // the first number and the count of each span
		Idle   float64  `json:"idle,omitempty"`   // s
		Waited float64  `json:"waited,omitempty"` // s
	}
	endedLine struct {
		*Ended
		At    float64 `json:"t"`
		First float64 `json:"first,omitempty"`
	}
	countedLine struct {
		*Counted
		Cached  *int  `json:"cached,omitempty"` // nil: the replica did not say
		FirstUS int64 `json:"first_us"`
		TookUS  int64 `json:"took_us"`
	}
)

// appendLine appends a line that is written seldom.
func appendLine(b []byte, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // numbers and texts alone
	}
	return append(append(b, text...), '\n')
}

// seconds returns Unix seconds with microseconds.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// longestText bounds a name in a line: a replica chooses its model's.
const longestText = 256

func bounded(s string) string { return s[:min(len(s), longestText)] }
