package indexrpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/prefixhash"
)

// entriesPerMessage keeps a message of a snapshot at about 100 KB.
const entriesPerMessage = 2000

// snapshotFormat is the version of the entries.
const snapshotFormat = 4

// chainCheck returns the key of a fixed prompt of this format. A router that computes
// another key for it cannot use this snapshot.
func chainCheck() uint64 {
	return uint64(prefixhash.AppendTokens(nil, prefixhash.TokenRoot("warmroute", prefixhash.LoRA{}), []uint32{snapshotFormat, 2, 3, 4}, prefixhash.Blocks{Size: 4}, nil)[0])
}

// StreamSnapshot implements the contract.
func (s *Server) StreamSnapshot(_ *indexpb.SnapshotRequest, out grpc.ServerStreamingServer[indexpb.Snapshot]) error {
	before := s.o.Cursors()
	w := snapshotWriter{holders: make(map[index.Holder]uint32, len(before)), scopes: make(map[index.Scope]uint32), part: new(indexpb.Snapshot)}
	first := &indexpb.Snapshot{Chain: chainCheck()}
	for i, c := range before {
		w.holders[c.Holder] = uint32(i)
		first.Holders = append(first.Holders, holderTo(c, c.Next))
	}
	if err := out.Send(first); err != nil {
		return err
	}
	for e := range s.x.Snapshot() {
		w.add(e)
		if len(w.part.GetEntries()) == entriesPerMessage {
			if err := out.Send(w.part); err != nil {
				return err
			}
			w.part = new(indexpb.Snapshot)
		}
	}
	w.part.Last = true
	for _, c := range s.o.Cursors() {
		w.part.Holders = append(w.part.Holders, holderTo(c, c.Begun))
	}
	return out.Send(w.part)
}

func holderTo(c index.Cursor, next uint64) *indexpb.SnapshotHolder {
	return &indexpb.SnapshotHolder{ReplicaId: c.Holder.Replica, Rank: int32(c.Holder.Rank), Next: next, Digest: c.Digest, Whole: c.Complete,
		Incarnation: c.Incarnation, Tenant: c.Tenant, Model: c.Model, HashScheme: c.Scheme, Full: c.Full}
}

// snapshotWriter gathers one message.
type snapshotWriter struct {
	holders map[index.Holder]uint32
	scopes  map[index.Scope]uint32
	part    *indexpb.Snapshot
}

// add writes an entry of a holder with a known place.
func (w *snapshotWriter) add(e index.Entry) {
	holder, known := w.holders[e.Holder]
	if !known {
		return
	}
	at, known := w.scopes[e.Scope]
	if !known {
		at = uint32(len(w.scopes))
		w.scopes[e.Scope] = at
		w.part.Scopes = append(w.part.Scopes, &indexpb.SnapshotScope{Tenant: e.Scope.Tenant, Model: e.Scope.Model, Lora: loraTo(e.Scope.LoRA),
			HashScheme: e.Scope.Scheme, BlockSize: uint32(e.Scope.BlockSize), Group: int32(e.Scope.Group)})
	}
	w.part.Entries = append(w.part.Entries, &indexpb.SnapshotEntry{Scope: at, Holder: holder, Tier: indexpb.Tier(e.Tier),
		Key: uint64(e.Key), Hash: e.Hash, Parent: uint64(e.Parent), Extra: uint32(e.Extra)})
}

var (
	errChain    = errors.New("the peer computes other keys, or writes another format: it runs another version")
	errSnapshot = errors.New("the peer's snapshot is malformed")
)

// Fetch restores the blocks of publishers that another index follows. It returns the
// places in the publishers' streams; subscribers must continue from them before the
// blocks are used. An incomplete snapshot restores nothing.
func Fetch(ctx context.Context, c indexpb.CacheIndexClient, into *index.Index) ([]index.Cursor, index.Result, error) {
	ctx, cancel := context.WithCancel(ctx) // ends the stream with us
	defer cancel()
	stream, err := c.StreamSnapshot(ctx, &indexpb.SnapshotRequest{})
	if err != nil {
		return nil, index.Result{}, err
	}
	var r snapshotReader
	for !r.done {
		part, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			err = errSnapshot
		}
		if err == nil {
			err = r.read(part)
		}
		if err != nil {
			return nil, index.Result{}, err
		}
	}
	cursors := r.cursors()
	usable := make(map[index.Holder]bool, len(cursors))
	for _, c := range cursors {
		usable[c.Holder] = true
	}
	r.entries = slices.DeleteFunc(r.entries, func(e index.Entry) bool { return !usable[e.Holder] })
	return cursors, into.Restore(slices.Values(r.entries)), nil
}

