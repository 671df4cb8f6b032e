package tracefile

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/internal/bound"
	"warmroute/prefixhash"
)

// Decided is a request when its decision is taken.
type Decided struct {
	Number      uint64           `json:"n"` // of the decision in this run, at least 1
	At          time.Time        `json:"-"`
	Route       string           `json:"route"`
	Model       string           `json:"model"`  // the served model's name, never the client's text
	Tokens      int              `json:"tokens"` // of the prompts
	BlockTokens int              `json:"-"`      // tokens of a block
	Keys        []prefixhash.Key `json:"-"`      // of the prompts' full blocks; Writer.Decided copies them
	Cached      int              `json:"cached"` // tokens predicted to be cached at Replica
	Held        int              `json:"held"`   // tokens of the longest match of any replica
	Reason      string           `json:"reason"`
	Replica     string           `json:"to,omitempty"`       // named first, "" = none
	Withheld    string           `json:"withheld,omitempty"` // why Envoy did not get the hint, "" = it did
	Session     Session          `json:"-"`
}

// Session says which request of which session it is, and how it was held. One that lacked room, or
// was behind others, and did not wait was not held because it may not be.
type Session struct {
	Number uint64        `json:"session,omitempty"` // 0 = it is not known, or the request went nowhere
	Turn   int           `json:"turn,omitempty"`    // of the session, from 1 on
	Idle   time.Duration `json:"-"`                 // from the session's latest answer to the request
	Live   bool          `json:"live,omitempty"`    // the session was live when the request came
	Waited time.Duration `json:"-"`
	Lacked int           `json:"lacked,omitempty"` // tokens of room beside the live sessions
	Behind int           `json:"behind,omitempty"` // requests that were held before it
}

// Ended is the end of a request.
type Ended struct {
	Number uint64    `json:"end"`              // of the decision
	At     time.Time `json:"-"`                // set by the Writer
	First  time.Time `json:"-"`                // of the first token, zero = not known
	Status int       `json:"status,omitempty"` // of the response, 0 = not seen
	Served string    `json:"served,omitempty"` // the replica that served, "" = not known
}

// Counted is what a replica and Envoy counted for a request.
type Counted struct {
	Number      uint64        `json:"counted"` // of the decision
	Prompt      int           `json:"prompt"`  // tokens
	Cached      int           `json:"-"`       // of these, tokens found in the cache
	NoCached    bool          `json:"-"`       // the replica did not say how many were cached
	Output      int           `json:"output"`  // tokens of the answer, 0 = not known
	First, Took time.Duration `json:"-"`       // from the request's beginning to the answer's first byte and last
}

const (
	queueLines = 4096
	// queueKeys bounds the keys of the lines in the queue together: 16 MiB.
	queueKeys = 2 << 20
	// pooledKeys is the most room for keys that a line keeps for later requests.
	pooledKeys = 8 << 10
	// flushBytes are written at once.
	flushBytes = 64 << 10
	flushEvery = time.Second
	// fleetEvery bounds the lines about a fleet that changes again and again.
	fleetEvery = 10 * time.Second
	// prefillsEvery is the time that lines about prefills stand for.
	prefillsEvery = 10 * time.Second
)

// entry is a line in the queue.
type entry struct {
	decided Decided          // if it has a number
	ended   Ended            // if it has a number
	counted Counted          // else
	keys    []prefixhash.Key // of decided
}

// Writer writes the trace file. A nil Writer ignores every call.
type Writer struct {
	o       Options
	m       metrics
	queue   chan *entry
	entries sync.Pool
	keys    bound.Pool // in the queue

	note atomic.Pointer[string] // why the file is not written; nil: it is

	// Run's goroutine owns the fields below.
	run     string
	numbers *numbers
	spans   []Span
	decided decidedLine // room for a line, as the next two
	ended   endedLine
	counted countedLine
	lines   *json.Encoder // to text
	disk
	told
}

// disk is the file, and what is to be written to it.
type disk struct {
	file   file   // nil: it is not open
	head   []byte // lines before text
	size   int64
	text   bytes.Buffer // lines to write
	queued int          // lines in text
}

// told is what the lines about replicas have said.
type told struct {
	fleet    []byte    // the last line about the fleet
	at       time.Time // when it was written
	prefills time.Time // when the last lines about prefills were written
}

