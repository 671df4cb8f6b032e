// Package must ends a test where a step that the test needs, and does not test, fails.
package must

import "testing"

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns what gives a value, or ends the test with the error that came in its place:
// must.Get(os.ReadFile(name))(t).
func Get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Do(t, err)
		return v
	}
}
