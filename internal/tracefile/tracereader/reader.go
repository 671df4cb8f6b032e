package tracereader

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"warmroute/internal/tracefile"
)

// line is any line of the file: the parts that are not of its kind are empty.
type line struct {
	Trace int    `json:"trace"` // version: the line begins a run of the router, or a file
	Run   string `json:"run"`   // of such a line: a random name of the run

	Fleet []tracefile.Replica `json:"fleet"` // the replicas have changed

	prefills
	decided
	end
	counted
}

type prefills struct {
	Prefills string  `json:"prefills"` // a model's prefills; "tokens" likewise
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
}

type decided struct {
	Number uint64   `json:"n"` // a decision
	At     float64  `json:"t"` // when the request came; of an end, when it ended
	Route  string   `json:"route"`
	Model  string   `json:"model"`
	Tokens int      `json:"tokens"`
	Block  int      `json:"block"` // tokens of a block
	Spans  []uint64 `json:"blocks"`
	Cached *int     `json:"cached"` // tokens predicted to be cached at the replica that was named first
	Held   int      `json:"held"`   // tokens of the longest match of any replica
	Reason string   `json:"reason"`
	To     string   `json:"to"`       // the replica that was named first
	Why    string   `json:"withheld"` // why Envoy did not get the hint
	session
}

type session struct {
	Session uint64  `json:"session"`
	Turn    int     `json:"turn"`
	Idle    float64 `json:"idle"` // s
	Live    bool    `json:"live"`
	Waited  float64 `json:"waited"` // s
	Lacked  int     `json:"lacked"` // tokens
	Behind  int     `json:"behind"` // requests
}

type end struct {
	End    uint64  `json:"end"`   // the number of a decision whose request has ended
	First  float64 `json:"first"` // when the first token came, by the replica's events; 0 = not known
	Status int     `json:"status"`
	Served string  `json:"served"` // the replica that served, if Envoy reported it
}

type counted struct {
	Counted uint64 `json:"counted"` // the number of a decision whose answer was counted
	Prompt  int    `json:"prompt"`  // tokens, as the replica counted; "cached" likewise, absent if it did not say
	Output  int    `json:"output"`  // tokens of the answer
	FirstUS int64  `json:"first_us"`
	TookUS  int64  `json:"took_us"`
}

// Request is a request of a trace file.
type Request struct {
	tracefile.Decided
	Run   int              // the number of the router's run, from 0: blocks of different runs have nothing in common
	Spans []tracefile.Span // the prompts' blocks
}

// Blocks returns the number of the request's blocks.
func (r *Request) Blocks() (n int) {
	for _, s := range r.Spans {
		n += int(s.Count)
	}
	return n
}

// Reader reads the lines of trace files, one file after the other, the oldest first.
type Reader struct {
	Request func(*Request) error                // called for each decision; may be nil
	Ended   func(int, *tracefile.Ended) error   // called for each end, with the run of its number; may be nil
	Counted func(int, *tracefile.Counted) error // called for each request that was counted, with its run; may be nil
	Fleet   func([]tracefile.Replica) error     // called for each change of the fleet; may be nil
	Prefill func(*tracefile.Prefilled) error    // called for each line about prefills; may be nil

	runs map[string]int
	run  int // -1 before the first
}

// LongestLine bounds a line of a trace file, in bytes.
const LongestLine = 16 << 20

const (
	// longestPrompt bounds the tokens of a request: beyond every context length, also for
	// a request of many prompts.
	longestPrompt = 1 << 24
	// longestFleet bounds the replicas of a line.
	longestFleet = 1 << 14
)

// Begins reports whether a file whose first line is b is a trace file.
func Begins(b []byte) bool {
	var l line
	return json.Unmarshal(b, &l) == nil && l.Trace != 0 && l.Run != ""
}

