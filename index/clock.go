package index

import "time"

// wall is the clock of the operating system: its times have a reading of the wall
// clock, which may be set, and one of the monotonic clock.
var wall = time.Now

var started = wall()

// Now returns the clock of everything that keeps times as numbers: it begins with the
// wall clock and follows the monotonic one, so that a wall clock that is set, by an
// hour either way, neither ends nor prolongs what is kept. Times of two processes
// differ by what their wall clocks differed at their starts.
func Now() time.Time { return started.Add(wall().Sub(started)) }
