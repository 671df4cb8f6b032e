package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"warmroute/internal/config/configtest"
)

// writeReference writes the reference as Markdown: a list for each top-level
// section, and one for the fields outside of all sections.
func writeReference(w io.Writer, intro string, fields []configtest.Field) error {
	b := &strings.Builder{}
	b.WriteString(intro)
	header := func(title, text string) {
		fmt.Fprintf(b, "\n## %s\n\n", title)
		if text != "" {
			fmt.Fprintf(b, "%s\n\n", text)
		}
	}
	top := func(f configtest.Field) bool { return !strings.ContainsAny(f.Path, ".[") }
	header("The top level", "")
	for _, f := range fields {
		if top(f) && !f.Section() {
			row(b, f)
		}
	}
	same := "" // the section whose fields are not repeated
	for _, f := range fields {
		switch {
		case top(f) && f.Section():
			text := f.Meaning
			if f.Same != "" {
				text += " " + sameAs(f)
			}
			header("`"+f.Path+"`", text)
		case top(f), same != "" && below(f.Path, same):
			continue
		default:
			row(b, f)
		}
		same = ""
		if f.Same != "" {
			same = f.Path
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// below reports whether a path is of a field in a section.
func below(path, section string) bool {
	rest, is := strings.CutPrefix(path, section)
	return is && (strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, "["))
}

func sameAs(f configtest.Field) string { return fmt.Sprintf("Fields as in `%s`.", f.Same) }

func row(b *strings.Builder, f configtest.Field) {
	kind, meaning := f.Type, f.Meaning
	if kind == "string" {
		kind = "" // its default says so
	}
	if f.Unit != "" {
		kind += ", " + f.Unit
	}
	if !slices.Contains([]string{"", `""`, "none", "false", "0", "0s"}, f.Default) {
		kind = strings.TrimPrefix(kind+"; `"+f.Default+"`", "; ")
	}
	if kind != "" {
		kind = " (" + kind + ")"
	}
	if f.Same != "" {
		meaning += " " + sameAs(f)
	}
	fmt.Fprintf(b, "- `%s`%s: %s\n", f.Path, kind, strings.ReplaceAll(meaning, "\n", " "))
}
