package e2e

import (
	"encoding/json"
	"net/http"
)

// figures are one group's figures of the comparison.
type figures struct {
	Requests, Failed, Timed int
	Read                    int     `json:"usage_read"`
	Prompt                  int     `json:"prompt_tokens"`
	Cached                  int     `json:"cached_tokens"`
	FirstByte               seconds `json:"first_byte_seconds"`
	Duration                seconds `json:"answer_seconds"`
}

type seconds struct{ Sum, P50, P99 float64 }

// compared returns the groups of the page's JSON.
func (tr *trial) compared() map[string]figures {
	tr.t.Helper()
	var answer struct {
		Groups []struct {
			Group, Model string
			figures
		}
	}
	if err := json.Unmarshal([]byte(page(tr.t, "http://"+tr.admin+"/debug/trial")), &answer); err != nil {
		tr.t.Fatal(err)
	}
	out := map[string]figures{}
	for _, g := range answer.Groups {
		out[g.Group] = g.figures
	}
	return out
}

// counted sums up the lines of Envoy's log as the router should.
func (f *figures) counted(e *entry) {
	f.Requests++
	if e.Status == 0 || e.Status >= 500 {
		f.Failed++
		return
	}
	if e.Prompt != nil && e.Cached != nil {
		f.Read, f.Prompt, f.Cached = f.Read+1, f.Prompt+*e.Prompt, f.Cached+*e.Cached
	}
	if e.Status == http.StatusOK {
		f.Timed++
		f.FirstByte.Sum += e.FirstByte / 1e6
		f.Duration.Sum += e.Duration / 1e3
	}
}
