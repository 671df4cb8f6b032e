package chat

import (
	"slices"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// responsesTools converts tools: a function tool of this API has its fields next to its
// type.
func (p *prompt) responsesTools(req *request, exclude bool, dump []string) error {
	list, err := listField(req, openai.FieldTools)
	if err != nil {
		return err
	}
	choice, err := p.d.responsesChoice(req, list)
	if err != nil {
		return err
	}
	if list == nil || len(list.Items) == 0 || choice == "none" && (exclude || !p.d.responsesKwargs) {
		return nil
	}
	if !p.d.strictTools && len(dump) == 0 {
		return refuse(UnknownShape)
	}
	// If a server runs all of the tools, the template gets an empty list.
	p.tools = pyvalue.NewList()
	for _, item := range list.Items {
		shown, err := p.d.shown(item)
		if err != nil {
			return err
		}
		for _, tool := range shown {
			p.work.Step(2 * messageSteps)
			p.work.Memory(3 * messageBytes)
			function, err := p.d.function(tool, nil)
			if err != nil {
				return err
			}
			if !p.d.strictTools {
				function = dumpTool(tool, dump)
			}
			p.tools.Items = append(p.tools.Items, dict("type", "function", "function", function))
		}
	}
	return nil
}

// hosted are the types of tools that a server runs, with the fields that vLLM requires of
// them. Prompts have none of these tools, except harmony's.
var hosted = map[string][]string{
	"web_search": nil, "web_search_2025_08_26": nil, "web_search_preview": nil, "web_search_preview_2025_03_11": nil,
	"file_search": {"vector_store_ids"}, "code_interpreter": {"container"}, "mcp": {"server_label"}, "image_generation": nil, "tool_search": nil,
	"local_shell": nil, "shell": nil, "apply_patch": nil, "programmatic_tool_calling": nil,
	"computer": nil, "computer_use_preview": {"display_height", "display_width", "environment"},
}

// shown returns what a prompt has of a tool, as get_function_tools does: a function, the
// functions of a namespace under its name, a custom tool as a function of one text, and
// nothing of what a server runs.
func (d dialect) shown(item any) ([]*pyvalue.Dict, error) {
	tool, ok := item.(*pyvalue.Dict)
	if !ok {
		return nil, refuse(Rejected)
	}
	kind := text(tool, "type")
	if kind == "function" {
		return []*pyvalue.Dict{tool}, nil
	}
	required, isHosted := hosted[kind]
	switch {
	case !d.strictTools:
		return nil, refuse(UnknownShape)
	case isHosted && !slices.ContainsFunc(required, func(key string) bool { return !has(tool, key) }):
		return nil, nil
	case isHosted:
		return nil, refuse(Rejected)
	case kind == "custom":
		custom, err := customTool(tool)
		return []*pyvalue.Dict{custom}, err
	case kind == "namespace":
		return namespaced(tool)
	}
	return nil, refuse(UnknownShape)
}

// customTool returns a custom tool as the function that takes its text.
func customTool(tool *pyvalue.Dict) (*pyvalue.Dict, error) {
	if format, _ := tool.GetString("format"); format != nil {
		if f, ok := format.(*pyvalue.Dict); !ok || text(f, "type") != "text" {
			return nil, objection("Custom tools with a grammar format are not supported")
		}
	}
	name, _ := tool.GetString("name")
	description, _ := tool.GetString("description")
	input := dict("type", "string", "description", "The freeform text payload for this tool.")
	return dict("name", name, "description", description, "parameters", dict("type", "object", "properties", dict("input", input),
		"required", pyvalue.NewList("input"), "additionalProperties", false)), nil
}

// flatName is the name of a function in a namespace.
func flatName(namespace, name string) string { return namespace + "__" + name }

// namespaced returns the functions of a namespace.
func namespaced(space *pyvalue.Dict) (functions []*pyvalue.Dict, err error) {
	v, _ := space.GetString("tools")
	tools, ok := v.(*pyvalue.List)
	if !ok || !has(space, "name") || !has(space, "description") {
		return nil, refuse(Rejected)
	}
	for _, item := range tools.Items {
		tool, ok := item.(*pyvalue.Dict)
		if !ok || !has(tool, "name") {
			return nil, refuse(Rejected)
		}
		switch text(tool, "type") {
		case "function":
			tool = tool.Copy()
			tool.Set("name", flatName(text(space, "name"), text(tool, "name")))
			functions = append(functions, tool)
		case "custom":
		default:
			return nil, refuse(Rejected)
		}
	}
	return functions, nil
}

// responsesChoice reads the tool choice. It refuses one that vLLM may refuse; the others
// but "none" change no prompt.
func (d dialect) responsesChoice(req *request, tools *pyvalue.List) (any, error) {
	choice, err := parseField(req, openai.FieldToolChoice)
	if err != nil {
		return nil, err
	}
	named, ok := choice.(*pyvalue.Dict)
	if !ok {
		switch {
		case choice == "required" && (tools == nil || len(tools.Items) == 0), choice == nil && req.Raw(openai.FieldToolChoice) != nil && d.strictTools:
			return nil, refuse(Rejected)
		case slices.Contains([]any{nil, "none", "auto", "required"}, choice):
			return choice, nil
		}
		return nil, refuse(UnknownShape)
	}
	kind := text(named, "type")
	_, isHosted := hosted[kind]
	switch {
	case !d.strictTools:
		return nil, refuse(UnknownShape)
	case isHosted || kind == "allowed_tools":
		return choice, nil
	case kind != "function" && kind != "custom":
		return nil, refuse(UnknownShape)
	}
	// A function in a namespace may be chosen without it, if no other has the name.
	name, local := text(named, "name"), 0
	exact := toolNamed(tools, func(space, tool string) bool {
		if space != "" && tool == name {
			local++
		}
		return tool == name && space == "" || space != "" && flatName(space, tool) == name
	})
	if name == "" || !exact && local != 1 {
		return nil, objection("Tool choice 'function' not found in 'tools' parameter.")
	}
	return choice, nil
}

// toolNamed reports whether is holds for some tool's namespace ("": none) and name.
func toolNamed(tools *pyvalue.List, is func(space, tool string) bool) (found bool) {
	if tools == nil {
		return false
	}
	for _, item := range tools.Items {
		tool, ok := item.(*pyvalue.Dict)
		if !ok {
			continue
		}
		if text(tool, "type") != "namespace" {
			found = is("", text(tool, "name")) || found
			continue
		}
		inner, _ := tool.GetString("tools")
		functions, ok := inner.(*pyvalue.List)
		if !ok {
			continue
		}
		for _, item := range functions.Items {
			if function, ok := item.(*pyvalue.Dict); ok {
				found = is(text(tool, "name"), text(function, "name")) || found
			}
		}
	}
	return found
}

// dumpTool returns model_dump of the openai package's FunctionTool: its fields in its
// order, null for absent ones, then the client's other fields.
func dumpTool(tool *pyvalue.Dict, fields []string) *pyvalue.Dict {
	d := pyvalue.NewDict()
	for _, name := range fields {
		v, _ := tool.GetString(strings.TrimSuffix(name, "_")) // async_ is async outside Python
		d.Set(name, v)
	}
	rest(d, without(tool, "async"))
	return d
}
