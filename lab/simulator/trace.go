package simulator

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Request is one request of a trace, with its outcome in a run.
type Request struct {
	ID     int
	At     float64 // arrival, s
	Input  int     // tokens
	Output int     // tokens, at least 1
	Blocks []int32 // chained block ids of the prompt; the last block may be partial, unless Trace.Block is set
	Answer []int32 // ids of the blocks behind them that the answer fills, as far as later prompts show them

	Session int     // the requests of one go on from each other; 0 = not known
	Think   float64 // s from the answer before it in its session, with Config.Sessions

	Replica int     // that got it
	Prefill int     // the replica that computed its prompt; -1 = Replica
	Hit     int     // cached tokens
	First   float64 // time of the first token
	Done    float64

	Preempted int  // times
	refused   bool // no replica can hold it

	uncached int     // tokens that a policy expected the replica to compute
	cost     float64 // seconds that it expected for them

	of    *Request // whose prompt this one computes; nil = none
	moved bool     // another replica has computed the prompt
}

// Trace is a sequence of requests by arrival.
type Trace struct {
	Name     string
	Requests []Request
	Blocks   int     // distinct block ids, from 0
	Duration float64 // s from the first arrival to the last
	Block    int     // tokens of a block; 0 = the constant Block. Where it is set, it is that of the replicas' blocks, so that hits are whole blocks; others stand for the replicas' blocks of 16 tokens
}

// block returns the tokens of a block.
func (t *Trace) block() int {
	if t.Block > 0 {
		return t.Block
	}
	return Block
}

// row is a line of a trace file: the Mooncake format. Timestamps are ms.
type row struct {
	Timestamp float64 `json:"timestamp"`
	Input     int     `json:"input_length"`
	Output    int     `json:"output_length"`
	Hashes    []int64 `json:"hash_ids"`
}

// LoadTrace reads a trace in the Mooncake format. It spreads requests of one timestamp (the
// conversation trace has ticks of 3 s) at random over the time to the next one, by seed.
func LoadTrace(path string, seed uint64) (*Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	defer f.Close()
	name := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	return ReadTrace(f, name, seed)
}

// ReadTrace reads a trace in the Mooncake format; see LoadTrace.
func ReadTrace(r io.Reader, name string, seed uint64) (*Trace, error) {
	var rows []row
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 1<<20), 1<<26)
	for n := 1; lines.Scan(); n++ {
		var v row
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			return nil, fmt.Errorf("trace %s: line %d: %w", name, n, err)
		}
		if len(rows) > 0 && v.Timestamp < rows[len(rows)-1].Timestamp {
			return nil, fmt.Errorf("trace %s: line %d: timestamp %g is before the one above it", name, n, v.Timestamp)
		}
		rows = append(rows, v)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("trace %s: %w", name, err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("trace %s: %w", name, errors.New("no requests"))
	}
	at := arrivals(rows, rand.New(rand.NewPCG(seed, 1)))
	b := NewBuilder(name)
	for i, v := range rows {
		b.Add(at[i], v.Input, v.Output, v.Hashes)
	}
	return b.Trace(), nil
}

// maxTick is the longest time, in ms, over which LoadTrace spreads requests of one
// timestamp: a pause of the trace stays a pause.
const maxTick = 10_000

func arrivals(rows []row, rng *rand.Rand) []float64 {
	at := make([]float64, len(rows))
	for i := 0; i < len(rows); {
		j := i
		for j < len(rows) && rows[j].Timestamp == rows[i].Timestamp {
			j++
		}
		gap := 3000.0
		if j < len(rows) {
			gap = min(maxTick, rows[j].Timestamp-rows[i].Timestamp)
		}
		for k := i; k < j; k++ {
			at[k] = (rows[i].Timestamp + rng.Float64()*gap) / 1000
		}
		slices.Sort(at[i:j])
		i = j
	}
	return at
}

// Builder numbers the blocks of a trace from 0.
type Builder struct {
	t   Trace
	ids map[int64]int32
}

// NewBuilder begins a trace.
func NewBuilder(name string) *Builder {
	return &Builder{t: Trace{Name: name}, ids: map[int64]int32{}}
}

// Add appends a request that arrives at at, in seconds, no earlier than the request
// before. hashes are chained block ids of any size.
func (b *Builder) Add(at float64, input, output int, hashes []int64) {
	r := Request{ID: len(b.t.Requests), At: at, Input: max(1, input), Output: max(1, output), Blocks: make([]int32, len(hashes))}
	for i, h := range hashes {
		id, ok := b.ids[h]
		if !ok {
			id = int32(len(b.ids))
			b.ids[h] = id
		}
		r.Blocks[i] = id
	}
	b.t.Requests = append(b.t.Requests, r)
}

