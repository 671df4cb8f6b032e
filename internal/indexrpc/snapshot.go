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
const snapshotFormat = 3

// chainCheck returns the key of a fixed prompt of this format. A router that computes
// another key for it cannot use this snapshot.
func chainCheck() uint64 {
	return uint64(prefixhash.AppendTokens(nil, prefixhash.TokenRoot("warmroute", prefixhash.LoRA{}), []uint32{snapshotFormat, 2, 3, 4}, 4, nil)[0])
}

// StreamSnapshot implements the contract.
func (s *Server) StreamSnapshot(_ *indexpb.SnapshotRequest, out grpc.ServerStreamingServer[indexpb.Snapshot]) error {
	cursors := func() []index.Cursor {
		if s.o.Cursors == nil {
			return nil
		}
		return s.o.Cursors()
	}
	before := cursors()
	w := snapshotWriter{holders: make(map[index.Holder]uint64, len(before)), scopes: make(map[index.Scope]uint32), part: new(indexpb.Snapshot)}
	first := &indexpb.Snapshot{Chain: chainCheck()}
	for i, c := range before {
		w.holders[c.Holder] = uint64(i)
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
	for _, c := range cursors() {
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
	holders map[index.Holder]uint64
	scopes  map[index.Scope]uint32
	part    *indexpb.Snapshot
}

// add writes the part of an entry that belongs to holders with a known place.
func (w *snapshotWriter) add(e index.Entry) {
	out := &indexpb.SnapshotEntry{Key: uint64(e.Key), HasEngine: e.HasHash, Engine: e.Hash, First: e.First, Parent: uint64(e.Parent)}
	for _, c := range e.Copies {
		if i, ok := w.holders[c.Holder]; ok {
			out.Copies = append(out.Copies, uint64(c.Extra)<<32|i<<2|uint64(c.Tier))
		}
	}
	if len(out.Copies) == 0 {
		return
	}
	at, known := w.scopes[e.Scope]
	if !known {
		at = uint32(len(w.scopes))
		w.scopes[e.Scope] = at
		w.part.Scopes = append(w.part.Scopes, &indexpb.SnapshotScope{Tenant: e.Scope.Tenant, Model: e.Scope.Model, Lora: loraTo(e.Scope.LoRA),
			HashScheme: e.Scope.Scheme, BlockSize: uint32(e.Scope.BlockSize), Group: int32(e.Scope.Group)})
	}
	out.Scope = at
	w.part.Entries = append(w.part.Entries, out)
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
	r.drop()
	return r.cursors(), into.Restore(slices.Values(r.entries)), nil
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
	out := index.Entry{Scope: r.scopes[e.GetScope()], Key: prefixhash.Key(e.GetKey()), HasHash: e.GetHasEngine(), Hash: e.GetEngine(), First: e.GetFirst(), Parent: prefixhash.Key(e.GetParent())}
	for _, c := range e.GetCopies() {
		holder, tier, extra := c&(1<<32-1)>>2, index.Tier(c&3), c>>32
		if holder >= uint64(len(r.holders)) || tier > index.TierStorage || extra > extraLimit {
			return fmt.Errorf("%w: a copy at holder %d, tier %d", errSnapshot, holder, tier)
		}
		out.Copies = append(out.Copies, index.Copy{Holder: r.holders[holder].Holder, Tier: tier, Extra: int(extra)})
	}
	r.entries = append(r.entries, out)
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

// drop removes the copies of unusable holders, and copies that no removal would find:
// blocks and hashes are read one after the other, so the hash of a block may have gone in
// between, with its last copy.
func (r *snapshotReader) drop() {
	usable := make(map[index.Holder]bool, len(r.holders))
	for _, c := range r.holders {
		usable[c.Holder] = c.Incarnation != 0
	}
	type held struct {
		scope  index.Scope
		key    prefixhash.Key
		holder index.Holder
	}
	named := make(map[held]bool)
	for i := range r.entries {
		e := &r.entries[i]
		e.Copies = slices.DeleteFunc(e.Copies, func(c index.Copy) bool { return !usable[c.Holder] })
		if e.HasHash {
			for _, c := range e.Copies {
				named[held{e.Scope, e.Key, c.Holder}] = true
			}
		}
	}
	for i := range r.entries {
		e := &r.entries[i]
		if !e.HasHash && e.Scope.Scheme == index.SchemeTokens { // others are found by their key
			e.Copies = slices.DeleteFunc(e.Copies, func(c index.Copy) bool { return !named[held{e.Scope, e.Key, c.Holder}] })
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
