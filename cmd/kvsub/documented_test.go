package main

import (
	"flag"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"warmroute/render/testkit/must"
)

// TestFlagsAreDocumented: docs/protocol.md has a row for every flag, with its default.
func TestFlagsAreDocumented(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/protocol.md"))(t)
	defaults := map[string]string{} // by flag
	for _, row := range regexp.MustCompile("(?m)^\\| (`-[^|]*) \\| ([^|]*) \\|").FindAllStringSubmatch(string(text), -1) {
		names, values := regexp.MustCompile("`-([a-z-]+)`").FindAllStringSubmatch(row[1], -1), regexp.MustCompile("[,;] ").Split(row[2], -1)
		for i, name := range names {
			defaults[name[1]] = strings.Trim(values[min(i, len(values)-1)], "`")
		}
	}
	new(options).flags().VisitAll(func(f *flag.Flag) {
		want := []string{f.DefValue}
		if slices.Contains([]string{"", "0", "false"}, f.DefValue) {
			want = append(want, "required", "none", "off", "all", "shared")
		}
		if got := defaults[f.Name]; !slices.Contains(want, got) {
			t.Errorf("-%s: docs/protocol.md says %q, the default is %q", f.Name, got, f.DefValue)
		}
		delete(defaults, f.Name)
	})
	for name := range defaults {
		t.Errorf("docs/protocol.md has a flag -%s, which does not exist", name)
	}
}
