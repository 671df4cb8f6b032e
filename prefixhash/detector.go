package prefixhash

import (
	"fmt"
	"sync"
)

// Candidates returns the configurations a vLLM may run with: every algorithm in
// both generations, without a seed and with each of seeds: the usual candidates of a
// Detector.
func Candidates(seeds ...string) ([]*VLLM, error) {
	var all []*VLLM
	for g := Untagged; g <= Tagged; g++ {
		for a := SHA256; a <= XXHashCBOR; a++ {
			for i := -1; i < len(seeds); i++ {
				o := VLLMOptions{Algorithm: a, Generation: g}
				if i >= 0 {
					o.Seed = &seeds[i]
				}
				v, err := NewVLLM(o)
				if err != nil {
					return nil, err
				}
				all = append(all, v)
			}
		}
	}
	return all, nil
}

// DetectorOptions bound the memory and work of a Detector. Zero values mean the defaults.
type DetectorOptions struct {
	Candidates []*VLLM // at least one, at most MaxCandidates
	Remember   int     // digests kept as parents of later blocks; default 1,024 (about 80 KB)
	Burst      int     // block hashes to spend at once; default 4,096 (about 1 ms of SHA-256)
	Every      int     // seen blocks that earn one more block hash; default 16
}

// MaxCandidates bounds the configurations that a Detector distinguishes.
const MaxCandidates = 64

// Stored is the content of one BlockStored event: consecutive blocks, the first one
// behind Parent.
type Stored struct {
	Parent    Digest   // as published; the zero value: the first block of a prompt
	Hashes    []Digest // as published, one per block
	Tokens    []uint32 // len(Hashes) × BlockSize token ids; other lengths cannot be checked
	BlockSize int
	Extras    [][]ExtraKey // as published, by block
	LoRA      LoRA
	LoRAPath  string // "" if not known: then a Tagged candidate cannot be checked on an adapter's blocks
}

// State is a Detector's result.
type State uint8

const (
	// Undetermined means that no candidate has reproduced a hash, and at least one was
	// never checked: its root is random, or no prompt's first block was seen.
	Undetermined State = iota
	// Match means that a candidate reproduced every hash it was checked with.
	Match
	// Mismatch means that every candidate failed on some hash: no candidate computes the
	// replica's hashes.
	Mismatch
)

func (s State) String() string {
	switch s {
	case Undetermined:
		return "cannot tell"
	case Match:
		return "match"
	case Mismatch:
		return "mismatch"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText implements encoding.TextMarshaler.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Detection is the result of a Detector so far. Counts are in blocks.
type Detection struct {
	State State `json:"state"`
	// Candidates reproduced every hash they were checked with (State Match). Several
	// remain as long as they cannot differ: the generations agree on blocks without extra
	// keys.
	Candidates []*VLLM `json:"algorithms,omitempty"`
	Matched    uint64  `json:"blocks_matched"`    // reproduced by a candidate
	Mismatched uint64  `json:"blocks_mismatched"` // checked and reproduced by none
	Unverified uint64  `json:"blocks_unjudged"`   // passed over: no known parent, incomplete, or over budget
}

// Detector finds out which candidate computes the hashes that one replica publishes, by
// recomputing some of them. It drops a candidate at its first failure.
//
// A hash published as an integer is no parent: its digest is known only if the chain was
// recomputed from the prompt's first block on. So the Detector keeps the digests of
// recent blocks by their published hashes. If a replica publishes full digests, any block
// can be checked, also by a candidate without a root, which is dropped when a candidate
// with a root reproduces a first block. Memory and work are bounded, see DetectorOptions.
// One goroutine may observe while others read the verdict.
type Detector struct {
	o DetectorOptions

	mu        sync.Mutex
	rootless  uint64 // candidates whose root is random, by index
	remaining uint64 // candidates without a failure
	matched   uint64 // candidates with a success
	credit    int    // in 1/Every block hashes
	digests   map[Key]Digest
	order     []Key // keys of digests in the order they came, a ring
	oldest    int
	detection Detection
	computed  []Digest // scratch: one digest
}

// NewDetector fails without candidates, with more than MaxCandidates, and with
// negative bounds.
func NewDetector(o DetectorOptions) (*Detector, error) {
	if n := len(o.Candidates); n == 0 || n > MaxCandidates {
		return nil, fmt.Errorf("detector: %d candidates, want 1 to %d", n, MaxCandidates)
	}
	for _, b := range []struct {
		name  string
		value *int
		zero  int
	}{{"Remember", &o.Remember, 1024}, {"Burst", &o.Burst, 4096}, {"Every", &o.Every, 16}} {
		if *b.value < 0 {
			return nil, fmt.Errorf("detector: %s is %d, want a positive number", b.name, *b.value)
		}
		if *b.value == 0 {
			*b.value = b.zero
		}
	}
	d := &Detector{o: o}
	for i, c := range o.Candidates {
		if !c.root.Full() {
			d.rootless |= 1 << i
		}
	}
	d.Reset()
	return d, nil
}

// Reset drops all evidence: the replica has restarted.
func (d *Detector) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remaining = 1<<len(d.o.Candidates) - 1
	d.matched = 0
	d.credit = d.o.Burst * d.o.Every
	d.digests, d.order, d.oldest = make(map[Key]Digest), nil, 0
	d.detection = Detection{}
}

// Detection returns the result so far.
func (d *Detector) Detection() Detection {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.detection
	switch sure := d.remaining & d.matched; {
	case sure != 0:
		v.State = Match
		for i, c := range d.o.Candidates {
			if sure>>i&1 == 1 {
				v.Candidates = append(v.Candidates, c)
			}
		}
	case d.remaining == 0:
		v.State = Mismatch
	}
	return v
}

// Observe checks the candidates with some of an event's blocks.
func (d *Detector) Observe(s Stored) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.credit = min(d.credit+len(s.Hashes), d.o.Burst*d.o.Every)
	if s.BlockSize <= 0 || len(s.Tokens) != len(s.Hashes)*s.BlockSize {
		d.detection.Unverified += uint64(len(s.Hashes))
		return
	}
	parent, first := s.Parent, s.Parent == Digest{}
	for i := range s.Hashes {
		if !first && !parent.Full() {
			known, ok := d.digests[parent.Key()]
			if !ok {
				d.detection.Unverified += uint64(len(s.Hashes) - i)
				return
			}
			parent = known
		}
		d.block(&s, i, parent)
		parent, first = s.Hashes[i], false
	}
}

