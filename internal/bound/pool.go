package bound

import "sync/atomic"

// Pool counts how much of something is in use at once. The zero value is a Pool of which nothing
// is in use.
type Pool struct{ used atomic.Int64 }

// Take takes n, and reports whether there were as many: at most so many may be in use.
func (p *Pool) Take(n, most int64) bool {
	for {
		used := p.used.Load()
		if used+n > most {
			return false
		}
		if p.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

// Give gives back n that were taken.
func (p *Pool) Give(n int64) { p.used.Add(-n) }

// Used returns how much is in use.
func (p *Pool) Used() int64 { return p.used.Load() }
