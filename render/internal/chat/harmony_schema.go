package chat

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// hTools declares functions as harmony's TypeScript.
func hTools(w *work.Budget, tools *pyvalue.List) (string, error) {
	b := &typescript{work: w}
	b.add("# Tools\n\n## functions\n\nnamespace functions {\n\n")
	for _, item := range tools.Items {
		f, _ := item.(*pyvalue.Dict).GetString("function")
		function := f.(*pyvalue.Dict) // checked when the tools were read
		description := text(function, "description")
		w.Step(messageSteps + len(description)/8)
		w.Memory(16 * (1 + strings.Count(description, "\n")))
		for _, line := range rustLines(description) {
			b.add("// ", line, "\n")
		}
		b.add("type ", text(function, "name"), " = (")
		if parameters, _ := function.GetString("parameters"); parameters != nil {
			b.add("_: ", b.of(parameters, ""))
		}
		b.add(") => any;\n\n")
	}
	b.add("} // namespace functions")
	if b.unknown {
		return "", refuse(UnknownShape)
	}
	return b.b.String(), nil
}

// rustLines splits a text as Rust's str::lines does: a line may end in CR LF, and the last
// line may have no end.
func rustLines(s string) []string {
	if s == "" {
		return nil
	}
	lines := strings.Split(strings.TrimSuffix(s, "\n"), "\n")
	for i := range lines {
		if i < len(lines)-1 || strings.HasSuffix(s, "\n") {
			lines[i] = strings.TrimSuffix(lines[i], "\r")
		}
	}
	return lines
}

// typescript writes JSON schemas as TypeScript types, as harmony does.
type typescript struct {
	work    *work.Budget
	b       strings.Builder
	unknown bool // JSON has no form for a value of the schema
	depth   int
}

// schemaDepth bounds nesting. The parser also bounds it.
const schemaDepth = 128

func (t *typescript) add(texts ...string) {
	for _, s := range texts {
		t.work.Make(2 * len(s))
		t.b.WriteString(s)
	}
}

// schemaList returns a schema's list of that name; nil: it has none.
func schemaList(v any, key string) (*pyvalue.List, bool) {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return nil, false
	}
	l, _ := d.GetString(key)
	list, ok := l.(*pyvalue.List)
	return list, ok
}

// schemaText returns a schema's text of that name.
func schemaText(v any, key string) (string, bool) {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return "", false
	}
	s, _ := d.GetString(key)
	text, ok := s.(string)
	return text, ok
}

func schemaHas(v any, key string) bool {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return false
	}
	_, ok = d.GetString(key)
	return ok
}

func isEnum(v any) bool {
	list, _ := schemaList(v, "enum")
	return list != nil && len(list.Items) > 0
}

// of returns the type of a schema.
func (t *typescript) of(v any, indent string) string {
	typ := t.typeOf(v, indent)
	t.work.Make(4 * len(typ)) // each enclosing type copies it
	return typ
}

func (t *typescript) typeOf(v any, indent string) string {
	t.depth++
	t.work.Step(messageSteps)
	t.work.Memory(messageBytes + len(indent))
	defer func() { t.depth-- }()
	if t.depth > schemaDepth {
		t.unknown = true
		return ""
	}
	if variants, ok := schemaList(v, "oneOf"); ok {
		return t.oneOf(variants, indent)
	}
	if types, ok := schemaList(v, "type"); ok {
		var names []string
		for _, item := range types.Items {
			if name, ok := item.(string); ok {
				if name == "integer" {
					name = "number"
				}
				names = append(names, name)
			}
		}
		if len(names) > 0 {
			return strings.Join(names, " | ")
		}
	}
	switch kind, _ := schemaText(v, "type"); kind {
	case "object":
		return t.object(v, indent)
	case "string":
		return t.stringType(v)
	case "number", "integer":
		return "number"
	case "boolean":
		return "boolean"
	case "array":
		if d := v.(*pyvalue.Dict); schemaHas(d, "items") {
			items, _ := d.GetString("items")
			return t.of(items, indent) + "[]"
		}
		return "Array<any>"
	}
	return "any"
}

func (t *typescript) stringType(v any) string {
	values, _ := schemaList(v, "enum")
	if values == nil {
		return "string"
	}
	var names []string
	for _, item := range values.Items {
		t.work.Step(fieldSteps)
		if s, ok := item.(string); ok {
			t.work.Make(2*len(s) + fieldBytes)
			names = append(names, `"`+s+`"`)
		}
	}
	if len(names) == 0 {
		return "string"
	}
	return strings.Join(names, " | ")
}

