package telemetry

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) {
	if os.Getenv("WARMROUTE_TEST_CLOSED_PIPE") != "" {
		writeToClosedPipe()
		return
	}
	goleak.VerifyTestMain(m)
}

func TestLogOptions(t *testing.T) {
	for o, want := range map[LogOptions]string{
		{}:                               "",
		{Level: "Warn"}:                  "",
		{Level: "error", Format: "json"}: "",
		{Level: "loud"}:                  `level: "loud" is none of debug, info, warn, error`,
		{Format: "xml"}:                  `format: "xml" is neither text nor json`,
	} {
		err := o.Validate()
		if got := text(err); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestLoggerWritesLines(t *testing.T) {
	var buf bytes.Buffer
	w := NewLogWriter(&buf)
	var d LogDial
	must.Do(t, d.Set(LogOptions{Level: "info", Format: "json"}))
	log := slog.New(d.handler(w))
	log.Debug("not this")
	for i := range 100 {
		log.Info("hello", "i", i)
	}
	if !w.Close(time.Minute) {
		t.Fatal("not flushed")
	}
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	if len(lines) != 100 || w.Lost() != 0 {
		t.Fatalf("%d lines, %d lost", len(lines), w.Lost())
	}
	for i, line := range lines {
		var v struct{ I int }
		if err := json.Unmarshal([]byte(line), &v); err != nil || v.I != i {
			t.Fatalf("line %d is %s: %v", i, line, err)
		}
	}
	log.Info("after the end")
	if w.Lost() != 1 || !w.Close(0) {
		t.Errorf("a line after Close is lost and counted: %d", w.Lost())
	}
}

// /dev/full refuses every write, as a full disk does.
func TestFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("this system has no /dev/full")
	}
	defer full.Close()
	w := NewLogWriter(full)
	log := slog.New(slog.NewTextHandler(w, nil))
	for range 10 {
		log.Error("nobody reads this")
	}
	if !w.Close(time.Minute) || w.Lost() != 10 {
		t.Errorf("%d lost, want 10", w.Lost())
	}
}

// stuck is a terminal that has been stopped with ^S.
type stuck struct{ release chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.release; return len(p), nil }

func TestStuckLogDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{make(chan struct{})}
		w := NewLogWriter(s)
		began := time.Now()
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 2 * queuedLines {
					if n, err := w.Write([]byte("line\n")); n != 5 || err != nil {
						t.Errorf("%d, %v", n, err)
					}
				}
			})
		}
		wg.Wait()
		if time.Since(began) != 0 {
			t.Errorf("writers waited %v", time.Since(began))
		}
		if lost := w.Lost(); lost < 7*queuedLines-1 || lost > 7*queuedLines {
			t.Errorf("%d lost", lost)
		}
		if w.Close(2 * time.Second) {
			t.Error("flushed into a stuck writer")
		}
		if time.Since(began) != 2*time.Second {
			t.Errorf("Close took %v", time.Since(began))
		}
		close(s.release)
		if !w.Close(time.Minute) {
			t.Error("not flushed after release")
		}
	})
}

// TestWriteDoesNotAllocate continues when a line is being written: the buffer of
// the line before is free then, also on a busy machine.
func TestWriteDoesNotAllocate(t *testing.T) {
	written := make(arrivals)
	w := NewLogWriter(written)
	defer w.Close(time.Minute)
	line := []byte(strings.Repeat("x", 200) + "\n")
	write := func() {
		_, _ = w.Write(line)
		<-written
	}
	write()
	if n := testing.AllocsPerRun(1000, write); n > 0 {
		t.Errorf("%v allocations per line", n)
	}
}

// arrivals is a log that reports every line and waits until it is noticed.
type arrivals chan struct{}

func (a arrivals) Write(line []byte) (int, error) {
	a <- struct{}{}
	return len(line), nil
}

// A process whose standard error has no reader keeps running.
func TestSurviveClosedPipe(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "WARMROUTE_TEST_CLOSED_PIPE=1")
	r, wr, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd.Stderr = wr
	out, err := cmd.Output()
	wr.Close()
	if err != nil || string(out) != "3 lost" {
		t.Errorf("%q, %v", out, err)
	}
}

func writeToClosedPipe() {
	SurviveClosedPipe()
	w := NewLogWriter(os.Stderr)
	for range 3 {
		_, _ = w.Write([]byte("nobody listens\n"))
	}
	if !w.Close(10*time.Second) || w.Lost() != 3 {
		panic(errors.New("not three lines lost"))
	}
	_, _ = os.Stdout.WriteString("3 lost")
}

// TestLogDial: loggers made before follow level and format.
func TestLogDial(t *testing.T) {
	var out bytes.Buffer
	var d LogDial
	log := slog.New(d.handler(&out)).With("a", 1).WithGroup("g")
	log.Debug("not said")
	log.Info("one", "b", 2)
	must.Do(t, d.Set(LogOptions{Level: "debug", Format: "json"}))
	log.Debug("two", "b", 3)
	if err := d.Set(LogOptions{Level: "loud"}); err == nil || d.Level() != slog.LevelDebug {
		t.Errorf("%v, %v", err, d.Level())
	}
	text := out.String()
	if !strings.Contains(text, `msg=one a=1 g.b=2`) || !strings.Contains(text, `"msg":"two","a":1,"g":{"b":3}}`) || strings.Contains(text, "not said") {
		t.Error(text)
	}
}