// Read reads a file. Errors name the line. A last line without an end is left out: the
// router may be writing it.
func (r *Reader) Read(in io.Reader) error {
	if r.runs == nil {
		r.runs, r.run = map[string]int{}, -1
	}
	lines := bufio.NewReaderSize(in, 1<<16)
	var text []byte
	for n := 1; ; n++ {
		var err error
		if text, err = readLine(lines, text[:0]); errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = r.line(text)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// readLine appends a line without its end to text.
func readLine(in *bufio.Reader, text []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		if text = append(text, part...); len(text) > LongestLine {
			return text, fmt.Errorf("the line is longer than %d bytes", LongestLine)
		}
		if err == nil {
			return text[:len(text)-1], nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
}

func (r *Reader) line(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		if i := bytes.LastIndex(text, []byte(`{"trace":`)); i > 0 { // behind what a crash has left of a line
			return r.line(text[i:])
		}
		return err
	}
	switch {
	case l.Trace != 0:
		return r.begin(&l)
	case r.run < 0:
		return errors.New("the file does not begin with a line like {\"trace\":1,\"run\":…}")
	case l.Fleet != nil:
		return r.fleet(l.Fleet)
	case l.Prefills != "":
		return r.prefill(&l)
	case l.End != 0:
		return r.ended(&l)
	case l.Counted != 0:
		return r.counted(&l)
	case l.Number != 0:
		return r.request(&l)
	}
	return nil // of a later version
}

func (r *Reader) begin(l *line) error {
	if l.Trace != tracefile.Version {
		return fmt.Errorf("the trace has version %d, this program reads version %d", l.Trace, tracefile.Version)
	}
	n, known := r.runs[l.Run]
	if !known {
		n = len(r.runs)
		r.runs[l.Run] = n
	}
	r.run = n
	return nil
}

func (r *Reader) fleet(fleet []tracefile.Replica) error {
	if len(fleet) > longestFleet {
		return fmt.Errorf("%d replicas are more than %d", len(fleet), longestFleet)
	}
	for _, v := range fleet {
		if v.BlockTokens < 0 || v.Blocks < 0 || v.Ranks < 0 || v.BlockTokens > longestPrompt || v.Blocks > math.MaxInt32 || v.Ranks > longestFleet {
			return fmt.Errorf("replica %q has %d blocks of %d tokens and %d ranks", v.Addr, v.Blocks, v.BlockTokens, v.Ranks)
		}
	}
	if r.Fleet == nil {
		return nil
	}
	return r.Fleet(fleet)
}

func (r *Reader) prefill(l *line) error {
	if !(l.Seconds >= 0 && l.Seconds < 1e9) || l.Tokens < 0 || l.Requests < 0 || l.Tokens > math.MaxInt32 || l.Requests > math.MaxInt32 {
		return fmt.Errorf("%d prefills of %d tokens in %g s", l.Requests, l.Tokens, l.Seconds)
	}
	if r.Prefill == nil {
		return nil
	}
	return r.Prefill(&tracefile.Prefilled{Model: l.Prefills, Seconds: l.Seconds, Tokens: l.Tokens, Requests: l.Requests})
}

func (r *Reader) ended(l *line) error {
	at, err := instant(l.At)
	if err != nil {
		return err
	}
	first, err := instant(l.First)
	if err != nil {
		return err
	}
	if l.First == 0 {
		first = time.Time{}
	}
	if r.Ended == nil {
		return nil
	}
	return r.Ended(r.run, &tracefile.Ended{Number: l.End, At: at, First: first, Status: l.Status, Served: l.Served})
}

func (r *Reader) counted(l *line) error {
	c := &tracefile.Counted{
		Number: l.Counted, Prompt: l.Prompt, Cached: l.cached(), NoCached: l.Cached == nil, Output: l.Output,
		First: time.Duration(l.FirstUS) * time.Microsecond, Took: time.Duration(l.TookUS) * time.Microsecond,
	}
	if c.Prompt < 0 || c.Prompt > longestPrompt || c.Cached < 0 || c.Cached > c.Prompt || c.Output < 0 || c.Output > longestPrompt {
		return fmt.Errorf("%d tokens, %d cached and %d of the answer do not agree", c.Prompt, c.Cached, c.Output)
	}
	if r.Counted == nil {
		return nil
	}
	return r.Counted(r.run, c)
}

// cached returns the cached tokens, 0 for none.
func (l *line) cached() int {
	if l.Cached == nil {
		return 0
	}
	return *l.Cached
}

func (r *Reader) request(l *line) error {
	at, err := instant(l.At)
	if err != nil {
		return err
	}
	cached := l.cached()
	if l.Tokens < 0 || l.Tokens > longestPrompt || cached < 0 || l.Held < 0 || cached > l.Tokens || l.Held > l.Tokens {
		return fmt.Errorf("%d tokens, %d cached and %d held do not agree", l.Tokens, cached, l.Held)
	}
	out := &Request{Run: r.run, Decided: tracefile.Decided{
		Number: l.Number, At: at, Route: l.Route, Model: l.Model, Reason: l.Reason, Replica: l.To,
		Tokens: l.Tokens, BlockTokens: l.Block, Cached: cached, Held: l.Held, Withheld: l.Why,
		Session: tracefile.Session{Number: l.Session, Turn: l.Turn, Idle: time.Duration(l.Idle * 1e9), Live: l.Live, Waited: time.Duration(l.Waited * 1e9), Lacked: l.Lacked, Behind: l.Behind},
	}}
	if !(l.Waited >= 0 && l.Waited < 1e6 && l.Idle >= 0 && l.Idle < 1e9) || min(l.Turn, l.Lacked, l.Behind) < 0 {
		return fmt.Errorf("turn %d, idle for %g s, after %g s, behind %d, with %d tokens lacking", l.Turn, l.Idle, l.Waited, l.Behind, l.Lacked)
	}
	if out.Spans, err = spans(l); err != nil {
		return err
	}
	if r.Request == nil {
		return nil
	}
	return r.Request(out)
}

// spans returns the ranges of a line, whose blocks the prompt's tokens must hold.
func spans(l *line) ([]tracefile.Span, error) {
	if len(l.Spans)%2 != 0 || len(l.Spans) > 0 && l.Block < 1 {
		return nil, fmt.Errorf("%d numbers of blocks of %d tokens are no ranges", len(l.Spans), l.Block)
	}
	var out []tracefile.Span
	left := uint64(0)
	if l.Block > 0 {
		left = uint64(l.Tokens/l.Block) + 1 // a text's last window may be partial
	}
	for i := 0; i < len(l.Spans); i += 2 {
		s := tracefile.Span{First: l.Spans[i], Count: l.Spans[i+1]}
		if s.Count == 0 || s.Count > left || s.First+s.Count < s.First {
			return nil, fmt.Errorf("the blocks are more than %d tokens hold", l.Tokens)
		}
		left -= s.Count
		out = append(out, s)
	}
	return out, nil
}

// instant returns the time of Unix seconds, to the microsecond.
func instant(seconds float64) (time.Time, error) {
	if !(seconds >= 0 && seconds < 1e10) {
		return time.Time{}, fmt.Errorf("%g is no time in Unix seconds", seconds)
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6))), nil
}