// Trace returns the trace, which must have a request.
func (b *Builder) Trace() *Trace {
	t := &b.t
	t.Blocks = len(b.ids)
	t.Duration = t.Requests[len(t.Requests)-1].At - t.Requests[0].At
	return t
}

// Block is the tokens of a block in traces that state none.
const Block = 512

// Synthetic returns a seeded trace of n requests: conversations of several turns
// behind a few shared system prompts, Poisson arrivals, heavy-tailed lengths.
func Synthetic(n int, seed uint64) *Trace {
	rng := rand.New(rand.NewPCG(seed, 2))
	b, fresh := NewBuilder("seeded"), int64(1<<40)
	block := func() int64 { fresh++; return fresh }
	type conversation struct {
		hashes []int64
		next   float64
	}
	var open []conversation
	at := 0.0
	for range n {
		at += rng.ExpFloat64()
		var c conversation
		if i := slices.IndexFunc(open, func(c conversation) bool { return c.next <= at }); i >= 0 {
			c = open[i]
			open = slices.Delete(open, i, i+1)
		} else {
			system := rng.IntN(8)
			for i := range 2 + system%4 {
				c.hashes = append(c.hashes, int64(system*100+i))
			}
		}
		for range 1 + int(math.Exp(rng.NormFloat64()+1.8)) { // median 6 blocks, mean 10
			c.hashes = append(c.hashes, block())
		}
		input := len(c.hashes)*Block - rng.IntN(Block)
		b.Add(at, input, 1+int(math.Exp(rng.NormFloat64()+5)), slices.Clone(c.hashes))
		if len(c.hashes) < 200 && rng.IntN(4) > 0 { // four turns on average
			c.next = at + 20 + 60*rng.ExpFloat64()
			open = append(open, c)
		}
	}
	return b.Trace()
}

// HotBursts returns a seeded trace of n requests. Half of them come in bursts of 32 with
// one long common prefix, and little text of their own.
func HotBursts(n int, seed uint64) *Trace {
	rng := rand.New(rand.NewPCG(seed, 3))
	b, fresh := NewBuilder("hot"), int64(1<<40)
	block := func() int64 { fresh++; return fresh }
	hot := make([]int64, 24)
	for i := range hot {
		hot[i] = int64(i)
	}
	at := 0.0
	for len(b.t.Requests) < n {
		at += 32 * rng.ExpFloat64()
		for range 32 {
			b.Add(at+0.2*rng.Float64(), len(hot)*Block+300, 100+rng.IntN(200), append(slices.Clone(hot), block()))
			own := make([]int64, 1+rng.IntN(24))
			for k := range own {
				own[k] = block()
			}
			b.Add(at+32*rng.Float64(), len(own)*Block-100, 50+rng.IntN(300), own)
		}
	}
	slices.SortFunc(b.t.Requests, func(x, y Request) int {
		switch {
		case x.At < y.At:
			return -1
		case x.At > y.At:
			return 1
		}
		return 0
	})
	for i := range b.t.Requests {
		b.t.Requests[i].ID = i
	}
	return b.Trace()
}

// Unique returns a seeded trace of n requests without common blocks.
func Unique(n int, seed uint64) *Trace {
	rng := rand.New(rand.NewPCG(seed, 4))
	b, fresh := NewBuilder("unique"), int64(0)
	at := 0.0
	for range n {
		at += rng.ExpFloat64()
		own := make([]int64, 1+min(240, int(math.Exp(1.3*rng.NormFloat64()+2.2))))
		for k := range own {
			fresh++
			own[k] = fresh
		}
		b.Add(at, len(own)*Block-rng.IntN(Block), 1+int(math.Exp(rng.NormFloat64()+5)), own)
	}
	return b.Trace()
}

// PrefillHeavy returns a seeded trace of n requests with long prompts and short answers:
// new documents behind one of eight system prompts of a block.
func PrefillHeavy(n int, seed uint64) *Trace {
	rng := rand.New(rand.NewPCG(seed, 6))
	b, fresh := NewBuilder("prefill"), int64(1<<40)
	at := 0.0
	for range n {
		at += rng.ExpFloat64()
		hashes := []int64{int64(rng.IntN(8))}
		for range 8 + rng.IntN(40) {
			fresh++
			hashes = append(hashes, fresh)
		}
		b.Add(at, len(hashes)*Block-rng.IntN(Block), 20+int(30*rng.ExpFloat64()), hashes)
	}
	return b.Trace()
}

// Cut keeps the first n requests; 0 keeps all.
func (t *Trace) Cut(n int) {
	if n <= 0 || n >= len(t.Requests) {
		return
	}
	t.Requests = t.Requests[:n]
	t.Duration = t.Requests[n-1].At - t.Requests[0].At
}
