package kvevents

import (
	"sync"

	"warmroute/index"
	"warmroute/prefixhash"
)

const (
	chainTries   = 64  // first blocks of prompts on which all candidates are tried in a row
	chainRecheck = 256 // first blocks of prompts between later tries
	maxFirst     = 1 << 13
)

// chainFinder finds out which chain of vLLM's own hashes a publisher computes: algorithm,
// seed and the unit of tokens per hash, by reproducing the hash of a prompt's first block.
// A block that is larger than the unit has the chain's hash at its end.
type chainFinder struct {
	candidates []*prefixhash.VLLM
	unit       int  // 0 = not configured
	presume    bool // the first candidate of the publisher's generation, with the unit, is the chain until disproved

	chain    index.Keying
	ahead    bool // its hashes cover tokens behind their blocks
	salted   bool // a salted block has shown the generation
	seen     int
	computed []prefixhash.Digest
}

// forget starts over: the publisher may compute another chain now.
func (c *chainFinder) forget() { c.chain, c.seen, c.salted, c.ahead = index.Keying{}, 0, false, false }

// observe returns the chain as far as it is known after a batch.
func (c *chainFinder) observe(b *Batch) index.Keying {
	if len(c.candidates) == 0 {
		return index.Keying{}
	}
	for i := range b.Events {
		e := &b.Events[i]
		if e.Ahead > 0 { // the finder does not compute such hashes
			c.ahead = true
		}
		if c.ahead {
			c.chain = index.Keying{}
			return c.chain
		}
		if c.presume && e.Kind == index.Stored && c.chain.Hash == nil && c.seen == 0 {
			c.presumed(e.Spec != "", c.unitOf(b))
		}
		if e.Kind == index.Stored && !e.HasParent && len(e.Hashes) > 0 && !e.Unkeyed && !e.LoRA.Set && !e.HasID &&
			e.BlockSize > 0 && e.BlockSize <= maxFirst && len(e.Tokens) == len(e.Hashes)*e.BlockSize {
			c.first(e)
		}
	}
	return c.chain
}

// unitOf returns the configured unit, or vLLM's default: the greatest common divisor of the
// groups' blocks. The first batch names every group.
func (c *chainFinder) unitOf(b *Batch) int {
	if c.unit > 0 {
		return c.unit
	}
	unit := 0
	for i := range b.Events {
		if e := &b.Events[i]; e.Kind == index.Stored {
			for size := e.BlockSize; size > 0; {
				unit, size = size, unit%size
			}
		}
	}
	return unit
}

// presumed takes a chain before any block has shown it: a candidate of the generation that
// usually publishes such events, if any.
func (c *chainFinder) presumed(tagged bool, unit int) {
	if unit <= 0 {
		return
	}
	for _, v := range c.candidates {
		if _, ok := v.Root(); !ok {
			continue
		}
		likely := (v.Generation() == prefixhash.Tagged) == tagged
		if c.chain.Hash == nil || likely {
			c.chain = index.Keying{Hash: shared(v), Unit: unit}
		}
		if likely {
			return
		}
	}
}

// first judges the candidates by the first block of a prompt.
func (c *chainFinder) first(e *Event) {
	var extras []prefixhash.ExtraKey
	if len(e.Extras) > 0 {
		extras = e.Extras[0]
	}
	if len(extras) > 1 || len(extras) == 1 && extras[0].HasOffset {
		return
	}
	c.seen++
	salt := len(extras) > 0 && !c.salted
	if c.chain.Hash != nil && !salt && c.seen%chainRecheck != 0 || c.chain.Hash == nil && c.seen > chainTries && c.seen%chainRecheck != 0 {
		return
	}
	if c.chain.Hash != nil && c.computes(c.chain, e, extras) {
		c.salted = c.salted || salt
		return
	}
	if e.BlockSize%max(1, c.chain.Unit) != 0 {
		return
	}
	c.chain = index.Keying{}
	for pass := range 2 { // first the usual ones of such publishers
		for _, v := range c.candidates {
			if likely := (v.Generation() == prefixhash.Tagged) == (e.Spec != ""); likely != (pass == 0) {
				continue
			}
			if c.units(v, e, extras) {
				c.salted = c.salted || salt
				return
			}
		}
	}
}

// units tries the units of which a block can consist.
func (c *chainFinder) units(v *prefixhash.VLLM, e *Event, extras []prefixhash.ExtraKey) bool {
	for n := 1; n <= e.BlockSize; n++ {
		if e.BlockSize%n != 0 || c.unit > 0 && e.BlockSize/n != c.unit {
			continue
		}
		if at := (index.Keying{Hash: v, Unit: e.BlockSize / n}); c.computes(at, e, extras) {
			c.chain = index.Keying{Hash: shared(v), Unit: at.Unit}
			return true
		}
	}
	return false
}

// computes reports whether a chain reproduces the event's first hash.
func (c *chainFinder) computes(at index.Keying, e *Event, extras []prefixhash.ExtraKey) bool {
	root, ok := at.Hash.Root()
	if !ok || e.BlockSize%at.Unit != 0 {
		return false
	}
	var r prefixhash.Request
	if len(extras) > 0 { // of a first block without an adapter it is the salt
		r.CacheSalt = &extras[0].ID
	}
	c.computed = at.Hash.AppendDigests(c.computed[:0], prefixhash.Position{Parent: root}, e.Tokens[:e.BlockSize], at.Unit, r)
	n := len(c.computed)
	return n > 0 && uint64(c.computed[n-1].Key()) == e.Hashes[0]
}

// sharedHashes are the hash configurations by their results, so that replicas of one
// configuration have one chain, and a prompt's hashes are computed once.
var sharedHashes sync.Map

type hashIdentity struct {
	algorithm  prefixhash.Algorithm
	generation prefixhash.Generation
	root       prefixhash.Digest
}

func shared(v *prefixhash.VLLM) *prefixhash.VLLM {
	root, _ := v.Root()
	all, _ := sharedHashes.LoadOrStore(hashIdentity{v.Algorithm(), v.Generation(), root}, v)
	return all.(*prefixhash.VLLM)
}
