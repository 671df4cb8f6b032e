package chattest

import (
	"fmt"
	"math/rand/v2"

	"warmroute/render/openai"
)

// GenerateAgents returns n requests for /v1/responses as agents make them: tools that a
// server runs, custom tools, tools in namespaces, and the items that they leave behind.
// A few are none that vLLM accepts.
func GenerateAgents(seed uint64, n int, model string) []Case {
	cases := make([]Case, n)
	for i := range cases {
		g := &generator{r: rand.New(rand.NewPCG(seed, uint64(i))), model: model}
		cases[i] = Case{openai.Responses, g.agent()}
	}
	return cases
}

// hosted are tools that a server runs, in many forms.
var hosted = []string{
	`{"type":"web_search"}`, `{"type":"web_search","filters":{"allowed_domains":["a.b"]},"search_context_size":"low","user_location":{"type":"approximate","city":"Bern"}}`,
	`{"type":"web_search","external_web_access":false}`, `{"type":"web_search_2025_08_26"}`, `{"type":"web_search_preview"}`,
	`{"type":"web_search_preview","search_context_size":"high"}`, `{"type":"web_search_preview_2025_03_11"}`, `{"type":"local_shell"}`, `{"type":"shell"}`,
	`{"type":"apply_patch"}`, `{"type":"image_generation","output_format":"png"}`, `{"type":"image_generation"}`, `{"type":"tool_search"}`,
	`{"type":"tool_search","execution":"client","description":"d","parameters":{"type":"object"}}`, `{"type":"file_search","vector_store_ids":["v"]}`,
	`{"type":"code_interpreter","container":{"type":"auto"}}`, `{"type":"code_interpreter","container":"c1"}`,
	`{"type":"code_interpreter","container":{"type":"auto","file_ids":["f"],"memory_limit":"1g"}}`, `{"type":"computer"}`,
	`{"type":"computer_use_preview","display_height":600,"display_width":800,"environment":"linux"}`, `{"type":"programmatic_tool_calling"}`,
	`{"type":"mcp","server_label":"x","server_url":"http://x"}`, `{"type":"mcp","server_label":"x","connector_id":"connector_gmail","require_approval":"never"}`,
	`{"type":"mcp","server_label":"container","server_url":"http://x","allowed_tools":{"tool_names":["exec"]},"headers":{"a":"b"}}`,
}

func (g *generator) agentTool(name string) string {
	switch g.r.IntN(7) {
	case 0, 1:
		return object(append(g.function(name, "parameters"), `"type":"function"`, g.maybe(6, func() string { return `"defer_loading":` + g.pick("true", "false", "null") }),
			g.maybe(6, func() string { return `"output_schema":{"type":"string"}` }))...)
	case 2, 3:
		return object(`"type":"custom"`, field("name", g.quote(name)), field("description", g.pick("", "null", g.string(), g.string())),
			field("format", g.pick("", `{"type":"text"}`, `{"type":"text"}`, "null", `{"type":"grammar","syntax":"lark","definition":"start: /a/"}`)),
			g.maybe(8, func() string { return `"defer_loading":true` }))
	case 4:
		var inner []string
		for _, name := range toolNames[:g.r.IntN(4)] {
			f := append(g.function(name, "parameters"), `"type":"function"`, g.maybe(6, func() string { return `"defer_loading":true` }))
			inner = append(inner, g.pick(object(f...), object(f...), object(`"type":"custom"`, field("name", g.quote(name)))))
		}
		return object(`"type":"namespace"`, field("name", g.pick(`"crm"`, `"mcp__docs"`, `"ünit"`)), field("description", g.string()), field("tools", array(inner...)))
	case 5:
		if g.one(12) {
			return g.pick(`{"type":"custom"}`, `{"type":"namespace","name":"n","tools":[]}`, `{"type":"namespace","name":"n","description":"d","tools":[{"type":"web_search"}]}`,
				`{"type":"unheard_of"}`, `{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f","parameters":[]}]}`)
		}
	}
	return g.pick(hosted...)
}

