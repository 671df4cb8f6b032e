package decision

import (
	"time"

	"warmroute/index"
	"warmroute/internal/sessions"
	"warmroute/prefixhash"
)

// Peers sends prefixes to the other routers of the fleet. Send must not block, and must
// copy Keys if it keeps them.
type Peers interface{ Send(p Prefix) }

// Statement is the meaning of a message about a Prefix.
type Statement uint8

const (
	Observed    Statement = iota + 3 // a prompt was sent to the holder, for its history
	Invalidated                      // the replica left; Keys are empty
	Ended                            // the request of an Observed prompt has ended; Keys is its last one
	Waiting                          // since when the first request of the model is held, if any is; Keys are empty
	Kept                             // the place of a held request whose client left or was refused; Keys is its last one
)

// Prefix is the beginning of a prompt on a holder, as routers send it to each other.
type Prefix struct {
	Statement     Statement
	Model, Tenant string // a served model's id, and the replica's tenant
	Holder        index.Holder
	Keys          []prefixhash.Key
	Lasts         time.Duration // Observed: for how long it counts as coming, 0 = its events do not tell; Waiting: since the first attempt, 0 = none waits; Kept: since the first attempt
	Unit          int           // Observed: of the marks that the keys are at; 0 = prefixhash.TextUnit
	Rest          int           // Observed: the tokens behind the last key; Ended: 0 = the prompt was not computed
	Tokens        int           // Observed: of the prompt of a session, 0 = it is of none; Kept: of the prompt
	Paid          time.Duration // Observed: of the holder's time, for what the prompt takes from sessions
	From          string        // the router that sent it, where it is received
}

const (
	// maxSentBlocks bounds the keys that are sent of one prompt: 32,768 tokens in blocks of 16.
	maxSentBlocks = 2048
	// maxReceivedTTL bounds how long a peer's prefix counts as coming.
	maxReceivedTTL = time.Minute
)

// send sends the keys of a prompt on a holder to other routers.
func (d *Decider) send(p Prefix, mv *View, at *holder) {
	if d.o.Peers == nil || len(p.Keys) == 0 {
		return
	}
	p.Model, p.Tenant, p.Holder = mv.model.ID, at.replica.Tenant, index.Holder{Replica: at.replica.Addr, Rank: at.rank}
	p.Keys = sentKeys(p.Keys)
	d.o.Peers.Send(p)
}

// sentKeys returns the keys of a prompt that other routers are told.
func sentKeys(keys []prefixhash.Key) []prefixhash.Key { return keys[:min(len(keys), maxSentBlocks)] }

// Receive applies a prefix from another router. A prefix of a model or
// replica that this router does not have changes nothing.
func (d *Decider) Receive(p Prefix) {
	now := d.now()
	switch p.Statement {
	case Invalidated:
		if d.history.Clear(p.Holder.Replica) {
			d.invalidated.Store(p.Holder.Replica, struct{}{})
		}
		return
	case Waiting:
		at := now.Add(-p.Lasts)
		if p.Lasts == 0 {
			at = time.Time{}
		}
		d.sessions.Holds(p.From, p.Model, at, now)
		return
	case Kept:
		if len(p.Keys) == 1 {
			d.sessions.Keep(p.Model, sessions.Place{Last: p.Keys[0], Tokens: p.Tokens, At: now.Add(-p.Lasts)}, now)
		}
		return
	}
	mv, _ := d.Find(p.Model, p.Tenant)
	if mv == nil || len(p.Keys) == 0 {
		return
	}
	at := mv.find(p.Holder.Replica, p.Holder.Rank)
	if at == nil {
		return
	}
	switch p.Statement {
	case Observed:
		d.arrived(&p, at)
	case Ended:
		at.history.Left(p.From, p.Keys[0], p.Rest > 0, now)
	}
}

// Gone records that another router is gone, or that a message of it was lost: the requests that it
// has in flight or holds count no longer.
func (d *Decider) Gone(router string) {
	d.history.Gone(router, d.now())
	d.sessions.Gone(router)
}

// tellHeld tells the other routers which request is the first that this one holds, and whose places
// it keeps.
func (d *Decider) tellHeld() {
	if d.o.Peers == nil {
		return
	}
	now := d.now()
	d.sessions.Tell(now, func(model string, at time.Time) {
		p := Prefix{Statement: Waiting, Model: model}
		if !at.IsZero() {
			p.Lasts = max(1, now.Sub(at))
		}
		d.o.Peers.Send(p)
	}, func(model string, p sessions.Place) {
		d.o.Peers.Send(Prefix{Statement: Kept, Model: model, Keys: []prefixhash.Key{p.Last}, Tokens: p.Tokens, Lasts: now.Sub(p.At)})
	})
}

// Raise counts pressure that another router met.
func (d *Decider) Raise(model string) {
	if mv, _ := d.Find(model, ""); mv != nil {
		d.pressure.Raise(mv.model.ID, d.now())
	}
}
