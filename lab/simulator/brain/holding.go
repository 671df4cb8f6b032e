package brain

import (
	"slices"

	"warmroute/internal/decision"
	"warmroute/lab/simulator"
)

// Held is what Route returns for a request that is held.
const Held = -2

// Holding is a Brain as a policy that may hold requests.
type Holding struct{ *inProcess }

// NewHolding is NewPolicy for a Brain that may hold requests, where its settings say so.
func NewHolding(o Options) (*Holding, error) {
	b, err := New(o)
	if err != nil {
		return nil, err
	}
	b.tickets = map[int]decision.Decision{}
	return &Holding{&inProcess{b: b}}, nil
}

// NewHoldingRouters is NewRouters for brains that may hold requests, where their settings say so.
func NewHoldingRouters(n int, delay float64, o Options) (*Routers, error) {
	rs, err := NewRouters(n, delay, o)
	if err != nil {
		return nil, err
	}
	for _, r := range rs.all {
		r.b.tickets = map[int]decision.Decision{}
	}
	return rs, nil
}

// Wake returns the ids of the held requests that may be routed again.
func (rs *Routers) Wake(now float64) (ids []int) {
	rs.until(now)
	for _, r := range rs.all {
		ids = append(ids, (&Holding{&r.inProcess}).Wake(now)...)
		rs.send(now, r)
	}
	return ids
}

// Left records that the client of a request has gone.
func (rs *Routers) Left(now float64, q *simulator.Request) {
	rs.until(now)
	if r := rs.of[q.ID]; r != nil {
		(&Holding{&r.inProcess}).Left(now, q)
		rs.send(now, r)
		delete(rs.of, q.ID)
	}
}

// Wake returns the ids of the held requests that may be routed again.
func (h *Holding) Wake(now float64) (ids []int) {
	h.b.To(now)
	h.b.decider.WakeHeld()
	for id, d := range h.b.tickets {
		select {
		case <-d.Held.Ready():
			ids = append(ids, id)
		default:
		}
	}
	slices.Sort(ids)
	return ids
}

// Left records that the client of a request has gone.
func (h *Holding) Left(now float64, r *simulator.Request) {
	h.b.To(now)
	if d, ok := h.b.tickets[r.ID]; ok {
		d.Held.Leave(h.b.now)
		delete(h.b.tickets, r.ID)
	}
	if d, ok := h.b.open[r.ID]; ok {
		d.Reservation.Ended(false)
		d.Reservation.Release()
		delete(h.b.open, r.ID)
	}
}

// Work returns the session of a request in flight, and the request's number in it.
func (h *Holding) Work(id int) (session uint64, turn int) {
	d := h.b.open[id]
	return d.Reservation.Session()
}