func (g *generator) agent() string {
	var tools []string
	for i := range g.r.IntN(5) {
		tools = append(tools, g.agentTool(toolNames[i%len(toolNames)]))
	}
	items := []string{object(`"type":"message"`, field("role", g.pick(`"developer"`, `"user"`)), field("content", g.content("input_text", false)))}
	for range g.r.IntN(4) {
		items = append(items, g.outputs()...)
		items = append(items, g.agentItems()...)
	}
	if g.one(2) {
		items = append(items, object(`"role":"user"`, field("content", g.content("input_text", false))))
	}
	choice := g.pick("", "", "", `"auto"`, `"auto"`, `"none"`, `"required"`, "null", `{"type":"function","name":"search"}`, `{"type":"custom","name":"search"}`, `{"type":"web_search_preview"}`,
		`{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"search"}]}`, `{"type":"mcp","server_label":"x"}`, `{"type":"function","name":"crm__search"}`)
	return g.body(field("instructions", g.maybe(2, g.string)), field("tools", array(tools...)), field("tool_choice", choice), field("input", array(items...)),
		`"store":false`, g.maybe(2, func() string { return `"include":["reasoning.encrypted_content"]` }), g.maybe(2, func() string { return `"prompt_cache_key":"k"` }),
		`"parallel_tool_calls":`+g.pick("true", "false"), field("reasoning", g.maybe(6, func() string { return `{"effort":"low","summary":"auto"}` })))
}

// agentItems returns a call of a custom tool, or of one in a namespace, with its output.
func (g *generator) agentItems() []string {
	g.calls++
	id := field("call_id", fmt.Sprintf(`"call_%d"`, g.calls))
	status := g.maybe(3, func() string { return `"status":"completed"` })
	output := field("output", g.pick(g.string(), g.string(), g.content("input_text", false)))
	switch g.r.IntN(5) {
	case 0, 1:
		return []string{object(`"type":"custom_tool_call"`, id, field("name", g.quote(g.pick(toolNames...))), field("input", g.string()), status,
			g.maybe(3, func() string { return `"id":"ctc_1"` }), g.maybe(6, func() string { return `"namespace":"crm"` })),
			object(`"type":"custom_tool_call_output"`, id, output, g.maybe(6, func() string { return `"id":"ctco_1"` }), g.maybe(6, func() string { return `"name":"x"` }))}
	case 2:
		return []string{object(`"type":"function_call"`, id, field("name", g.quote(g.pick(toolNames...))), field("namespace", g.pick(`"crm"`, `"ünit"`, `""`, "null")),
			field("arguments", g.quote(g.arguments())), status, g.maybe(3, func() string { return `"id":"fc_1"` }), g.maybe(6, func() string { return `"caller":{"type":"direct"}` })),
			object(`"type":"function_call_output"`, id, output, status, g.maybe(6, func() string { return `"namespace":"crm"` }))}
	case 3:
		return []string{object(`"type":"reasoning"`, `"id":"rs_1"`, `"summary":[{"type":"summary_text","text":"s"}]`, g.maybe(2, func() string { return `"encrypted_content":` + g.pick("null", `""`, `"x"`) }),
			g.maybe(2, func() string { return `"content":null` }))}
	}
	if !g.one(3) {
		return nil
	}
	return []string{g.pick(`{"type":"web_search_call","id":"ws_1","status":"completed","action":{"type":"search","query":"q"}}`,
		`{"type":"local_shell_call","id":"l","call_id":"c","status":"completed","action":{"type":"exec","command":["ls"],"env":{}}}`,
		`{"type":"local_shell_call_output","id":"l","output":"o"}`, `{"type":"tool_search_call","arguments":{},"call_id":"t"}`,
		`{"type":"custom_tool_call","call_id":"c","name":"f"}`, `{"type":"custom_tool_call_output","call_id":"c","output":null}`, `{"type":"item_reference","id":"x"}`,
		`{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}`, `{"type":"mcp_call","id":"m","arguments":"{}","name":"n","server_label":"x"}`,
		`{"type":"image_generation_call","id":"i","result":null,"status":"completed"}`, `{"type":"compaction","encrypted_content":"x"}`)}
}
