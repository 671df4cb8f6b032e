package chat

import (
	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// tools returns the tools as the template reads them: pydantic's model_dump of
// ChatCompletionToolsParam, with its order of fields and null for an absent description
// or absent parameters. The content of parameters stays the client's.
func (d dialect) tools(b *work.Budget, list *pyvalue.List) (*pyvalue.List, error) {
	out := pyvalue.NewList()
	for _, item := range list.Items {
		b.Step(2 * messageSteps)
		b.Memory(3 * messageBytes)
		tool, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(Rejected)
		}
		if kind, ok := tool.GetString("type"); ok && kind != "function" {
			return nil, refuse(Rejected)
		}
		f, _ := tool.GetString("function")
		fields, ok := f.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(Rejected)
		}
		defers, err := flag(tool, "defer_loading")
		if err != nil {
			return nil, err
		}
		b.Step(fieldSteps * (tool.Len() + fields.Len()))
		b.Memory(fieldBytes * (tool.Len() + fields.Len()))
		function, err := d.function(fields, defers)
		if err != nil {
			return nil, err
		}
		dump := dict("type", "function", "function", function)
		if defers != nil {
			dump.Set("defer_loading", defers)
		}
		if !d.strictTools {
			rest(dump, without(tool, "defer_loading"))
		}
		out.Items = append(out.Items, dump)
	}
	return out, nil
}

// function dumps a FunctionDefinition. defers is the tool's own value of defer_loading.
func (d dialect) function(f *pyvalue.Dict, defers any) (*pyvalue.Dict, error) {
	name, _ := f.GetString("name")
	_, named := name.(string)
	description, isText := f.GetString("description")
	if _, ok := description.(string); !named || isText && description != nil && !ok {
		return nil, refuse(Rejected)
	}
	parameters, _ := f.GetString("parameters")
	if _, ok := parameters.(*pyvalue.Dict); parameters != nil && !ok {
		return nil, refuse(Rejected)
	}
	own, err := flag(f, "defer_loading")
	if err != nil {
		return nil, err
	}
	if own == nil {
		own = defers
	}
	dump := dict("name", name, "description", description, "parameters", parameters)
	if d.strictTools {
		strict, err := flag(f, "strict")
		if err != nil {
			return nil, err
		}
		if strict != nil {
			dump.Set("strict", strict)
		}
	}
	if own != nil {
		dump.Set("defer_loading", own)
	}
	if !d.strictTools {
		rest(dump, without(f, "defer_loading"))
	}
	return dump, nil
}

// flag returns a boolean that may be null. pydantic also takes "true" and 1; flag leaves
// them to vLLM.
func flag(d *pyvalue.Dict, key string) (any, error) {
	v, _ := d.GetString(key)
	if _, ok := v.(bool); v != nil && !ok {
		return nil, refuse(UnknownShape)
	}
	return v, nil
}

// without returns d without a key.
func without(d *pyvalue.Dict, key string) *pyvalue.Dict {
	if _, ok := d.GetString(key); !ok {
		return d
	}
	d = d.Copy()
	d.Delete(key)
	return d
}

// checkToolChoice refuses choices for which check_tool_usage answers 400. choice is nil if
// it is absent or null.
func checkToolChoice(choice any, tools *pyvalue.List) error {
	switch choice := choice.(type) {
	case nil:
		return nil
	case string:
		if choice == "none" || tools != nil && (choice == "auto" || choice == "required") {
			return nil
		}
	case *pyvalue.Dict:
		f, _ := choice.GetString("function")
		function, ok := f.(*pyvalue.Dict)
		if !ok || tools == nil {
			return refuse(Rejected)
		}
		if kind, ok := choice.GetString("type"); ok && kind != "function" {
			return refuse(Rejected)
		}
		name, _ := function.GetString("name")
		if s, ok := name.(string); ok && s != "" && names(tools, s) {
			return nil
		}
	}
	return refuse(Rejected)
}

// names reports whether one of the tools has the name.
func names(tools *pyvalue.List, name string) bool {
	for _, item := range tools.Items {
		if tool, ok := item.(*pyvalue.Dict); ok {
			f, _ := tool.GetString("function")
			if function, ok := f.(*pyvalue.Dict); ok {
				if n, _ := function.GetString("name"); n == name {
					return true
				}
			}
		}
	}
	return false
}
