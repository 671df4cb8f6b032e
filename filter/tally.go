package filter

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	dto "github.com/prometheus/client_model/go"

	"warmroute/internal/decision"
)

// mostTallied bounds the models whose decisions are counted apart; those of others count as
// decisions without a model.
const mostTallied = 256

// tallies count decisions by model and class. Readers and counters never wait.
type tallies struct {
	of atomic.Pointer[map[string]*tally] // replaced, never changed
	mu sync.Mutex                        // of replacing it
}

// tally has a count for each of decision.Classes.
type tally [len(decision.Classes)]atomic.Int64

func newTallies() *tallies {
	t := &tallies{}
	t.of.Store(&map[string]*tally{"": {}})
	return t
}

// count counts a decision about a request that is ours.
func (t *tallies) count(rec *decision.Record) {
	if rec.Reason == decision.ReasonNotOurs {
		return
	}
	all := *t.of.Load()
	own := all[rec.Model]
	if own == nil && len(all) <= mostTallied {
		own = t.add(rec.Model)
	}
	if own == nil {
		own = all[""]
	}
	own[slices.Index(decision.Classes[:], rec.Class())].Add(1)
}

// add returns the tally of a model, and makes it if there is room.
func (t *tallies) add(model string) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := *t.of.Load()
	if all[model] != nil || len(all) > mostTallied {
		return all[model]
	}
	all = maps.Clone(all)
	all[model] = new(tally)
	t.of.Store(&all)
	return all[model]
}

// Decisions returns the numbers of decisions so far, by the served model's id and by class;
// the model is "" where none is known.
func (m *Metrics) Decisions() map[string]map[decision.Class]int64 {
	out := map[string]map[decision.Class]int64{}
	for model, t := range *m.tallies.of.Load() {
		out[model] = map[decision.Class]int64{}
		for i, class := range decision.Classes {
			if n := t[i].Load(); n > 0 {
				out[model][class] = n
			}
		}
	}
	return out
}

// Spent returns the time that all requests so far have spent in the router, and their number.
func (m *Metrics) Spent() (seconds, requests float64) {
	var h dto.Metric
	if err := m.stream.Write(&h); err != nil {
		return 0, 0 // a histogram always can be written
	}
	return h.GetHistogram().GetSampleSum(), float64(h.GetHistogram().GetSampleCount())
}