// New opens the file, if it can. Run must be called for lines to be written.
func New(o Options, reg prometheus.Registerer) *Writer {
	w := &Writer{o: o.withDefaults(), m: newMetrics(reg), queue: make(chan *entry, queueLines), numbers: newNumbers(remembered)}
	w.lines = json.NewEncoder(&w.text)
	w.lines.SetEscapeHTML(false)
	w.entries.New = func() any { return new(entry) }
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails
	w.run = hex.EncodeToString(name)
	if err := w.open(); err != nil {
		w.refused(err)
	}
	return w
}

// Path returns the name of the file.
func (w *Writer) Path() string { return w.o.Path }

// Notes says why the file is not written, for people.
func (w *Writer) Notes() []string {
	if w == nil || w.note.Load() == nil {
		return nil
	}
	return []string{*w.note.Load()}
}

// refused keeps why the file is not written.
func (w *Writer) refused(err error) {
	note := fmt.Sprintf("filter.trace_file is not written, and its lines are lost: %v", err)
	if w.note.Swap(&note) == nil {
		w.o.Log.Warn("the trace file cannot be written: its lines are lost, requests are not affected", "file", w.o.Path, "error", err)
	}
}

// Decided queues the line of a decision. It reports false if the queue is full.
func (w *Writer) Decided(d *Decided) bool {
	if w == nil {
		return false
	}
	n := int64(len(d.Keys))
	if !w.keys.Take(n, queueKeys) {
		w.m.busy.Inc()
		return false
	}
	e := w.entries.Get().(*entry)
	e.decided, e.keys = *d, append(e.keys[:0], d.Keys...)
	e.decided.Keys = nil
	return w.enqueue(e)
}

// Ended queues the line of a request's end.
func (w *Writer) Ended(end Ended) {
	if w == nil || end.Number == 0 {
		return
	}
	e := w.entries.Get().(*entry)
	e.ended = end
	e.ended.At = w.o.Now()
	w.enqueue(e)
}

// Counted queues the line of a request's counts.
func (w *Writer) Counted(c Counted) {
	if w == nil {
		return
	}
	e := w.entries.Get().(*entry)
	e.counted = c
	w.enqueue(e)
}

func (w *Writer) enqueue(e *entry) bool {
	select {
	case w.queue <- e:
		return true
	default:
		w.m.busy.Inc()
		w.recycle(e)
		return false
	}
}

// recycle gives back the memory of a line.
func (w *Writer) recycle(e *entry) {
	w.keys.Give(int64(len(e.keys)))
	e.decided, e.ended, e.counted = Decided{}, Ended{}, Counted{}
	if e.keys = e.keys[:0]; cap(e.keys) > pooledKeys {
		e.keys = nil
	}
	w.entries.Put(e)
}

// Run writes the queued lines until ctx ends, then the lines that are left.
func (w *Writer) Run(ctx context.Context) error {
	if w == nil {
		return nil
	}
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case e := <-w.queue:
			w.take(e)
		case <-tick.C:
			w.describeFleet()
			w.countPrefills()
			w.flush()
		case <-ctx.Done():
			return w.close()
		}
	}
}

// close writes the lines that are left.
func (w *Writer) close() error {
	for len(w.queue) > 0 {
		w.take(<-w.queue)
	}
	w.flush()
	if w.file == nil {
		return nil
	}
	err := w.file.Close()
	w.file = nil
	return err
}

func (w *Writer) take(e *entry) {
	switch {
	case e.decided.Number != 0:
		if w.fleet == nil {
			w.describeFleet()
		}
		d, l := &e.decided, &w.decided
		d.Model = bounded(d.Model)
		*l = decidedLine{Decided: d, Session: &d.Session, At: seconds(d.At), Blocks: l.Blocks[:0],
			Idle: d.Session.Idle.Round(time.Millisecond).Seconds(), Waited: d.Session.Waited.Round(time.Millisecond).Seconds()}
		w.spans = w.numbers.appendSpans(w.spans[:0], e.keys)
		for _, s := range w.spans {
			l.Block, l.Blocks = d.BlockTokens, append(l.Blocks, s.First, s.Count)
		}
		w.add(l)
	case e.ended.Number != 0:
		w.ended = endedLine{Ended: &e.ended, At: seconds(e.ended.At)}
		if !e.ended.First.IsZero() {
			w.ended.First = seconds(e.ended.First)
		}
		w.add(&w.ended)
	default:
		c := &e.counted
		w.counted = countedLine{Counted: c, FirstUS: c.First.Microseconds(), TookUS: c.Took.Microseconds()}
		if !c.NoCached {
			w.counted.Cached = &c.Cached
		}
		w.add(&w.counted)
	}
	w.recycle(e)
	if w.text.Len() >= flushBytes {
		w.flush()
	}
}

