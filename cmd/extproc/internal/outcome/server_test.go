package outcome

import "testing"

func TestJudge(t *testing.T) {
	for _, c := range []struct{ hint, served, want string }{
		{"10.0.0.1:8000", "10.0.0.1:8000", first},
		{"10.0.0.1:8000,10.0.0.2:8000", "10.0.0.2:8000", later},
		{"10.0.0.1:8000,[::1]:8000", "[::1]:8000", later},
		{"10.0.0.1:8000", "10.0.0.11:8000", elsewhere},
		{"10.0.0.1:8000", "", nobody},
	} {
		if got := classify(c.hint, c.served); got != c.want {
			t.Errorf("hint %s, served by %q: %s, want %s", c.hint, c.served, got, c.want)
		}
	}
}
