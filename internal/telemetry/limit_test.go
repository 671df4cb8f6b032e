package telemetry

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"warmroute/render/testkit/must"
)

// flood logs n lines of one kind about each replica.
func flood(log *slog.Logger, n int, replicas ...string) {
	for range n {
		for _, r := range replicas {
			log.Warn("batch refused", "rank", 0, "replica", r)
		}
	}
}

func count(b *bytes.Buffer) int { return strings.Count(b.String(), "\n") }

// TestALineThatRepeatsIsLeftOutAndCounted: a replica that causes a line again and
// again takes none of another replica's, nor another kind's.
func TestALineThatRepeatsIsLeftOutAndCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var l LogLimiter
		log := l.Logger(slog.NewTextHandler(&out, nil))
		flood(log, 100_000, "10.0.0.1:8000")
		if count(&out) != burstLines || l.LeftOut() != 100_000-burstLines {
			t.Fatalf("%d lines, %d left out", count(&out), l.LeftOut())
		}
		out.Reset()
		flood(log, 1, "10.0.0.2:8000")
		log.With("replica", "10.0.0.1:8000").Warn("another kind")
		if count(&out) != 2 || strings.Contains(out.String(), "left_out") {
			t.Errorf("%s", out.String())
		}
		time.Sleep(lineEvery)
		out.Reset()
		flood(log, 2, "10.0.0.1:8000")
		if count(&out) != 1 || !strings.Contains(out.String(), "left_out=99980") {
			t.Errorf("%s", out.String())
		}
		out.Reset()
		for range 24 * 60 * 60 { // a day
			flood(log, 10, "10.0.0.1:8000")
			time.Sleep(time.Second)
		}
		if n := count(&out); n > 24*60*60/10+1 || n < 24*60*60/10-1 {
			t.Errorf("%d lines in a day", n)
		}
	})
}

// TestNamesThatAreMadeUpOpenNoLog: a kind's lines and the memory for its subjects
// are bounded, however many subjects there are.
func TestNamesThatAreMadeUpOpenNoLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var l LogLimiter
		log := l.Logger(slog.NewTextHandler(&out, nil))
		for i := range 100_000 {
			flood(log, 1, fmt.Sprint("10.0.0.1:", i))
		}
		if count(&out) != kindBurst {
			t.Errorf("%d lines", count(&out))
		}
		if n := len(l.sources); n > limitedSources {
			t.Errorf("%d sources are in memory", n)
		}
		out.Reset()
		for i := range 1000 { // one host, a port for each connection
			log.Info("connected", "envoy", fmt.Sprint("node at 10.0.0.1:", i))
		}
		if count(&out) != burstLines {
			t.Errorf("%d lines about one Envoy", count(&out))
		}
	})
}

func TestALongValueIsCut(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		var d LogDial
		must.Do(t, d.Set(LogOptions{Format: format}))
		log := slog.New(d.handler(&out))
		long := strings.Repeat("é", 1<<20)
		log.Info("one", "error", errors.New(long), "envoy_says", long, "n", 1)
		if out.Len() > 3*longestValue || !strings.Contains(out.String(), "…") || strings.Contains(out.String(), `\x`) {
			t.Errorf("%s: %d bytes: %.40q", format, out.Len(), out.String())
		}
	}
}