// add adds a line, if its numbers are: a replica's counters may be infinite. It allocates nothing for
// a pointer.
func (w *Writer) add(line any) {
	if w.lines.Encode(line) == nil {
		w.queued++
	}
}

// describeFleet adds a line about the fleet if it has changed.
func (w *Writer) describeFleet() {
	now := w.o.Now()
	if w.o.Fleet == nil || w.fleet != nil && now.Sub(w.at) < fleetEvery {
		return
	}
	fleet := w.o.Fleet()
	if len(fleet) == 0 {
		return
	}
	for i := range fleet {
		fleet[i].Model = bounded(fleet[i].Model)
	}
	next := appendLine(nil, fleetLine{fleet})
	if bytes.Equal(next, w.fleet) {
		return
	}
	w.at, w.fleet = now, next
	w.text.Write(next)
	w.queued++
}

// countPrefills adds a line about the prefills of each model that has had any.
func (w *Writer) countPrefills() {
	now := w.o.Now()
	if w.o.Prefills == nil || now.Sub(w.prefills) < prefillsEvery {
		return
	}
	w.prefills = now
	for _, p := range w.o.Prefills() {
		p.Model, p.Seconds = bounded(p.Model), math.Round(p.Seconds*1000)/1000
		w.add(&p)
	}
}

// flush writes the buffered lines, and looks whether a refused file can be written again. Lines
// that the disk refuses are lost.
func (w *Writer) flush() {
	if w.queued == 0 && w.note.Load() == nil {
		return
	}
	if err := w.write(); err != nil {
		w.m.disk.Add(float64(w.queued))
		w.refused(err)
	} else {
		w.m.written.Add(float64(w.queued))
		if w.note.Swap(nil) != nil {
			w.o.Log.Info("the trace file is written again", "file", w.o.Path)
		}
	}
	w.text.Reset()
	if w.queued = 0; w.text.Cap() > 4*flushBytes {
		w.text = bytes.Buffer{}
	}
}

// write appends the buffer to the file. A file begins with the run's name and the fleet.
func (w *Writer) write() error {
	if err := w.open(); err != nil {
		return err
	}
	if w.size > 0 && w.size+int64(len(w.head)+w.text.Len()) > int64(w.o.Bytes) {
		if err := w.rotate(); err != nil {
			return err
		}
		if err := w.open(); err != nil {
			return err
		}
	}
	w.head = append(w.head, w.text.Bytes()...)
	_, err := w.file.Write(w.head)
	if err != nil { // no part of a line stays
		err = errors.Join(err, w.file.Truncate(w.size), w.file.Close())
		w.file = nil
		return err
	}
	w.size += int64(len(w.head))
	if w.head = w.head[:0]; cap(w.head) > 4*flushBytes {
		w.head = nil
	}
	return nil
}

// open opens the file if it is not open, or was moved away or removed.
func (w *Writer) open() (err error) {
	if w.file != nil && !w.moved() {
		return nil
	}
	if w.file != nil {
		_ = w.file.Close() // it is another's now
	}
	if w.file, w.size, err = w.o.create(w.o.Path); err != nil {
		w.file = nil
		return err
	}
	w.head = append(appendLine(w.head[:0], runLine{Version, w.run, seconds(w.o.Now())}), w.fleet...)
	return nil
}

// moved reports whether Path is not the open file any more.
func (w *Writer) moved() bool {
	open, err := w.file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(w.o.Path)
	return errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(open, there)
}

// rotate closes the file and moves it to Path.1, Path.1 to Path.2 and so on.
func (w *Writer) rotate() error {
	err := w.file.Close()
	w.file = nil
	if w.o.Files == 1 {
		return errors.Join(err, os.Remove(w.o.Path))
	}
	for i := w.o.Files - 1; i > 0; i-- {
		from := w.o.Path
		if i > 1 {
			from += "." + strconv.Itoa(i-1)
		}
		if moved := os.Rename(from, w.o.Path+"."+strconv.Itoa(i)); moved != nil && !errors.Is(moved, os.ErrNotExist) {
			err = errors.Join(err, moved)
		}
	}
	return err
}
