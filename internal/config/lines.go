package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// lines is the line of each field in the file, by the field's path.
type lines map[string]int

// note records the keys of a mapping. Keys of "<<:" come after them and do not
// replace them.
func (l lines) note(n *yaml.Node, path string) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		at := join(path, n.Content[i].Value)
		if _, known := l[at]; !known {
			l[at] = n.Content[i].Line
		}
	}
}

// locate makes [Problem]s of the errors of Validate methods, "field: sentence".
func (l lines) locate(file string, said []error) (out []*Problem) {
	for _, err := range said {
		p := &Problem{File: file, Err: err}
		if at := l.of(err.Error()); len(at) > 0 {
			p.Line, p.Also = at[0], at[1:]
		}
		out = append(out, p)
	}
	return out
}

var (
	quoted = regexp.MustCompile(`"[^"]*"`)
	word   = regexp.MustCompile(`[A-Za-z0-9_\-][A-Za-z0-9_.\-\[\]/]*`)
)

// of finds the first field that text names, or the section that would hold it,
// and then the other fields in the same section or a section around it: before
// the colon by any name, behind it by a name that is not an English word.
func (l lines) of(text string) (out []int) {
	head, sentence, _ := strings.Cut(quoted.ReplaceAllString(text, ""), ": ")
	names := word.FindAllString(head, -1)
	if len(names) == 0 {
		return nil
	}
	first := names[0]
	for at := first; at != ""; at = parent(at) {
		if line, ok := l[at]; ok {
			out = append(out, line)
			break
		}
	}
	for _, name := range word.FindAllString(sentence, -1) {
		if strings.ContainsAny(name, "_.") {
			names = append(names, strings.TrimRight(name, "."))
		}
	}
	for _, name := range names[1:] {
		for at := first; at != ""; {
			at = parent(at)
			if line, ok := l[join(at, name)]; ok {
				if !slices.Contains(out, line) {
					out = append(out, line)
				}
				break
			}
		}
	}
	return out
}

// parent returns the path of the section or list around a field; "" is the
// document.
func parent(path string) string { return path[:max(0, strings.LastIndexAny(path, ".["))] }
