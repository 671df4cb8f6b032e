package config

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Explain writes the reference's entry of a field and of its direct children. An
// unknown name is an error that contains the nearest known names, or else the sections.
func Explain(w io.Writer, fields []Field, name string) error {
	path := segments(name)
	i := slices.IndexFunc(fields, func(f Field) bool { return matches(segments(f.Path), path) })
	if i < 0 {
		return unknown(fields, name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n  %s\n", fields[i].Path, fields[i].facts(), fields[i].Meaning)
	for _, f := range fields[i+1:] {
		if rest, below := strings.CutPrefix(f.Path, fields[i].Path); below && child.MatchString(rest) {
			fmt.Fprintf(&b, "\n%s: %s\n  %s\n", f.Path, f.facts(), f.Meaning)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// child matches the part of a field's path below its parent's.
var child = regexp.MustCompile(`^(\[\]|\.\*)?\.[^.\[]+$`)

// facts returns in one line a field's type, its default, and when a change takes
// effect.
func (f Field) facts() string {
	facts := f.Type
	if f.Unit != "" {
		facts += " (" + f.Unit + ")"
	}
	if f.Section() {
		return facts
	}
	return facts + ", default " + f.Default + ", a change takes effect " + f.Applies.words()
}

var index = regexp.MustCompile(`\[[0-9]*\]`)

// segments returns a path's names. The indexes of lists do not matter.
func segments(path string) []string { return strings.Split(index.ReplaceAllString(path, ""), ".") }

// matches reports whether path is the path of a field; * is any key.
func matches(field, path []string) bool {
	return slices.EqualFunc(field, path, func(f, p string) bool { return f == p || f == "*" })
}

// unknown returns the error about a name that no field has: with the three nearest paths
// of fields if some are near, else with all paths of the first level.
func unknown(fields []Field, name string) error {
	type near struct {
		path string
		by   int
	}
	var all []near
	var first []string
	last := func(path string) string { return path[strings.LastIndex(path, ".")+1:] }
	for _, f := range fields {
		if !strings.Contains(f.Path, ".") {
			first = append(first, f.Path)
		}
		by := min(distance(name, f.Path), 1+distance(last(name), last(f.Path)))
		if len(name) > 2 && strings.Contains(f.Path, name) {
			by = min(by, farthest(name))
		}
		if by <= farthest(name) {
			all = append(all, near{f.Path, by})
		}
	}
	if len(all) == 0 {
		return fmt.Errorf("%q is not a field; the sections and fields of the first level are %s", name, strings.Join(first, ", "))
	}
	slices.SortStableFunc(all, func(a, b near) int { return a.by - b.by })
	var paths []string
	for _, n := range all[:min(3, len(all))] {
		paths = append(paths, n.path)
	}
	return fmt.Errorf("%q is not a field; did you mean %s?", name, either(paths))
}
