package testenv

import (
	"testing"
	"time"
)

// pollEvery is how often Until asks: a page of a real vLLM takes a busy machine longer than a condition in memory.
const pollEvery = 20 * time.Millisecond

// Until waits for a condition. If it does not come within a time, the test ends, with what more
// tells of the state then.
func Until(t testing.TB, within time.Duration, what string, ok func() bool, more ...func() any) {
	t.Helper()
	for end := time.Now().Add(within); !ok(); time.Sleep(pollEvery) {
		if time.Now().After(end) {
			for _, tell := range more {
				t.Log(tell())
			}
			t.Fatalf("not within %v: %s", within, what)
		}
	}
}
