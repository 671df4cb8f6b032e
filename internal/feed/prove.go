package feed

import (
	"warmroute/index"
	"warmroute/internal/fleet"
	"warmroute/internal/kvevents"
	"warmroute/prefixhash"
)

// prover recomputes some of a rank's published hashes, to find the algorithm and
// the seed: a live proof that the index understands its token ids, block size
// and extra keys. It belongs to the subscription's goroutine; any goroutine may
// read the verdict.
type prover struct {
	detector *prefixhash.Detector
	last     uint64 // the last sequence seen
}

func newProver(r *fleet.Replica) (*prover, error) {
	var seeds []string
	if r.HashSeed != nil {
		seeds = append(seeds, *r.HashSeed)
	}
	candidates, err := prefixhash.Candidates(seeds...)
	if err != nil {
		return nil, err
	}
	d, err := prefixhash.NewDetector(prefixhash.DetectorOptions{Candidates: candidates})
	if err != nil {
		return nil, err
	}
	return &prover{detector: d}, nil
}

// observe judges the candidates by a batch before it is applied.
func (p *prover) observe(seq uint64, b *kvevents.Batch) {
	if seq < p.last {
		p.detector.Reset() // the publisher began a new life
	}
	p.last = seq
	for i := range b.Events {
		if e := &b.Events[i]; e.Kind == index.Stored && !e.Placeholder() && !e.Unkeyed && len(e.Hashes) > 0 {
			p.detector.Observe(p.stored(e))
		}
	}
}

func (p *prover) stored(e *kvevents.Event) prefixhash.Stored {
	s := prefixhash.Stored{
		Tokens: e.Tokens, BlockSize: e.BlockSize, Extras: e.Extras, LoRA: e.LoRA, LoRAPath: e.LoRA.Path,
		Hashes: make([]prefixhash.Digest, 0, len(e.Hashes)),
	}
	if e.HasParent {
		s.Parent = published(e.Parent, e.ParentDigest())
	}
	digests := e.Digests()
	for i, h := range e.Hashes {
		var raw []byte
		if i < len(digests) {
			raw = digests[i]
		}
		s.Hashes = append(s.Hashes, published(h, raw))
	}
	return s
}

// published returns a hash as the event has it: a complete digest, or its last
// 64 bits.
func published(low uint64, raw []byte) prefixhash.Digest {
	if d, err := prefixhash.ParseDigest(raw); err == nil {
		return d
	}
	return prefixhash.KeyDigest(prefixhash.Key(low))
}
