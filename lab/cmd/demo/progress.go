package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress reports the demo's progress: in place on a terminal, else with a line after
// each tenth of the requests. It is safe for concurrent use.
type progress struct {
	w        io.Writer
	total    int
	terminal bool

	mu   sync.Mutex
	next time.Time // terminal: earliest time of the next report
	last int       // not a terminal: requests reported
}

func newProgress(w io.Writer, total int) *progress {
	p := &progress{w: w, total: total}
	if f, ok := w.(*os.File); ok {
		if st, err := f.Stat(); err == nil {
			p.terminal = st.Mode()&os.ModeCharDevice != 0
		}
	}
	return p
}

// print writes a separate line.
func (p *progress) print(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.w, format+"\n", args...)
	p.last = 0
}

// count reports the number of completed requests. On a terminal it redraws its line at
// most ten times a second.
func (p *progress) count(pass string, done, failed int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line := fmt.Sprintf("%s: %d of %d requests", pass, done, p.total)
	if failed > 0 {
		line += fmt.Sprintf(", %d failed", failed)
	}
	switch now := time.Now(); {
	case p.terminal && done == p.total:
		fmt.Fprintf(p.w, "\r%s\n", line)
	case p.terminal && now.After(p.next):
		fmt.Fprintf(p.w, "\r%s", line)
		p.next = now.Add(100 * time.Millisecond)
	case !p.terminal && done-p.last >= max(1, p.total/10):
		fmt.Fprintln(p.w, line)
		p.last = done
	}
}
