package configtest

import "strings"

// Schema returns the JSON Schema of the files that the reference describes. It refuses
// unknown fields and values of another type, and leaves the rest to [config.Parse]. A string
// with a variable is taken for any scalar.
func Schema(fields []Field) map[string]any {
	root := valueSchema("section")
	sections := map[string]map[string]any{"": root} // by the beginning of their fields' paths
	for _, f := range fields {
		parent, name := "", f.Path
		if i := strings.LastIndexByte(f.Path, '.'); i >= 0 {
			parent, name = f.Path[:i], f.Path[i+1:]
		}
		s := valueSchema(f.Type)
		if of, is := strings.CutPrefix(f.Type, "list of "); is {
			s = map[string]any{"type": "array", "items": valueSchema(strings.TrimSuffix(of, "s"))}
			sections[f.Path+"[]"], _ = s["items"].(map[string]any)
		}
		if of, is := strings.CutPrefix(f.Type, "mapping of "); is {
			s = map[string]any{"type": "object", "additionalProperties": valueSchema(strings.TrimSuffix(of, "s"))}
			sections[f.Path+".*"], _ = s["additionalProperties"].(map[string]any)
		}
		s["description"] = f.Meaning
		sections[f.Path] = s
		around := sections[parent]
		properties, ok := around["properties"].(map[string]any)
		if !ok { // its first field
			properties = map[string]any{}
			around["properties"], around["additionalProperties"] = properties, false
		}
		properties[name] = s
	}
	return root
}

// valueSchema returns the schema of a value of one of typeName's types. Helm's parser and
// the router's take a number for a string as well.
func valueSchema(kind string) map[string]any {
	switch kind {
	case "section":
		return map[string]any{"type": "object"}
	case "string":
		return map[string]any{"type": []string{"string", "number"}}
	case "duration":
		return map[string]any{"type": []string{"string", "integer"}, "minimum": 0, "maximum": 0, // 0 needs no unit
			"pattern": `^[+-]?([0-9]*\.?[0-9]*(ns|us|µs|μs|ms|s|m|h))+$|^0$|` + anyVariable}
	}
	return map[string]any{"type": []string{kind, "string"}, "pattern": anyVariable}
}

// anyVariable is a pattern of texts that have a variable.
const anyVariable = `\$\{`
