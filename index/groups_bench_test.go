package index

import (
	"fmt"
	"testing"
	"time"

	"warmroute/prefixhash"
)

// BenchmarkGroups compares a lookup among holders with several groups with one
// among holders of full attention alone, on the same prompt. In each fleet an
// eighth holds all of it, the others parts of eight lengths.
func BenchmarkGroups(b *testing.B) {
	for _, replicas := range []int{8, 64, 512} {
		for _, blocks := range []int{64, 1024, 8192} {
			for _, kinds := range []string{"dense", "3 windows", "5 windows", "3 states", "5 states"} {
				b.Run(fmt.Sprintf("%d replicas/%d blocks/%s", replicas, blocks, kinds), func(b *testing.B) {
					benchGroups(b, replicas, blocks, kinds)
				})
			}
		}
	}
}

func benchGroups(b *testing.B, replicas, blocks int, kinds string) {
	x := newGroups(b, time.Now)
	p := somePrompt(blocks*groupBlock + 1)
	extra, kind := 0, ""
	if kinds != "dense" {
		_, _ = fmt.Sscanf(kinds, "%d %s", &extra, &kind)
	}
	for i := range replicas {
		h := Holder{Replica: fmt.Sprint("r", i)}
		part := p[:blocks*(8-i%8)/8*groupBlock]
		if _, err := x.Apply(&Batch{Holder: h, Incarnation: x.Begin(h), Events: groupEvents(part, extra, kind)}); err != nil {
			b.Fatal(err)
		}
	}
	keys := p.AppendChain(nil, Chain{Unit: groupBlock})
	s := groupSpace
	s.Group = extra
	var f Found
	var prompt Prompt = p
	b.ResetTimer()
	n := 0
	for b.Loop() {
		x.FindPrompt(&f, s, keys, prompt)
		for m := range f.All() {
			n += int(m.Blocks)
		}
	}
	if n == 0 {
		b.Fatal("nothing was found")
	}
}

// groupEvents stores a prompt in full attention, and its end in extra groups.
func groupEvents(p tokensPrompt, extra int, kind string) []Event {
	contents := prefixhash.AppendContents(nil, p, groupBlock, nil)
	names := make([]uint64, len(contents))
	for i, c := range contents {
		names[i] = uint64(c) | 1
	}
	var events []Event
	for g := range extra {
		s := groupSpace
		s.Group, s.Scheme = g, "engine"
		e := Event{Kind: Stored, Scope: s, GroupKind: GroupOther, Tokens: len(p)}
		if kind == "windows" {
			e.Spec, e.Window, e.Engine = "sliding_window", 128<<g, names[max(0, len(names)-(128<<g+15)/groupBlock):]
		} else {
			e.Spec, e.Engine = "mamba", names[len(names)-1:]
		}
		events = append(events, e)
	}
	s := groupSpace
	s.Group = extra
	return append(events, Event{Kind: Stored, Scope: s, GroupKind: GroupFull, Spec: "full_attention", Engine: names, Content: contents, Tokens: len(p)})
}
