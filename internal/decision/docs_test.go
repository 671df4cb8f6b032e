package decision

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestEveryReasonIsDocumented: the table in docs/routing.md has a row for every
// reason, no others, and reasons with a hint first.
func TestEveryReasonIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	var rows []Reason
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| .+ \\| .+ \\|$").FindAllSubmatch(page, -1) {
		rows = append(rows, Reason(m[1]))
	}
	if len(rows) == 0 {
		t.Fatal("no table of reasons")
	}
	for _, r := range Reasons() {
		if !slices.Contains(rows, r) {
			t.Errorf("%s is not documented", r)
		}
	}
	for i, r := range rows {
		if !slices.Contains(Reasons(), r) || slices.Index(rows, r) != i {
			t.Errorf("%s is no reason, or documented twice", r)
		}
		if i > 0 && r.Hint() && !rows[i-1].Hint() {
			t.Errorf("%s names replicas but stands among those that do not", r)
		}
	}
}
