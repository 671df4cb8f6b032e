package filter

import (
	"context"
	"sync"

	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// asking is a request whose token ids a replica may be asked for. That replica reads its text, and
// should be the one that answers it.
type asking struct {
	ctx context.Context
	req *openai.Request
	mv  *decision.View
	set *policy.Settings
}

// likely returns the address of the replica to which the longest known beginning of the request's
// text went last or, for a text that begins nothing known, of the one that would get it without
// a match. It returns "" if it finds none.
func (r *Router) likely(s *scratch) string {
	q := &s.asking
	s.asked = true
	if r.readText(q.ctx, s, q.req, q.mv) != nil {
		return ""
	}
	if addr := r.visits.last(s.chain); addr != "" && decision.InSubset(addr, s.ask.Subset) {
		return addr
	}
	other := r.scratch.Get().(*scratch)
	defer r.scratch.Put(other)
	other.begin()
	before := s.ask
	s.byText(q.req, q.mv)
	ask := s.ask
	s.ask = before
	ask.Dry, ask.MaySplit, ask.MayHold, ask.Ticket, ask.Rekey = true, false, false, nil, nil
	d := r.decider.Place(&ask, q.mv, q.set, &other.work)
	return d.First()
}

// visited keeps where a request went of which likely was asked.
func (r *Router) visited(s *scratch, d *decision.Decision) {
	if s.asked && d.Chosen != "" && len(s.chain) > 0 {
		r.visits.put(s.chain[len(s.chain)-1], d.First())
	}
}

// visits are the replicas to which texts went lately, by the texts' keys at their last marks. It
// keeps at least the last mostVisits of them, and at most twice as many.
type visits struct {
	mu         sync.Mutex // held for a few map operations
	young, old map[prefixhash.Key]string
}

// mostVisits takes about a megabyte.
const mostVisits = 8192

func (v *visits) put(k prefixhash.Key, addr string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.young == nil || len(v.young) >= mostVisits {
		v.young, v.old = make(map[prefixhash.Key]string), v.young
	}
	v.young[k] = addr
}

// last returns where the longest text went that ends at one of the keys, which are in order of
// length; "" = none of them is known.
func (v *visits) last(keys []prefixhash.Key) string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := len(keys) - 1; i >= 0; i-- {
		if addr, ok := v.young[keys[i]]; ok {
			return addr
		}
		if addr, ok := v.old[keys[i]]; ok {
			return addr
		}
	}
	return ""
}
