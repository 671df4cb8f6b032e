package main

import (
	"slices"
	"strings"
	"testing"
)

// TestSample: in a known package, the mutants that are killed, the ones that live and the
// ones that no test reaches.
func TestSample(t *testing.T) {
	want := []string{
		"./testdata/sample: 19 mutants, 19 tried: 15 killed, 3 lived, 1 not covered; 2 tests",
		"LIVED sample.go:10:14 >= to >",
		"LIVED sample.go:8:30 < to <=",
		"LIVED sample.go:15:2 statement left out",
		"NOT COVERED sample.go:28:31 / to *",
	}
	var out strings.Builder
	o := options{pkg: "./testdata/sample", tests: "./testdata/sample", run: ".", skip: "Alloc", statements: true, workers: 2}
	if err := mutate(&out, o); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if slices.Sort(got); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}