// block checks the candidates with block i, whose parent's digest is given; the
// zero digest means each candidate's own root.
func (d *Detector) block(s *Stored, i int, parent Digest) {
	published := s.Hashes[i]
	var extras [][]ExtraKey
	if i < len(s.Extras) {
		extras = s.Extras[i : i+1]
	}
	tokens := s.Tokens[i*s.BlockSize : (i+1)*s.BlockSize]
	judged, matched := false, false
	for c, v := range d.o.Candidates {
		from := parent
		if from == (Digest{}) {
			from = v.root
		}
		if d.remaining>>c&1 == 0 || !from.Full() || !v.canHash(s, extras) || d.credit < d.o.Every {
			continue
		}
		d.credit -= d.o.Every
		judged = true
		d.computed = v.AppendEventDigests(d.computed[:0], from, tokens, s.BlockSize, EventKeys{Extras: extras, LoRA: s.LoRA, LoRAPath: s.LoRAPath})
		if !agree(d.computed[0], published) {
			d.remaining &^= 1 << c
			continue
		}
		matched = true
		d.matched |= 1 << c
		d.remember(published, d.computed[0])
	}
	switch {
	case matched:
		if parent == (Digest{}) { // so its root is not random
			d.remaining &^= d.rootless
		}
		d.detection.Matched++
	case judged:
		d.detection.Mismatched++
	default:
		d.detection.Unverified++
	}
}

// canHash reports whether v has all inputs of the hash: the extra keys must have the
// adapter's name, and Tagged needs its path.
func (v *VLLM) canHash(s *Stored, extras [][]ExtraKey) bool {
	if !s.LoRA.Set {
		return true
	}
	named := len(extras) == 1 && len(extras[0]) > 0 && extras[0][0] == ExtraKey{ID: s.LoRA.Name}
	return named && (v.o.Generation == Untagged || s.LoRAPath != "")
}

// agree compares a digest with a published hash, which may be only the integer.
func agree(computed, published Digest) bool {
	if published.Full() {
		return computed == published
	}
	return computed.Key() == published.Key()
}

// remember keeps a block's digest as a parent for later blocks. It keeps no full
// published digest: the next event has it.
func (d *Detector) remember(published, digest Digest) {
	if published.Full() {
		return
	}
	k := published.Key()
	if _, ok := d.digests[k]; ok {
		return
	}
	if len(d.order) < d.o.Remember {
		d.order = append(d.order, k)
	} else {
		delete(d.digests, d.order[d.oldest])
		d.order[d.oldest] = k
		d.oldest = (d.oldest + 1) % len(d.order)
	}
	d.digests[k] = digest
}
