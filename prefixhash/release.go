package prefixhash

import "fmt"

// Release is a release of vLLM. The zero value is an unknown one.
type Release struct{ major, minor int }

// ParseRelease reads vLLM's answer at /version.
func ParseRelease(version string) Release {
	var r Release
	if n, _ := fmt.Sscanf(version, "%d.%d", &r.major, &r.minor); n < 2 || r.major < 0 || r.minor < 0 {
		return Release{}
	}
	return r
}

// Between reports whether r is a release from 0.first to 0.last.
func (r Release) Between(first, last int) bool {
	return r.major == 0 && first <= r.minor && r.minor <= last
}

// Generation returns the release's way of writing extra keys, 0 if it is not known.
func (r Release) Generation() Generation {
	switch {
	case r.Between(21, 21), r.Between(27, 30):
		return Untagged
	case r.Between(31, 33):
		return Tagged
	}
	return 0
}

// Candidates returns the configurations that the release may run with: every algorithm in its
// generation, or in both, without a seed and with each of seeds.
func (r Release) Candidates(seeds ...string) (all []*VLLM) {
	if r.Between(29, 30) {
		seeds = append([]string{defaultSeed}, seeds...)
	}
	for g := Untagged; g <= Tagged; g++ {
		if known := r.Generation(); known != 0 && g != known {
			continue
		}
		for a := SHA256; a <= XXHashCBOR; a++ {
			for i := -1; i < len(seeds); i++ {
				o := VLLMOptions{Algorithm: a, Generation: g}
				if i >= 0 {
					o.Seed = &seeds[i]
				}
				v, _ := NewVLLM(o) // it knows them
				all = append(all, v)
			}
		}
	}
	return all
}
