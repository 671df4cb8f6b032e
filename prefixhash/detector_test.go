package prefixhash

import (
	"slices"
	"testing"
)

// publish returns the events a replica with configuration v sends for a prompt:
// one of the first split blocks, one of the rest.
func publish(v *VLLM, root Digest, tokens []uint32, r Request, ints bool, split int) []Stored {
	const size = 16
	digests := v.AppendDigests(nil, Position{Parent: root}, tokens, size, r)
	extras := r.AppendExtras(nil, len(digests), size)
	sent := slices.Clone(digests)
	if ints {
		for i, d := range sent {
			sent[i] = KeyDigest(d.Key())
		}
	}
	e := Stored{BlockSize: size, LoRA: r.LoRA, LoRAPath: r.LoRAPath}
	a, b := e, e
	a.Hashes, a.Tokens, a.Extras = sent[:split], tokens[:split*size], extras[:min(split, len(extras))]
	b.Hashes, b.Tokens, b.Extras = sent[split:], tokens[split*size:len(digests)*size], extras[min(split, len(extras)):]
	b.Parent = sent[split-1]
	return []Stored{a, b}
}

func detector(t *testing.T, o DetectorOptions, seeds ...string) *Detector {
	t.Helper()
	if o.Candidates == nil {
		var err error
		if o.Candidates, err = Candidates(seeds...); err != nil {
			t.Fatal(err)
		}
	}
	d, err := NewDetector(o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDetectorNamesEveryConfiguration: each candidate publishes in turn, with
// integers and with bytes, and must be the only one left.
func TestDetectorNamesEveryConfiguration(t *testing.T) {
	salt, seeds := "tenant", []string{"0", "42"}
	r := Request{LoRA: LoRA{Name: "l", Set: true}, LoRAPath: "/l", CacheSalt: &salt, MM: []MM{{"a", 5, 40}}}
	all, err := Candidates(seeds...)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2*4*3 {
		t.Fatalf("%d candidates", len(all))
	}
	for i, v := range all {
		root, known := v.Root()
		formats := []bool{true, false}
		if !known { // then integers tell nothing
			random := VLLMOptions{v.Algorithm(), v.Generation(), &salt}
			other, _ := NewVLLM(random)
			root, _ = other.Root()
			formats = formats[1:]
		}
		for _, ints := range formats {
			d := detector(t, DetectorOptions{}, seeds...)
			for _, e := range publish(v, root, someTokens(16*8), r, ints, 3) {
				d.Observe(e)
			}
			got := d.Detection()
			if got.State != Match || len(got.Candidates) != 1 || got.Candidates[0] != d.o.Candidates[i] {
				t.Errorf("%v, integers %v: %v %v", v, ints, got.State, got.Candidates)
			}
			if want := uint64(8); known && got.Matched != want || !known && got.Matched != want-1 || got.Unverified != 0 {
				t.Errorf("%v, integers %v: %+v", v, ints, got)
			}
		}
	}
}

// TestDetectorGenerationNeedsExtras: without extra keys the generations agree.
func TestDetectorGenerationNeedsExtras(t *testing.T) {
	d := detector(t, DetectorOptions{}, "42")
	seed, salt := "42", "s"
	v, _ := NewVLLM(VLLMOptions{SHA256CBOR, Tagged, &seed})
	root, _ := v.Root()
	for _, e := range publish(v, root, someTokens(64), Request{}, true, 2) {
		d.Observe(e)
	}
	if got := d.Detection(); got.State != Match || len(got.Candidates) != 2 {
		t.Errorf("plain blocks: %v %v, want both generations", got.State, got.Candidates)
	}
	for _, e := range publish(v, root, someTokens(64), Request{CacheSalt: &salt}, true, 2) {
		d.Observe(e)
	}
	if got := d.Detection(); got.State != Match || len(got.Candidates) != 1 || got.Candidates[0].Generation() != Tagged {
		t.Errorf("salted blocks: %v %v, want tagged alone", got.State, got.Candidates)
	}
}

func TestDetectorCannotTellOrMismatch(t *testing.T) {
	secret := "not among the candidates"
	v, _ := NewVLLM(VLLMOptions{XXHash, Tagged, &secret})
	root, _ := v.Root()
	fixed := slices.DeleteFunc(detector(t, DetectorOptions{}, "42").o.Candidates, func(c *VLLM) bool { return !c.Seeded() })
	broken := func(events []Stored) []Stored {
		for i := range events {
			events[i].Hashes = slices.Clone(events[i].Hashes)
			for j := range events[i].Hashes {
				events[i].Hashes[j].b[events[i].Hashes[j].n-1] ^= 1
			}
		}
		return events
	}
	for _, c := range []struct {
		name       string
		candidates []*VLLM
		events     []Stored
		want       State
	}{
		{"random root, integers", nil, publish(v, root, someTokens(128), Request{}, true, 2), Undetermined},
		{"random root, bytes", nil, publish(v, root, someTokens(128), Request{}, false, 2), Match},
		{"random root, only seeded candidates", fixed, publish(v, root, someTokens(128), Request{}, true, 2), Mismatch},
		{"wrong bytes", nil, broken(publish(v, root, someTokens(128), Request{}, false, 2)), Mismatch},
		{"no prompt's start seen", fixed, publish(v, root, someTokens(128), Request{}, true, 2)[1:], Undetermined},
		{"adapter of unknown path", fixed[len(fixed)-1:], publish(v, root, someTokens(128), Request{LoRA: LoRA{Name: "l", Set: true}}, false, 2), Undetermined},
		{"tokens of another length", nil, []Stored{{Hashes: make([]Digest, 3), Tokens: make([]uint32, 47), BlockSize: 16}}, Undetermined},
		{"no block size", nil, []Stored{{Hashes: make([]Digest, 3)}}, Undetermined},
		{"nothing", nil, nil, Undetermined},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := detector(t, DetectorOptions{Candidates: c.candidates}, "42")
			blocks := uint64(0)
			for _, e := range c.events {
				d.Observe(e)
				blocks += uint64(len(e.Hashes))
			}
			got := d.Detection()
			if got.State != c.want {
				t.Errorf("%v, want %v (%+v)", got.State, c.want, got)
			}
			if got.Matched+got.Mismatched+got.Unverified != blocks {
				t.Errorf("%+v does not sum to %d blocks", got, blocks)
			}
			if c.want == Match && (got.Candidates[0].Algorithm() != XXHash) {
				t.Errorf("%v", got.Candidates)
			}
			d.Reset()
			if got := d.Detection(); got.State != Undetermined || got.Unverified != 0 {
				t.Errorf("after Reset: %+v", got)
			}
		})
	}
}