// nullable adds null to the type of a schema that allows it.
func nullable(v any, typ string) string {
	if d, ok := v.(*pyvalue.Dict); ok {
		if n, _ := d.GetString("nullable"); n == true && !strings.Contains(typ, "null") {
			return typ + " | null"
		}
	}
	return typ
}

func (t *typescript) oneOf(variants *pyvalue.List, indent string) string {
	var b strings.Builder
	for _, variant := range variants.Items {
		b.WriteString("\n" + indent + " | " + nullable(variant, t.of(variant, indent+"   ")))
		var comments []string
		if desc, ok := schemaText(variant, "description"); ok {
			comments = append(comments, desc)
		}
		// In a variant, a default of an enum is JSON.
		comments = t.appendDefault(comments, variant, true)
		if len(comments) > 0 {
			b.WriteString(" // " + strings.Join(comments, " "))
		}
	}
	return b.String()
}

// appendDefault appends the default of a schema: a text in quotes, a text of an enum
// without them (as JSON with enumJSON), any other value as JSON.
func (t *typescript) appendDefault(comments []string, v any, enumJSON bool) []string {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		return comments
	}
	value, ok := d.GetString("default")
	if !ok {
		return comments
	}
	s, isText := value.(string)
	switch {
	case isText && !isEnum(v):
		s = `"` + s + `"`
	case isText && !enumJSON:
	default:
		s = t.json(value)
	}
	return append(comments, "default: "+s)
}

func (t *typescript) object(v any, indent string) string {
	var b strings.Builder
	if desc, ok := schemaText(v, "description"); ok {
		b.WriteString(indent + "// " + desc + "\n")
	}
	b.WriteString("{\n")
	properties, _ := v.(*pyvalue.Dict).GetString("properties")
	if members, ok := properties.(*pyvalue.Dict); ok {
		required := map[any]bool{}
		if list, _ := schemaList(v, "required"); list != nil {
			for _, name := range list.Items {
				t.work.Step(fieldSteps)
				t.work.Memory(fieldBytes)
				if s, ok := name.(string); ok {
					required[s] = true
				}
			}
		}
		for key, member := range members.All() {
			name := key.(string)
			if !required[name] {
				name += "?"
			}
			t.member(&b, name, member, indent)
		}
	}
	return b.String() + indent + "}"
}

func (t *typescript) member(b *strings.Builder, name string, v any, indent string) {
	if title, ok := schemaText(v, "title"); ok {
		b.WriteString(indent + "// " + title + "\n" + indent + "//\n")
	}
	t.work.Step(messageSteps)
	t.work.Make(2 * (len(indent) + len(name)))
	desc, described := schemaText(v, "description")
	t.work.Make(2 * len(desc))
	if described && !schemaHas(v, "oneOf") {
		b.WriteString(indent + "// " + desc + "\n")
	}
	if examples, _ := schemaList(v, "examples"); examples != nil && len(examples.Items) > 0 {
		b.WriteString(indent + "// Examples:\n")
		for _, item := range examples.Items {
			t.work.Step(fieldSteps)
			if s, ok := item.(string); ok {
				t.work.Make(2 * (len(indent) + len(s)))
				b.WriteString(indent + `// - "` + s + "\"\n")
			}
		}
	}
	if variants, ok := schemaList(v, "oneOf"); ok {
		t.variants(b, name, v, variants, indent)
		return
	}
	b.WriteString(indent + name + ": " + nullable(v, t.of(v, indent+"    ")) + ",")
	if !schemaHas(v, "oneOf") {
		for _, comment := range t.appendDefault(nil, v, false) {
			b.WriteString(" // " + comment)
		}
	}
	b.WriteString("\n")
}

// variants writes a member of a union type.
func (t *typescript) variants(b *strings.Builder, name string, v any, variants *pyvalue.List, indent string) {
	desc, described := schemaText(v, "description")
	if described && len(variants.Items) > 0 {
		if first, ok := schemaText(variants.Items[0], "description"); ok && first == desc {
			described = false
		}
	}
	if described {
		b.WriteString(indent + "// " + desc + "\n")
	}
	for _, comment := range t.appendDefault(nil, v, false) {
		b.WriteString(indent + "// " + comment + "\n")
	}
	b.WriteString(indent + name + ":\n")
	whole, hasWhole := schemaText(v, "description")
	for i, variant := range variants.Items {
		b.WriteString(indent + " | " + nullable(variant, t.of(variant, indent+"   ")))
		var comments []string
		if own, ok := schemaText(variant, "description"); ok && !(i == 0 && described) && !(hasWhole && own == whole) {
			comments = append(comments, own)
		}
		if comments = t.appendDefault(comments, variant, false); len(comments) > 0 {
			b.WriteString(" // " + strings.Join(comments, " "))
		}
		b.WriteString("\n")
	}
	b.WriteString(indent + ",\n")
}
