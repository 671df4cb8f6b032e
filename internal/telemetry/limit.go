package telemetry

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"warmroute/internal/bound"
)

const (
	// burstLines lines of one kind about one subject are written as they come,
	// then one every lineEvery: a fault that repeats stays visible, and a day of
	// it takes 2 MB.
	burstLines = 20
	lineEvery  = 10 * time.Second
	// kindBurst and kindEvery bound all subjects of a kind together. A fleet of a
	// thousand replicas can join at once.
	kindBurst = 1024
	kindEvery = time.Second
	// limitedSources bounds the sources in memory: beyond it all are forgotten.
	limitedSources = 8192
	// longestValue bounds the written bytes of an attribute: a panic's stack fits.
	longestValue = 8 << 10
)

// subjects are the attributes that name the subject of a line.
var subjects = map[string]bool{"replica": true, "envoy": true, "peer": true, "model": true, "source": true}

// LogLimiter bounds how many lines the outside can cause, by kind and subject. The
// kind is the place in the program that logs; the subject is the replica, Envoy, peer,
// model or source that the line names. The first line after lines that were left out
// has their number as its attribute left_out. The zero value is ready, and safe for
// concurrent use.
type LogLimiter struct {
	leftOut atomic.Uint64

	mu      sync.Mutex
	kinds   map[uintptr]bound.Rate
	sources map[lineSource]allowance
}

// lineSource is a kind and a subject, "" for a line without one.
type lineSource struct {
	kind    uintptr // program counter of the call
	subject string
}

// allowance is the lines of a source.
type allowance struct {
	lines   bound.Rate
	leftOut uint64
}

// LeftOut returns how many lines were left out.
func (l *LogLimiter) LeftOut() uint64 { return l.leftOut.Load() }

// Logger returns a logger with h's output that keeps to the limits.
func (l *LogLimiter) Logger(h slog.Handler) *slog.Logger {
	return slog.New(limited{Handler: h, limiter: l})
}

// admit reports whether a line is written, and how many were left out before it.
func (l *LogLimiter) admit(from lineSource, now time.Time) (leftOut uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds, l.sources = map[uintptr]bound.Rate{}, map[lineSource]allowance{}
	}
	own, known := l.sources[from]
	if !known && len(l.sources) == limitedSources {
		clear(l.sources)
	}
	kind := l.kinds[from.kind]
	if ok = own.lines.Take(now, lineEvery, burstLines) && kind.Take(now, kindEvery, kindBurst); ok {
		leftOut, own.leftOut = own.leftOut, 0
	} else {
		own.leftOut++
		l.leftOut.Add(1)
	}
	l.sources[from], l.kinds[from.kind] = own, kind
	return leftOut, ok
}

// limited is a handler whose lines a limiter admits.
type limited struct {
	slog.Handler
	limiter *LogLimiter
	subject string // of all its lines, "" if they have none in common
}

// Handle writes the line if it is admitted. The record's time has the monotonic
// clock, so a jump of the wall clock neither opens nor closes the log.
func (h limited) Handle(ctx context.Context, r slog.Record) error {
	from := lineSource{kind: r.PC, subject: h.subject}
	r.Attrs(func(a slog.Attr) bool {
		from.subject = subjectOf(a, from.subject)
		return from.subject == ""
	})
	leftOut, ok := h.limiter.admit(from, r.Time)
	if !ok {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// subjectOf returns the subject that a names, else before. Envoys differ by host: each
// of their connections has another port.
func subjectOf(a slog.Attr, before string) string {
	if before != "" || !subjects[a.Key] {
		return before
	}
	name := a.Value.String()
	if a.Key == "envoy" {
		if host, _, err := net.SplitHostPort(name); err == nil {
			return host
		}
	}
	return name
}

func (h limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h.subject = subjectOf(a, h.subject)
	}
	h.Handler = h.Handler.WithAttrs(attrs)
	return h
}

func (h limited) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// shorten cuts an attribute that is longer than longestValue: errors quote texts of
// others.
func shorten(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString, slog.KindAny:
	default:
		return a
	}
	text := ""
	switch v := a.Value.Any().(type) {
	case string:
		text = v
	case error:
		text = v.Error()
	}
	if len(text) <= longestValue {
		return a
	}
	end := longestValue
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return slog.String(a.Key, text[:end]+"…")
}
