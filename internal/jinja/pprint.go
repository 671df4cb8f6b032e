package jinja

import (
	"slices"
	"strings"

	"warmroute/internal/pyvalue"
)

// pprintWidth is the line width of Python's pprint.
const pprintWidth = 80

func filterPPrint(st *state, v any, a *args) any {
	a.positional("pprint", 0, 0)
	st.repr(v) // refuses what is too deep or has no text
	p := &prettyPrinter{st: st}
	p.format(v, 0, 0, 0)
	return p.b.String()
}

// prettyPrinter is Python's pprint.PrettyPrinter with its default options.
type prettyPrinter struct {
	st *state
	b  strings.Builder
}

// plain is v's repr with the keys of dicts sorted.
func (p *prettyPrinter) plain(v any) string {
	p.st.step()
	list := func(items []any) string {
		parts := make([]string, len(items))
		for i, it := range items {
			parts[i] = p.plain(it)
		}
		return strings.Join(parts, ", ")
	}
	switch v := v.(type) {
	case *dict:
		var parts []string
		for _, e := range p.sorted(v) {
			parts = append(parts, p.plain(e.Items[0])+": "+p.plain(e.Items[1]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case *pyvalue.List:
		return "[" + list(v.Items) + "]"
	case *tuple:
		if len(v.Items) == 1 {
			return "(" + list(v.Items) + ",)"
		}
		return "(" + list(v.Items) + ")"
	}
	s := p.st.repr(v)
	p.st.charge(len(s))
	return s
}

func (p *prettyPrinter) sorted(d *dict) []*tuple {
	var entries []*tuple
	for k, v := range d.All() {
		entries = append(entries, pyvalue.NewTuple(k, v))
	}
	slices.SortStableFunc(entries, func(a, b *tuple) int {
		p.st.step()
		lt, err := pyvalue.Less(a.Items[0], b.Items[0])
		gt, _ := pyvalue.Less(b.Items[0], a.Items[0])
		switch {
		case err != nil: // pprint's fall-back for keys without an order
			return strings.Compare(pyvalue.TypeName(a.Items[0]), pyvalue.TypeName(b.Items[0]))
		case lt:
			return -1
		case gt:
			return 1
		}
		return 0
	})
	return entries
}

func (p *prettyPrinter) format(v any, indent, allowance, level int) {
	rep := p.plain(v)
	if pyvalue.Len(rep) <= pprintWidth-indent-allowance {
		p.b.WriteString(rep)
		return
	}
	p.st.charge(p.b.Len() / 8)
	switch v := v.(type) {
	case *dict:
		p.dict(v, indent, allowance+1, level+1)
	case *list:
		p.b.WriteByte('[')
		p.items(v.Items, indent, allowance+1, level+1)
		p.b.WriteByte(']')
	case *tuple:
		if v.Names != nil {
			p.b.WriteString(rep)
			return
		}
		end := ")"
		if len(v.Items) == 1 {
			end = ",)"
		}
		p.b.WriteByte('(')
		p.items(v.Items, indent, allowance+len(end), level+1)
		p.b.WriteString(end)
	case string:
		p.text(v, indent, allowance, level+1)
	default:
		p.b.WriteString(rep)
	}
}

func (p *prettyPrinter) dict(d *dict, indent, allowance, level int) {
	p.b.WriteByte('{')
	indent++
	entries := p.sorted(d)
	for i, e := range entries {
		key := p.plain(e.Items[0])
		p.b.WriteString(key + ": ")
		last := i == len(entries)-1
		after := 1
		if last {
			after = allowance
		}
		p.format(e.Items[1], indent+pyvalue.Len(key)+2, after, level)
		if !last {
			p.b.WriteString(",\n" + strings.Repeat(" ", indent))
		}
	}
	p.b.WriteByte('}')
}

func (p *prettyPrinter) items(items []any, indent, allowance, level int) {
	indent++
	for i, it := range items {
		if i > 0 {
			p.b.WriteString(",\n" + strings.Repeat(" ", indent))
		}
		after := 1
		if i == len(items)-1 {
			after = allowance
		}
		p.format(it, indent, after, level)
	}
}

// text breaks a long string into adjacent literals.
func (p *prettyPrinter) text(s string, indent, allowance, level int) {
	if level == 1 {
		indent++
		allowance++
	}
	quote := func(s string) string { return string(pyvalue.AppendQuoted(nil, s)) }
	width := pprintWidth - indent
	var chunks []string
	lines := pyvalue.SplitLines(s, true)
	rep := ""
	for i, line := range lines {
		rep = quote(line)
		lastLine := i == len(lines)-1
		fits := width
		if lastLine {
			fits -= allowance
		}
		if pyvalue.Len(rep) <= fits {
			chunks = append(chunks, rep)
			continue
		}
		current := ""
		parts := wordsWithSpace(line)
		for j, part := range parts {
			fits = width
			if lastLine && j == len(parts)-1 {
				fits -= allowance
			}
			if pyvalue.Len(quote(current+part)) > fits {
				if current != "" {
					chunks = append(chunks, quote(current))
				}
				current = part
			} else {
				current += part
			}
		}
		if current != "" {
			chunks = append(chunks, quote(current))
		}
	}
	if len(chunks) == 1 {
		p.b.WriteString(rep)
		return
	}
	text := strings.Join(chunks, "\n"+strings.Repeat(" ", indent))
	if level == 1 {
		text = "(" + text + ")"
	}
	p.b.WriteString(text)
}

// wordsWithSpace splits s into words with the space after them.
func wordsWithSpace(s string) []string {
	var out []string
	for s != "" {
		end := strings.IndexFunc(s, pyvalue.IsSpace)
		if end < 0 {
			return append(out, s)
		}
		n := len(s) - len(pyvalue.LStrip(s[end:]))
		out = append(out, s[:n])
		s = s[n:]
	}
	return out
}
