// Command indexbench replays a request trace's cache events through the index and prints
// the costs of its operations, with checksums of all matches.
//
//	indexbench [-trace conversation.jsonl] [-r 8,64,512] [-scheme engine,tokens] [-growth] [-quick] [-out DIR] [-cpuprofile FILE]
//	indexbench -groups [-quick]
//	indexbench -compare RESULTS
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strconv"
	"strings"
)

// capacities are the ids (of 512 tokens) that a replica's cache holds, by replicas: 64k,
// 32k and 8k blocks.
var capacities = map[int]int{8: 2000, 64: 1000, 512: 250}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "indexbench:", err)
		os.Exit(1)
	}
}

func run() error {
	trace := flag.String("trace", "", "Mooncake trace (JSON lines with hash_ids); empty: a seeded synthetic one")
	replicas := flag.String("r", "8,64,512", "numbers of replicas")
	schemes := flag.String("scheme", "engine,tokens", `what keys the index: "engine" (hashes as they are) or "tokens" (own chain, with an engine-hash map)`)
	grows := flag.Bool("growth", false, "also print growth with chain length and replicas")
	grouped := flag.Bool("groups", false, "only print lookups among holders with several cache groups, beside dense ones")
	quick := flag.Bool("quick", false, "only the interleaved replay; of -groups fewer rounds and lengths")
	out := flag.String("out", "", "write the operation files ops-R.bin here and measure nothing")
	results := flag.String("compare", "", "print medians and ratios of this file of results and measure nothing")
	profile := flag.String("cpuprofile", "", "write a CPU profile of the measurements here")
	flag.Parse()

	if *results != "" {
		return compare(*results)
	}
	if *profile != "" {
		f, err := os.Create(*profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}

	if *grouped {
		if *quick {
			return groups([]int{8, 64, 512}, []int{64, 1024}, 50)
		}
		return groups([]int{8, 64, 512}, []int{64, 1024, 8192}, 500)
	}
	prompts := synthesise(12_000)
	if *trace != "" {
		var err error
		if prompts, err = readTrace(*trace); err != nil {
			return err
		}
	}
	for _, text := range strings.FieldsFunc(*replicas, func(c rune) bool { return c == ',' }) {
		r, err := strconv.Atoi(text)
		if err != nil || r < 1 {
			return fmt.Errorf("-r: %q is not a number of replicas", text)
		}
		capacity, ok := capacities[r]
		if !ok {
			capacity = 1000
		}
		s := simulate(prompts, r, capacity)
		if *out != "" {
			if err := writeFile(s, filepath.Join(*out, fmt.Sprintf("ops-%d.bin", r))); err != nil {
				return err
			}
			continue
		}
		for _, scheme := range strings.Split(*schemes, ",") {
			if err := measure(s, scheme, *quick); err != nil {
				return err
			}
		}
	}
	if *grows {
		return growth("engine")
	}
	return nil
}

func writeFile(s *stream, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := s.write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

func measure(s *stream, scheme string, quick bool) error {
	r := prepare(s, scheme)
	defer func() { r.x.Close() }()
	name := "warmroute/" + scheme
	if err := r.interleaved(name); err != nil || quick {
		return err
	}
	if err := r.memory(name); err != nil {
		return err
	}
	return r.readers(name)
}
