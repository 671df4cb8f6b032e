package prefixhash

import (
	"fmt"
	"slices"
)

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

// Candidates returns the candidates of the named function that the release may run with.
func (r Release) Candidates(seeds ...string) ([]*VLLM, error) {
	g := r.Generation()
	if r.Between(29, 30) {
		seeds = append([]string{defaultSeed}, seeds...)
	}
	all, err := Candidates(seeds...)
	return slices.DeleteFunc(all, func(v *VLLM) bool { return g != 0 && v.Generation() != g }), err
}
