package replay

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/cespare/xxhash/v2"

	"warmroute/lab/simulator"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// entry is a line of a log. It has a body or hash_ids.
type entry struct {
	Timestamp float64         `json:"timestamp"` // in Options.Unit, from any start
	Body      json.RawMessage `json:"body"`      // as the client sent it
	Path      string          `json:"path"`      // of the request; default /v1/chat/completions
	Hashes    []int64         `json:"hash_ids"`  // chained blocks of 512 tokens
	Input     int             `json:"input_length"`
	Output    int             `json:"output_length"`
}

const (
	bytesPerToken = 4 // of English text
	blockBytes    = simulator.Block * bytesPerToken
	// typicalOutput is the output length of a line that gives none: the mean of public
	// conversation traces.
	typicalOutput = 300
	maxLine       = 256 << 20
	maxOutput     = 1 << 20 // tokens of an answer
	maxTimestamp  = 1e16
)

// read makes a trace of a log, with times in seconds.
func read(in io.Reader, o Options, progress func(lines int)) (*simulator.Trace, error) {
	b := simulator.NewBuilder("log")
	var text []byte
	last, n := 0.0, 0
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<20), maxLine)
	for lines.Scan() {
		n++
		var e entry
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		if n > 1 && e.Timestamp < last {
			return nil, fmt.Errorf("line %d: timestamp %g is before the one above it", n, e.Timestamp)
		}
		last = e.Timestamp
		if e.Hashes == nil {
			var err error
			if e.Hashes, text, err = e.blocks(text[:0]); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			if e.Input == 0 {
				e.Input = len(text) / bytesPerToken
			}
		}
		if e.Output == 0 {
			e.Output = cmp.Or(o.Output, typicalOutput)
		}
		if len(e.Hashes) == 0 || e.Input < 1 || e.Output < 1 {
			return nil, fmt.Errorf("line %d: the prompt is empty, or a length is not positive", n)
		}
		if e.Output > maxOutput || math.Abs(e.Timestamp) > maxTimestamp {
			return nil, fmt.Errorf("line %d: output_length %d is more than %d, or timestamp %g is beyond %g", n, e.Output, maxOutput, e.Timestamp, maxTimestamp)
		}
		if e.Input > len(e.Hashes)*simulator.Block {
			return nil, fmt.Errorf("line %d: %d input tokens are more than %d blocks of %d hold", n, e.Input, len(e.Hashes), simulator.Block)
		}
		b.Add(e.Timestamp*o.unit(), e.Input, e.Output, e.Hashes)
		if n%1000 == 0 {
			progress(n)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if n == 0 {
		return nil, errors.New("the log is empty")
	}
	return b.Trace(), nil
}

// blocks returns the chained hashes of the body's text, which it appends to text; a last
// piece that fills no block counts as one.
func (e *entry) blocks(text []byte) ([]int64, []byte, error) {
	if len(e.Body) == 0 {
		return nil, text, errors.New("there is neither body nor hash_ids")
	}
	path := e.Path
	if path == "" {
		path = openai.Chat.String()
	}
	route, ok := openai.RouteOf("POST", path)
	if !ok {
		return nil, text, fmt.Errorf("path %q is not one that carries a prompt", path)
	}
	req, err := openai.Parse(route, e.Body)
	if err != nil {
		return nil, text, err
	}
	text = req.AppendText(text, math.MaxInt)
	var hashes []int64
	parent := prefixhash.TokenRoot(req.Model, prefixhash.LoRA{})
	if req.CacheSalt != nil { // each salt has a cache of its own
		parent = prefixhash.Link(parent, prefixhash.Content(xxhash.Sum64String(*req.CacheSalt)))
	}
	for rest := text; len(rest) > 0; {
		piece := rest[:min(blockBytes, len(rest))]
		parent = prefixhash.Link(parent, prefixhash.Content(xxhash.Sum64(piece)))
		hashes = append(hashes, int64(parent))
		rest = rest[len(piece):]
	}
	if e.Input > len(hashes)*simulator.Block { // more tokens than the bytes suggest: the block lengths are guesses
		e.Input = len(hashes) * simulator.Block
	}
	return hashes, text, nil
}