// snapshotReader reads the parts of a snapshot.
type snapshotReader struct {
	begun, done bool
	holders     []index.Cursor // of the first part; Incarnation 0 = not to be used
	scopes      []index.Scope
	entries     []index.Entry
}

func (r *snapshotReader) read(p *indexpb.Snapshot) error {
	if !r.begun {
		r.begun = true
		if p.GetChain() != chainCheck() {
			return errChain
		}
		for _, h := range p.GetHolders() {
			if h.GetReplicaId() == "" || h.GetRank() < 0 || h.GetNext() == 0 || h.GetIncarnation() == 0 {
				return errSnapshot
			}
			r.holders = append(r.holders, index.Cursor{Holder: index.Holder{Replica: h.GetReplicaId(), Rank: int(h.GetRank())}, Next: h.GetNext(),
				Digest: h.GetDigest(), Complete: h.GetWhole(), Incarnation: h.GetIncarnation(),
				Tenant: h.GetTenant(), Model: h.GetModel(), Scheme: h.GetHashScheme(), Full: h.GetFull()})
		}
	}
	for _, s := range p.GetScopes() {
		r.scopes = append(r.scopes, index.Scope{Tenant: s.GetTenant(), Model: s.GetModel(), LoRA: loraOf(s.GetLora()), Scheme: s.GetHashScheme(),
			BlockSize: int(s.GetBlockSize()), Group: int(s.GetGroup())})
	}
	for _, e := range p.GetEntries() {
		if err := r.entry(e); err != nil {
			return err
		}
	}
	if p.GetLast() {
		r.done = true
		r.finish(p.GetHolders())
	}
	return nil
}

// extraLimit bounds the accepted copies of a block beyond the first.
const extraLimit = 1 << 10

func (r *snapshotReader) entry(e *indexpb.SnapshotEntry) error {
	if int(e.GetScope()) >= len(r.scopes) || r.scopes[e.GetScope()].Scheme == "" {
		return fmt.Errorf("%w: an entry of scope %d", errSnapshot, e.GetScope())
	}
	if int(e.GetHolder()) >= len(r.holders) || e.GetTier() < 0 || e.GetTier() > indexpb.Tier_TIER_STORAGE || e.GetExtra() > extraLimit {
		return fmt.Errorf("%w: an entry of holder %d, tier %d", errSnapshot, e.GetHolder(), e.GetTier())
	}
	r.entries = append(r.entries, index.Entry{Scope: r.scopes[e.GetScope()], Holder: r.holders[e.GetHolder()].Holder, Tier: index.Tier(e.GetTier()),
		Key: prefixhash.Key(e.GetKey()), Hash: e.GetHash(), Parent: prefixhash.Key(e.GetParent()), Extra: int(e.GetExtra())})
	return nil
}

// finish compares the places with the places after the entries were read, and marks a
// holder that was removed meanwhile as unusable.
func (r *snapshotReader) finish(after []*indexpb.SnapshotHolder) {
	begun := make(map[index.Holder]*indexpb.SnapshotHolder, len(after))
	for _, h := range after {
		begun[index.Holder{Replica: h.GetReplicaId(), Rank: int(h.GetRank())}] = h
	}
	for i := range r.holders {
		c := &r.holders[i]
		if h := begun[c.Holder]; h == nil || h.GetIncarnation() != c.Incarnation {
			c.Incarnation = 0
		} else {
			c.Begun = max(c.Next, h.GetNext())
		}
	}
}

func (r *snapshotReader) cursors() (usable []index.Cursor) {
	for _, c := range r.holders {
		if c.Incarnation != 0 {
			c.Incarnation = 0 // the peer's incarnation means nothing here
			usable = append(usable, c)
		}
	}
	return usable
}
