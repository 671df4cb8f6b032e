package main

import (
	"bufio"
	"container/list"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math/rand"
	"os"
)

// blocksPerID is the number of 16-token blocks in one of the trace's 512-token ids.
const blocksPerID = 32

// maxStored is the largest number of blocks in one store event.
const maxStored = 128

type opKind uint32

const (
	query opKind = iota
	store
	remove
)

// op is one step of the stream. blocks[i] numbers a block; the same number is
// the same block everywhere.
type op struct {
	kind      opKind
	replica   int
	hasParent bool
	parent    int
	blocks    []int
}

// stream is the operations of R replicas with LRU caches on a list of prompts.
type stream struct {
	replicas int
	ops      []op
}

// mix is splitmix64: block numbers become hashes that look like any others.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func content(block int) uint64 { return mix(uint64(block)*2 + 1) }
func engine(block int) uint64  { return mix(uint64(block)*2+2) | 1 }

// readTrace reads the prompts of a Mooncake trace: JSON lines with hash_ids.
func readTrace(path string) ([][]int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var prompts [][]int
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var row struct {
			HashIDs []int `json:"hash_ids"`
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(prompts)+1, err)
		}
		if len(row.HashIDs) > 0 {
			prompts = append(prompts, row.HashIDs)
		}
	}
	return prompts, sc.Err()
}

// synthesise makes prompts of the trace's shape if there is no trace: conversations of a
// few turns, each turn the whole conversation so far, with a shared beginning and a long
// tail of lengths.
func synthesise(requests int) [][]int {
	rng := rand.New(rand.NewSource(11))
	next := 1
	fresh := func(n int) (ids []int) {
		for range n {
			ids = append(ids, next)
			next++
		}
		return ids
	}
	var open, prompts [][]int
	for len(prompts) < requests {
		if len(open) == 0 || rng.Float64() < 0.4 {
			open = append(open, append([]int{0}, fresh(1+int(rng.ExpFloat64()*12))...))
		}
		i := rng.Intn(len(open))
		prompts = append(prompts, append([]int(nil), open[i]...))
		open[i] = append(open[i], fresh(1+int(rng.ExpFloat64()*3))...)
		if len(open[i]) > 200 || rng.Float64() < 0.25 {
			open[i] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	return prompts
}

// cache is one replica's LRU of ids.
type cache struct {
	lru *list.List // front is the most recent
	at  map[int]*list.Element
}

func (c *cache) prefix(ids []int) (n int) {
	for n < len(ids) && c.at[ids[n]] != nil {
		n++
	}
	return n
}

// simulate routes each prompt, three in four to the best match and the others anywhere,
// and records the caches' events. It draws from a seed: equal inputs give equal streams.
func simulate(prompts [][]int, replicas, capacity int) *stream {
	s := &stream{replicas: replicas}
	rng := rand.New(rand.NewSource(7))
	caches := make([]cache, replicas)
	for i := range caches {
		caches[i] = cache{list.New(), map[int]*list.Element{}}
	}
	for _, ids := range prompts {
		s.ops = append(s.ops, op{kind: query, blocks: expand(ids)})
		best, most := rng.Intn(replicas), -1
		if rng.Float64() < 0.75 {
			from := rng.Intn(replicas)
			for i := range replicas {
				r := (i + from) % replicas
				if n := caches[r].prefix(ids); n > most {
					best, most = r, n
				}
			}
		}
		s.serve(&caches[best], best, ids, capacity)
	}
	return s
}

func (s *stream) serve(c *cache, replica int, ids []int, capacity int) {
	n := c.prefix(ids)
	for i := n - 1; i >= 0; i-- {
		c.lru.MoveToFront(c.at[ids[i]])
	}
	for c.lru.Len()+len(ids)-n > capacity && c.lru.Len() > n {
		id := c.lru.Remove(c.lru.Back()).(int)
		delete(c.at, id)
		blocks := expand([]int{id})
		for i, j := 0, len(blocks)-1; i < j; i, j = i+1, j-1 {
			blocks[i], blocks[j] = blocks[j], blocks[i]
		}
		s.ops = append(s.ops, op{kind: remove, replica: replica, blocks: blocks})
	}
	var missing []int
	for _, id := range ids[n:] {
		if c.at[id] == nil {
			missing = append(missing, id)
		}
	}
	o := op{kind: store, replica: replica}
	if n > 0 {
		o.hasParent, o.parent = true, ids[n-1]*blocksPerID+blocksPerID-1
	}
	for blocks := expand(missing); len(blocks) > 0; {
		o.blocks = blocks[:min(maxStored, len(blocks))]
		blocks = blocks[len(o.blocks):]
		s.ops = append(s.ops, o)
		o.hasParent, o.parent = true, o.blocks[len(o.blocks)-1]
	}
	for i := len(ids) - 1; i >= 0; i-- {
		if el := c.at[ids[i]]; el != nil {
			c.lru.MoveToFront(el)
		} else {
			c.at[ids[i]] = c.lru.PushFront(ids[i])
		}
	}
}

func expand(ids []int) []int {
	blocks := make([]int, 0, len(ids)*blocksPerID)
	for _, id := range ids {
		for j := range blocksPerID {
			blocks = append(blocks, id*blocksPerID+j)
		}
	}
	return blocks
}

// write puts the stream into a file for programs in other languages, little
// endian: "IDXW0001", u32 replicas, u32 ops; an op is u32 kind, u32 replica,
// u32 blocks, u32 hasParent, u64 parent's engine hash; then for each block u64
// content, u64 engine hash, or for removals u64 engine hash.
func (s *stream) write(out io.Writer) error {
	w := bufio.NewWriterSize(out, 1<<20)
	u32 := func(v int) { _ = binary.Write(w, binary.LittleEndian, uint32(v)) } // Flush returns the first error
	var b [8]byte
	u64 := func(v uint64) {
		binary.LittleEndian.PutUint64(b[:], v)
		_, _ = w.Write(b[:])
	}
	_, _ = w.WriteString("IDXW0001")
	u32(s.replicas)
	u32(len(s.ops))
	for _, o := range s.ops {
		u32(int(o.kind))
		u32(o.replica)
		u32(len(o.blocks))
		if o.hasParent {
			u32(1)
			u64(engine(o.parent))
		} else {
			u32(0)
			u64(0)
		}
		for _, k := range o.blocks {
			if o.kind != remove {
				u64(content(k))
			}
			u64(engine(k))
		}
	}
	return w.Flush() // keeps the first error
}
