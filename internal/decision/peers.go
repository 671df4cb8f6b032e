package decision

import (
	"time"

	"warmroute/index"
	"warmroute/prefixhash"
)

// Peers sends prefixes to the other routers of the fleet. Send must not block, and must
// copy Keys if it keeps them.
type Peers interface{ Send(p Prefix) }

// Statement is the meaning of a message about a Prefix.
type Statement uint8

const (
	Speculated  Statement = iota + 1 // a request with the prefix was sent to the holder
	Withdrawn                        // the speculation has ended
	Observed                         // a text's beginning was sent to the holder
	Invalidated                      // the replica left; Keys are empty
)

// Prefix is the beginning of a prompt on a holder, as routers send it to each other.
type Prefix struct {
	Statement     Statement
	Model, Tenant string // a served model's id, and the replica's tenant
	Holder        index.Holder
	Keys          []prefixhash.Key
	Lasts         time.Duration // Speculated: the duration
}

const (
	// maxSentBlocks bounds the keys that are sent of one prompt: 32,768 tokens in blocks of 16.
	maxSentBlocks = 2048
	// maxReceivedTTL bounds how long a peer's prefix is kept.
	maxReceivedTTL = time.Minute
)

// send sends the keys of a reservation to other routers.
func (d *Decider) send(kind Statement, mv *View, at *holder, keys []prefixhash.Key, lasts time.Duration) {
	if d.o.Peers == nil || len(keys) == 0 {
		return
	}
	d.o.Peers.Send(Prefix{
		Statement: kind, Model: mv.model.ID, Tenant: at.replica.Tenant, Holder: index.Holder{Replica: at.replica.Addr, Rank: at.rank},
		Keys: keys[:min(len(keys), maxSentBlocks)], Lasts: lasts,
	})
}

// Receive applies a prefix from another router. A prefix of a model or
// replica that this router does not have changes nothing.
func (d *Decider) Receive(p Prefix) {
	now := d.now()
	if p.Statement == Invalidated {
		if ids := d.ledger.IDs(p.Holder.Replica); len(ids) > 0 {
			d.learned.Invalidate(now, ids...)
			d.invalidated.Store(p.Holder.Replica, struct{}{})
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
	case Speculated:
		d.index.Speculate(mv.scopes[at.scope], at.id, p.Keys, now.Add(min(p.Lasts, maxReceivedTTL)))
	case Withdrawn:
		d.index.Withdraw(mv.scopes[at.scope], at.id, p.Keys)
	case Observed:
		d.invalidated.Delete(p.Holder.Replica)
		d.learned.Observe(mv.tree, p.Keys, at.id, now, d.Settings(mv).TextTTL)
	}
}

// Raise counts pressure that another router met.
func (d *Decider) Raise(model string) {
	if mv, _ := d.Find(model, ""); mv != nil {
		d.pressure.Raise(mv.model.ID, mv.model.Base, d.now())
	}
}

// observe records where a text was sent, by this router or another.
func (d *Decider) observe(mv *View, keys []prefixhash.Key, at *holder) {
	d.invalidated.Delete(at.replica.Addr)
	d.learned.Observe(mv.tree, keys, at.id, d.now(), d.Settings(mv).TextTTL)
	d.send(Observed, mv, at, keys, 0)
}
