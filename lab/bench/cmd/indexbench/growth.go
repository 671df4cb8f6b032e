package main

import (
	"fmt"
	"time"

	"warmroute/index"
)

// growth prints lookup times by chain length and replicas: all replicas hold the whole
// chain, or each a different part of it.
func growth(scheme string) error {
	for _, length := range []int{64, 512, 8192} {
		for _, replicas := range []int{8, 64, 512} {
			for _, staggered := range []bool{false, true} {
				if err := grow(scheme, length, replicas, staggered); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func grow(scheme string, length, replicas int, staggered bool) error {
	s := &stream{replicas: replicas}
	chains := min(64, max(1, 2_000_000/(length*replicas)))
	want := 0
	for c := range chains {
		blocks := make([]int, length)
		for i := range blocks {
			blocks[i] = c*length + i
		}
		s.ops = append(s.ops, op{kind: query, blocks: blocks})
		for r := range replicas {
			n := length
			if staggered {
				n = max(1, length*(r+1)/replicas)
			}
			want += n
			o := op{kind: store, replica: r}
			for from := 0; from < n; from += maxStored {
				o.blocks = blocks[from:min(n, from+maxStored)]
				s.ops = append(s.ops, o)
				o.hasParent, o.parent = true, o.blocks[len(o.blocks)-1]
			}
		}
	}
	r := prepare(s, scheme)
	r.fresh()
	defer r.x.Close()
	for i, o := range s.ops {
		if o.kind != query {
			if err := r.apply(i); err != nil {
				return err
			}
		}
	}
	var found index.Found
	got := 0
	for _, keys := range r.queries {
		r.x.Find(&found, r.scope, keys)
		for m := range found.All() {
			got += int(m.Blocks)
		}
	}
	if got != want {
		return fmt.Errorf("chains of %d blocks, %d replicas, staggered %v: %d blocks matched, want %d", length, replicas, staggered, got, want)
	}
	var lat []time.Duration
	for start := time.Now(); time.Since(start) < 150*time.Millisecond; {
		keys := r.queries[len(lat)%chains]
		sink += warm(keys)
		t := time.Now()
		r.x.Find(&found, r.scope, keys)
		lat = append(lat, time.Since(t))
	}
	shape := "all full"
	if staggered {
		shape = "all different"
	}
	fmt.Printf("warmroute growth L=%d R=%d %s: median %d ns\n", length, replicas, shape, quantile(lat, 0.5))
	return nil
}
