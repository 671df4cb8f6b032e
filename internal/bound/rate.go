package bound

import "time"

// Rate counts acts, and forgets one in each period. The zero value has none.
type Rate struct{ until time.Time } // when all are forgotten

// Add counts n acts, and returns how many are not forgotten: most, if there are more.
func (r *Rate) Add(n float64, now time.Time, period time.Duration, most float64) float64 {
	n = min(most, n+r.level(now, period))
	r.until = now.Add(time.Duration(n * float64(period)))
	return n
}

// Take counts an act if fewer than most are not forgotten, and reports whether it has.
func (r *Rate) Take(now time.Time, period time.Duration, most float64) bool {
	if r.level(now, period) > most-1 {
		return false
	}
	r.Add(1, now, period, most)
	return true
}

func (r *Rate) level(now time.Time, period time.Duration) float64 {
	if r.until.IsZero() { // Sub has no room for the time since then
		return 0
	}
	return max(0, float64(r.until.Sub(now))/float64(period))
}
