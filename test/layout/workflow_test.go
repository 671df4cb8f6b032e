package layout

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"warmroute/render/testkit/must"
)

// TestWorkflowHasTheStepsOfCI: GitHub's jobs run what .ci/run does, besides the coverage,
// which has a job of its own.
func TestWorkflowHasTheStepsOfCI(t *testing.T) {
	commands := func(file, pattern string) (all []string) {
		t.Helper()
		raw := must.Get(os.ReadFile(file))(t)
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(raw, -1) {
			command := string(m[1])
			if command == "vulnerabilities" { // a function around it
				command = "make vuln"
			}
			all = append(all, command)
		}
		slices.Sort(all)
		return all
	}
	ours := commands("../../.ci/run", `(?m)^\s*step "[^"]*" (make [a-z-]+|vulnerabilities)`)
	theirs := commands("../../.github/workflows/ci.yml", `(?m)^          - (make [a-z-]+)$`)
	if len(ours) < 10 || !slices.Equal(ours, theirs) {
		t.Errorf(".ci/run has %q, the workflow %q", ours, theirs)
	}
}
