package tracefile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 3, 5, 12, 0, 0, 123456000, time.UTC)

func newWriter(t testing.TB, o Options) *Writer {
	t.Helper()
	if o.Path == "" {
		o.Path = filepath.Join(t.TempDir(), "trace.jsonl")
	}
	o.Now = func() time.Time { return noon }
	return New(o, prometheus.NewRegistry())
}

// finish ends w's Run and waits for it: the queued lines are in the file then.
func finish(t testing.TB, w *Writer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must.Do(t, w.Run(ctx))
}

func chain(from, n int) (keys []prefixhash.Key) {
	for i := range n {
		keys = append(keys, prefixhash.Key(from+i)*0x9E3779B97F4A7C15)
	}
	return keys
}

// Request is what a Reader gives of a request.
type Request struct {
	Decided
	Run   int
	Spans []Span
}

// Trace is the content of trace files.
type Trace struct {
	Requests []Request
	Ends     []Ended
	Counts   []Counted
	Fleets   [][]Replica
	Prefills []Prefilled
}

// Read reads trace files, one after the other. It is set by the tests of package tracefile_test,
// which may import the reader.
var Read func(files ...io.Reader) (Trace, error)

func readTrace(t testing.TB, files ...string) Trace {
	t.Helper()
	var all []io.Reader
	for _, name := range files {
		f := must.Get(os.Open(name))(t)
		defer f.Close()
		all = append(all, f)
	}
	return must.Get(Read(all...))(t)
}