// TestDetectorIsBounded: memory by Remember, work by Burst and Every.
func TestDetectorIsBounded(t *testing.T) {
	v, _ := NewVLLM(VLLMOptions{Algorithm: SHA256, Generation: Tagged})
	root, _ := v.Root()
	d := detector(t, DetectorOptions{Candidates: []*VLLM{v}, Remember: 10, Burst: 100, Every: 8})
	seen := uint64(0)
	for i := range 200 {
		tokens := someTokens(16 * 20)
		tokens[0] = uint32(i)
		for _, e := range publish(v, root, tokens, Request{}, true, 4) {
			d.Observe(e)
			seen += uint64(len(e.Hashes))
		}
		if len(d.digests) > 10 || len(d.order) > 10 {
			t.Fatalf("remembers %d digests in %d places, want at most 10", len(d.digests), len(d.order))
		}
	}
	got := d.Detection()
	if most := 100 + seen/8; got.Matched > most || got.Matched < 100 {
		t.Errorf("%d of %d blocks hashed, want 100 to %d", got.Matched, seen, most)
	}
	if got.State != Match || got.Mismatched != 0 {
		t.Errorf("%+v", got)
	}
}

func TestDetectorOptions(t *testing.T) {
	v, _ := NewVLLM(VLLMOptions{Algorithm: SHA256, Generation: Tagged})
	for _, o := range []DetectorOptions{{}, {Candidates: make([]*VLLM, MaxCandidates+1)}, {Candidates: []*VLLM{v}, Every: -1}} {
		if _, err := NewDetector(o); err == nil {
			t.Errorf("%d candidates, every %d: no error", len(o.Candidates), o.Every)
		}
	}
}

func TestDetectorWhileAsked(t *testing.T) {
	v, _ := NewVLLM(VLLMOptions{Algorithm: SHA256, Generation: Tagged})
	root, _ := v.Root()
	d := detector(t, DetectorOptions{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, e := range publish(v, root, someTokens(16*64), Request{}, true, 30) {
			d.Observe(e)
		}
	}()
	for d.Detection().State != Match {
		select {
		case <-done:
			if d.Detection().State != Match {
				t.Fatal(d.Detection())
			}
		default:
		}
	}
	<-done
}
