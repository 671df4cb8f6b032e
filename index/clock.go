package index

import "time"

// wall is the clock of the operating system. Its times have a reading of the wall
// clock, which may be set, and one of the monotonic clock.
var wall = time.Now

var started = wall()

// Now returns the time for everything that keeps times as numbers. It begins with the
// wall clock and follows the monotonic one: setting the wall clock, by an hour either
// way, neither ends nor prolongs an entry. Times of two processes differ as their
// wall clocks differed at their starts.
func Now() time.Time { return started.Add(time.Since(started)) } // reads the monotonic clock alone

// Wall returns the time as the wall clock is set now: for the day that others read from theirs.
func Wall() time.Time { return wall() }
