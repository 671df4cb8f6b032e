package tokens

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Replicas whose ids requests use are compared with each other, with texts of nobody: one that
// returns others than most would keep the requests cold for which it is asked.
const (
	// DefaultCompareEvery is the pause between comparisons of a model that has requests.
	DefaultCompareEvery = 5 * time.Minute
	// comparedTexts is how many of the start-up conversations are compared: texts, and plain chats.
	comparedTexts = 12
	// mostCompared bounds the replicas of one comparison; the next one begins behind them.
	mostCompared = 32
	// mostComparisons bounds the comparisons that are kept.
	mostComparisons = 256
)

// compared are the replicas that are compared with each other: those of a served model that serve a tenant.
type compared struct{ model, tenant string }

// comparison is what replicas returned for the same texts.
type comparison struct {
	due     time.Time
	dissent map[string]Dissent // by URL
}

// compareWhenDue begins a comparison, unless the last one is recent. r.mu is held.
func (r *Remote) compareWhenDue(of compared) {
	now, c := r.o.Now(), r.compared[of]
	if r.o.CompareEvery < 0 || c != nil && now.Before(c.due) {
		return
	}
	endpoints := peers(r.o.Endpoints(Served{Model: of.model, Tenant: of.tenant})) // whatever a gateway allows the request
	if c == nil {
		if len(r.compared) >= mostComparisons {
			maps.DeleteFunc(r.compared, func(_ compared, c *comparison) bool { return now.After(c.due) && len(c.dissent) == 0 })
		}
		if len(endpoints) < 2 || len(r.compared) >= mostComparisons {
			return
		}
		c = &comparison{dissent: map[string]Dissent{}}
		r.compared[of] = c
	}
	if !r.slots.Take(1, int64(r.o.Flights)) {
		return
	}
	c.due = now.Add(r.o.CompareEvery)
	from := int(r.turn.Add(mostCompared)) % max(1, len(endpoints))
	few := slices.Concat(endpoints[from:], endpoints[:from])
	few = few[:min(len(few), mostCompared)]
	r.running.Go(func() {
		defer r.slots.Give(1)
		r.compare(r.ctx, of, few, endpoints)
	})
}

// compare asks replicas for the ids of the same texts. Those that return others than more than
// half of them are not asked about requests until they agree again.
func (r *Remote) compare(ctx context.Context, of compared, few, all []Endpoint) {
	var by []string          // that answered, by URL
	var answers [][][]uint32 // by replica and text
	for _, e := range few {
		if ids := r.answersOf(ctx, of.model, e); ids != nil {
			by, answers = append(by, e.URL), append(answers, ids)
		}
	}
	right, most := majority(answers)
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.compared[of]
	if c == nil || ctx.Err() != nil {
		return
	}
	r.forgive(c.dissent, func(url string) bool { return !slices.ContainsFunc(all, func(e Endpoint) bool { return e.URL == url }) })
	for i, url := range by {
		position, equal := differ(answers[right], answers[i])
		if equal {
			r.forgive(c.dissent, func(named string) bool { return named == url })
			continue
		}
		c.dissent[url] = Dissent{Model: of.model, Replica: address(url), Position: position, Shunned: most, At: r.o.Now()}
		r.paces.shun(url, most)
	}
}

// answersOf returns a replica's ids of each text, nil for one that it refuses. It returns nil if
// it answers none.
func (r *Remote) answersOf(ctx context.Context, model string, e Endpoint) [][]uint32 {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	var ids [][]uint32
	all := probes(model)
	for _, req := range all[:min(len(all), comparedTexts)] {
		result, err := r.Ask(ctx, req, model, []Endpoint{e})
		if err != nil && ctx.Err() != nil {
			return nil
		}
		var one []uint32
		for _, p := range result.Prompts {
			one = append(one, p.Tokens...)
		}
		ids = append(ids, one)
	}
	if !slices.ContainsFunc(ids, func(one []uint32) bool { return one != nil }) {
		return nil
	}
	return ids
}

// majority returns the number of the first answer that no other one has more equals than, and
// whether more than half of all are equal to it.
func majority(answers [][][]uint32) (right int, most bool) {
	best := 0
	for i := range answers {
		n := 0
		for j := range answers {
			if _, equal := differ(answers[i], answers[j]); equal {
				n++
			}
		}
		if n > best {
			right, best = i, n
		}
	}
	return right, 2*best > len(answers)
}

// differ returns the position of the first id that differs between two replicas, counted over
// all texts that both answered.
func differ(a, b [][]uint32) (position int, equal bool) {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			continue
		}
		at, same := firstDifference([][]uint32{a[i]}, []Prompt{{Tokens: b[i]}})
		position += at
		if !same {
			return position, false
		}
	}
	return position, true
}

// forgive drops the dissent of replicas, which requests pass over no longer.
func (r *Remote) forgive(dissent map[string]Dissent, of func(url string) bool) {
	for url := range dissent {
		if of(url) {
			delete(dissent, url)
			r.paces.shun(url, false)
		}
	}
}

// Dissents returns the replicas that returned other ids than others for the same texts, in no order, of each
// model whose requests' ids replicas compute, and of each tenant that they serve.
func (r *Remote) Dissents() (all []Dissent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.compared {
		all = slices.AppendSeq(all, maps.Values(c.dissent))
	}
	return all
}