func TestWhatIsWrittenIsRead(t *testing.T) {
	fleet := []Replica{{"10.0.0.1:8000", "m", 16, 640, 1}, {"[::1]:80", "", 0, 0, 0}}
	w := newWriter(t, Options{Fleet: func() []Replica { return fleet }})
	first := &Decided{Number: 7, At: noon, Route: "/v1/completions", Model: `m"\` + "\n\xff", Reason: "cold", Replica: "10.0.0.1:8000", Tokens: 100, BlockTokens: 16, Keys: chain(1, 6), Session: Session{Waited: 1500 * time.Millisecond, Behind: 1}}
	second := &Decided{Number: 9, At: noon.Add(time.Second), Route: "r", Model: "m", Reason: "warm", Tokens: 200, BlockTokens: 16,
		Keys: append(chain(1, 4), chain(50, 3)...), Cached: 64, Held: 96, Withheld: "shadow", Session: Session{Number: 3, Turn: 2, Idle: 90 * time.Second, Live: true, Lacked: 40}}
	const a, b = 7, 9
	counted := []Counted{{Number: a, Prompt: 101, Cached: 16, Output: 5, First: 50 * time.Millisecond, Took: time.Second}, {Number: b, Prompt: 200, NoCached: true}}
	if !w.Decided(first) || !w.Decided(second) {
		t.Fatal("a line was lost")
	}
	w.Counted(counted[0])
	w.Counted(counted[1])
	w.Ended(Ended{Number: a, First: noon.Add(50 * time.Millisecond), Status: 200, Served: "10.0.0.2:8000"})
	w.Ended(Ended{Number: b})
	finish(t, w)
	got := readTrace(t, w.o.Path)
	if !reflect.DeepEqual(got.Fleets, [][]Replica{fleet}) {
		t.Errorf("fleet %v", got.Fleets)
	}
	first.Model, first.Keys, second.Keys = "m\"\\\n\uFFFD", nil, nil
	want := []Request{{*first, 0, []Span{{0, 6}}}, {*second, 0, []Span{{0, 4}, {6, 3}}}}
	if len(got.Requests) != 2 || len(got.Ends) != 2 {
		t.Fatalf("%+v", got)
	}
	for i := range want {
		got.Requests[i].At = got.Requests[i].At.UTC()
		if !reflect.DeepEqual(got.Requests[i], want[i]) {
			t.Errorf("read %+v\nwant %+v", got.Requests[i], want[i])
		}
	}
	if !reflect.DeepEqual(got.Counts, counted) {
		t.Errorf("counted %+v", got.Counts)
	}
	if e := got.Ends[0]; e.Number != a || !e.At.Equal(noon) || !e.First.Equal(noon.Add(50*time.Millisecond)) || e.Status != 200 || e.Served != "10.0.0.2:8000" {
		t.Errorf("end %+v", e)
	}
	if e := got.Ends[1]; e.Number != b || !e.First.IsZero() || e.Status != 0 || e.Served != "" {
		t.Errorf("end %+v", e)
	}
}

// TestKeysAreNotInTheFile: a reader of the file cannot test a guess by hashing it.
func TestKeysAreNotInTheFile(t *testing.T) {
	w := newWriter(t, Options{})
	keys := chain(7, 3)
	w.Decided(&Decided{Number: 1, At: noon, Model: "m", Tokens: 50, BlockTokens: 16, Keys: keys})
	finish(t, w)
	text := must.Get(os.ReadFile(w.o.Path))(t)
	for _, k := range keys {
		if bytes.Contains(text, fmt.Append(nil, uint64(k))) || bytes.Contains(text, fmt.Appendf(nil, "%x", uint64(k))) {
			t.Errorf("key %d is in %s", k, text)
		}
	}
	if info, err := os.Stat(w.o.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestForgottenBlocksGetNewNumbers: blocks in use are remembered, others for a generation.
func TestForgottenBlocksGetNewNumbers(t *testing.T) {
	n := newNumbers(100)
	hot, cold := chain(0, 10), chain(1000, 10)
	n.appendSpans(nil, cold)
	for i := range 60 {
		if got := n.appendSpans(nil, hot); len(got) != 1 || got[0] != (Span{10, 10}) {
			t.Fatalf("round %d: %v", i, got)
		}
		n.appendSpans(nil, chain(2000+10*i, 10))
	}
	if len(n.young) > 100 || len(n.former) > 100 {
		t.Errorf("%d and %d blocks are remembered", len(n.young), len(n.former))
	}
	if got := n.appendSpans(nil, cold); len(got) != 1 || got[0].First < 100 {
		t.Errorf("forgotten blocks have numbers %v", got)
	}
}

func TestRotation(t *testing.T) {
	const files = 3
	dir := t.TempDir()
	path := filepath.Join(dir, "trace.jsonl")
	fleet := []Replica{{"a", "m", 16, 640, 1}}
	w := newWriter(t, Options{Path: path, Bytes: 20_000, Files: files, Fleet: func() []Replica { return fleet }})
	const n = 1000
	for i := range n {
		w.Decided(&Decided{Number: uint64(i) + 1, At: noon, Model: "m", Reason: "cold", Tokens: 100, BlockTokens: 16, Keys: chain(0, 5)})
		if i%50 == 0 { // as Run does while the queue is not empty
			for range 50 {
				select {
				case e := <-w.queue:
					w.take(e)
				default:
				}
			}
			w.flush()
		}
	}
	finish(t, w)
	names, err := filepath.Glob(path + "*")
	if err != nil || len(names) != files {
		t.Fatalf("files %v, %v", names, err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil || info.Size() > 20_000 {
			t.Errorf("%s: %d bytes, %v", name, info.Size(), err)
		}
		if got := readTrace(t, name); !reflect.DeepEqual(got.Fleets, [][]Replica{fleet}) {
			t.Errorf("%s: fleet %v", name, got.Fleets)
		}
	}
	got := readTrace(t, path+".2", path+".1", path).Requests
	for i, q := range got {
		if q.Number != got[0].Number+uint64(i) || q.Run != 0 || !reflect.DeepEqual(q.Spans, []Span{{0, 5}}) {
			t.Fatalf("request %d: %+v", i, q)
		}
	}
	if last := got[len(got)-1].Number; last != n || got[0].Number == 1 {
		t.Errorf("requests %d to %d", got[0].Number, last)
	}
}

// TestARestartContinuesTheFile: blocks of two runs have nothing in common.
func TestARestartContinuesTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	for range 2 {
		w := newWriter(t, Options{Path: path})
		w.Decided(&Decided{Number: 1, At: noon, Model: "m", Tokens: 100, BlockTokens: 16, Keys: chain(0, 5)})
		finish(t, w)
	}
	got := readTrace(t, path).Requests
	if len(got) != 2 || got[0].Run != 0 || got[1].Run != 1 {
		t.Errorf("requests %+v", got)
	}
}

// TestAFileHasOneWriter: the lines of two would be taken for those of one.
func TestAFileHasOneWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	first, second := newWriter(t, Options{Path: path}), newWriter(t, Options{Path: path})
	if notes := second.Notes(); len(first.Notes()) != 0 || len(notes) != 1 || !strings.Contains(notes[0], "is another router's") {
		t.Errorf("notes %q and %q", first.Notes(), notes)
	}
	finish(t, first)
	second.Decided(&Decided{Number: 1, At: noon, Model: "m"})
	finish(t, second)
	if got := readTrace(t, path).Requests; len(second.Notes()) != 0 || len(got) != 1 {
		t.Errorf("%d requests are read, want 1; notes %q", len(got), second.Notes())
	}
}

// TestAFullQueueLosesLines: no call waits for the writer, by lines or by keys.
func TestAFullQueueLosesLines(t *testing.T) {
	w := newWriter(t, Options{})
	for range queueLines + 10 {
		w.Decided(&Decided{Number: 1, Model: "m"})
	}
	if got := testutil.ToFloat64(w.m.busy); got != 10 {
		t.Errorf("%g lines lost, want 10", got)
	}
	w.Ended(Ended{Number: 1})
	if got := testutil.ToFloat64(w.m.busy); got != 11 {
		t.Errorf("%g lines lost, want 11", got)
	}
	finish(t, w)
	if got := testutil.ToFloat64(w.m.written); got != queueLines {
		t.Errorf("%g lines written", got)
	}

	w = newWriter(t, Options{})
	long := &Decided{Number: 1, Model: "m", Tokens: queueKeys * 16, BlockTokens: 16, Keys: chain(0, queueKeys/4)}
	for i := range 6 {
		if taken := w.Decided(long); taken != (i < 4) {
			t.Errorf("prompt %d: %v", i, taken)
		}
	}
	finish(t, w)
	if w.keys.Used() != 0 {
		t.Errorf("%d keys count as queued", w.keys.Used())
	}
	if !w.Decided(long) {
		t.Error("there is no room again")
	}
}

// fullDisk is a file on a disk with room for some bytes.
type fullDisk struct {
	room *int
	text *bytes.Buffer
}

func (d fullDisk) Write(b []byte) (int, error) {
	n := min(len(b), *d.room)
	d.text.Write(b[:n])
	if *d.room -= n; n < len(b) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (d fullDisk) Truncate(size int64) error {
	*d.room += d.text.Len() - int(size)
	d.text.Truncate(int(size))
	return nil
}

func (d fullDisk) Close() error { return nil }

func (d fullDisk) Stat() (fs.FileInfo, error) { return nil, fs.ErrInvalid }

// TestAFullDiskLosesLines: the lines that fit stay readable, one line of the log tells it, and
// when there is room again the file goes on.
func TestAFullDiskLosesLines(t *testing.T) {
	var log, text bytes.Buffer
	room := 600
	fleet := []Replica{{"a", "m", 16, 640, 1}}
	w := newWriter(t, Options{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Fleet: func() []Replica { return fleet },
		create: func(string) (file, int64, error) { return fullDisk{&room, &text}, int64(text.Len()), nil },
	})
	write := func(n int) {
		for range n {
			w.Decided(&Decided{Number: 1, At: noon, Model: "m", Tokens: 100, BlockTokens: 16, Keys: chain(0, 5)})
			w.take(<-w.queue)
		}
		w.describeFleet()
		w.flush()
	}
	write(2)
	for range 5 {
		write(10)
	}
	if lost := testutil.ToFloat64(w.m.disk); lost < 50 || strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), "no space left") {
		t.Errorf("%g lines lost, log:\n%s", lost, log.String())
	}
	room = 1 << 20
	write(3)
	finish(t, w)
	if !strings.Contains(log.String(), "written again") {
		t.Errorf("log:\n%s", log.String())
	}
	if got, err := Read(&text); err != nil || len(got.Requests) != 5 || len(got.Fleets) != 2 {
		t.Errorf("%d requests and %d fleets are read, %v", len(got.Requests), len(got.Fleets), err)
	}
}

// TestAFileThatIsMovedAway: after another program has moved or removed the file, the next lines are
// in a new one of its name, which begins with the fleet, too.
func TestAFileThatIsMovedAway(t *testing.T) {
	for name, move := range map[string]func(path string) error{
		"removed": os.Remove,
		"moved":   func(path string) error { return os.Rename(path, path+".old") },
		"replaced": func(path string) error {
			return errors.Join(os.Rename(path, path+".old"), os.WriteFile(path, nil, 0o600))
		},
	} {
		path := filepath.Join(t.TempDir(), "trace.jsonl")
		w := newWriter(t, Options{Path: path, Fleet: func() []Replica { return []Replica{{"a", "m", 16, 640, 1}} }})
		for n := range 3 {
			w.Decided(&Decided{Number: uint64(n) + 1, At: noon, Model: "m"})
			w.take(<-w.queue)
			if w.flush(); n == 0 {
				must.Do(t, move(path))
			}
		}
		finish(t, w)
		if got := readTrace(t, path); len(got.Requests) != 2 || len(got.Fleets) != 1 {
			t.Errorf("%s: %d requests and %d fleets are in the new file, want 2 and 1", name, len(got.Requests), len(got.Fleets))
		}
	}
}

// TestAFleetThatChangesIsToldSometimes: replicas that come and go each second do not push
// the requests out of the file.
func TestAFleetThatChangesIsToldSometimes(t *testing.T) {
	n := 0
	w := newWriter(t, Options{Fleet: func() []Replica { n++; return []Replica{{"a", "m", 16, n, 1}} }})
	now := noon
	w.o.Now = func() time.Time { return now }
	for range 100 {
		w.describeFleet()
		now = now.Add(time.Second)
	}
	finish(t, w)
	if got := readTrace(t, w.o.Path).Fleets; len(got) != 10 {
		t.Errorf("%d lines in 100 s", len(got))
	}
}

// TestPrefillsAreToldEvery10Seconds, as they are counted.
func TestPrefillsAreToldEvery10Seconds(t *testing.T) {
	p := Prefilled{"m", 12.345, 67_890, 12}
	w := newWriter(t, Options{Prefills: func() []Prefilled { return []Prefilled{{"infinite", math.Inf(1), 1, 1}, p} }})
	now := noon
	w.o.Now = func() time.Time { return now }
	for range 30 {
		w.countPrefills()
		now = now.Add(time.Second)
	}
	finish(t, w)
	if got := readTrace(t, w.o.Path).Prefills; !slices.Equal(got, []Prefilled{p, p, p}) {
		t.Errorf("%+v", got)
	}
}

// TestAFileThatCannotBeMadeIsANote, as long as it cannot: its folder may come later.
func TestAFileThatCannotBeMadeIsANote(t *testing.T) {
	dir := t.TempDir()
	absent := filepath.Join(dir, "absent")
	for _, path := range []string{dir, filepath.Join(absent, "trace.jsonl"), "/dev/null"} {
		w := newWriter(t, Options{Path: path})
		for range 2 {
			if notes := w.Notes(); len(notes) != 1 || !strings.Contains(notes[0], path) {
				t.Errorf("%s: notes %q", path, notes)
			}
			w.Decided(&Decided{Number: 1, At: noon, Model: "m"})
			w.take(<-w.queue)
			w.flush()
		}
		if lost := testutil.ToFloat64(w.m.disk); lost != 2 {
			t.Errorf("%s: %g lines are lost, want 2", path, lost)
		}
		if filepath.Dir(path) != absent {
			continue
		}
		must.Do(t, os.Mkdir(absent, 0o700))
		if w.flush(); len(w.Notes()) > 0 {
			t.Errorf("the folder is there: notes %q", w.Notes())
		}
		w.Decided(&Decided{Number: 2, At: noon, Model: "m"})
		finish(t, w)
		if got := readTrace(t, path).Requests; len(got) != 1 {
			t.Errorf("%d requests are read, want 1", len(got))
		}
	}
}

// TestRunEnds: Run writes while requests come from many goroutines, and returns when its
// context ends.
func TestRunEnds(t *testing.T) {
	w := newWriter(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 200 {
				w.Decided(&Decided{Number: 1, At: noon, Model: "m", Tokens: 100, BlockTokens: 16, Keys: chain(0, 5)})
				w.Ended(Ended{Number: 1})
			}
		})
	}
	callers.Wait()
	cancel()
	must.Do(t, <-ended)
	if got := readTrace(t, w.o.Path); len(got.Requests) != 800 || len(got.Ends) != 800 {
		t.Errorf("%d requests, %d ends", len(got.Requests), len(got.Ends))
	}
	var none *Writer
	none.Decided(nil)
	none.Ended(Ended{Number: 1})
	none.Counted(Counted{Number: 1})
	if err := none.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestRequestsAllocateNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	w := newWriter(t, Options{})
	d := &Decided{Number: 1, At: noon, Model: "m", Tokens: 100_000, BlockTokens: 16, Keys: chain(0, 6250)}
	one := func() {
		w.Decided(d)
		w.Ended(Ended{Number: 1})
		w.Counted(Counted{Number: 1})
		for range 3 {
			w.take(<-w.queue)
		}
	}
	for range 10 {
		one()
	}
	if n := testing.AllocsPerRun(200, one); n > 0 {
		t.Errorf("%v allocations a request", n)
	}
}
