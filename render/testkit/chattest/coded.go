package chattest

import (
	"fmt"
	"math/rand/v2"

	"warmroute/render/openai"
)

// GenerateCoded returns n requests for a model that vLLM renders in code: like
// Generate's, with the inputs of those renderers: efforts and ways to think, developers
// and systems anywhere, results out of order, tasks, schemas of every kind, and the
// special tokens of the model, given, inside texts.
func GenerateCoded(seed uint64, n int, model string, special ...string) []Case {
	cases := make([]Case, n)
	for i := range cases {
		g := &codedGenerator{generator: generator{r: rand.New(rand.NewPCG(seed, uint64(i))), model: model}, special: special}
		switch i % 10 {
		case 0, 1, 2, 3, 4, 5:
			cases[i] = Case{openai.Chat, g.chat()}
		case 6, 7:
			cases[i] = Case{openai.Responses, g.responses()}
		case 8:
			cases[i] = Case{openai.Messages, g.messages()}
		default:
			cases[i] = Case{openai.Completions, g.completion()}
		}
	}
	return cases
}

type codedGenerator struct {
	generator
	special []string
}

func (g *codedGenerator) text() string {
	text := g.generator.text()
	if g.one(4) {
		text += g.pick(g.special...)
	}
	if g.one(8) {
		text += g.generator.text()
	}
	return text
}

func (g *codedGenerator) string() string { return g.quote(g.text()) }

// content returns a text, or parts: usually of one kind.
func (g *codedGenerator) content(kind string) string {
	if !g.one(3) {
		return g.string()
	}
	parts := make([]string, g.r.IntN(4))
	for i := range parts {
		parts[i] = object(field("type", `"`+kind+`"`), field("text", g.string()), g.maybe(8, func() string { return `"cache_control":{"type":"ephemeral"}` }))
		if kind == "text" && g.one(40) {
			parts[i] = g.pick(`{"type":"image_url","image_url":{"url":"http://127.0.0.1:1/x.png"}}`, `{"type":"refusal","refusal":"no"}`,
				`{"type":"thinking","thinking":"hm"}`, `{"type":"tool_reference","name":"search"}`, `"bare"`, `{"type":"input_text","text":"x"}`)
		}
	}
	return array(parts...)
}

// anySchema returns a schema with every keyword that a renderer may print.
func (g *codedGenerator) anySchema(depth int) string {
	common := []string{field("description", g.maybe(2, g.string)), field("title", g.maybe(5, g.string)),
		field("default", g.maybe(3, func() string { return g.value(2) })), field("nullable", g.maybe(6, func() string { return g.pick("true", "false", "1") })),
		field("examples", g.maybe(6, func() string { return array(g.word(), g.value(1)) })), field("enum", g.maybe(5, func() string {
			return g.pick("[]", "[1]", array(g.word(), g.word()), array(g.word(), g.number(), "null"))
		}))}
	if depth == 0 || g.one(3) {
		return object(append(common, field("type", g.pick(`"string"`, `"string"`, `"integer"`, `"number"`, `"boolean"`, `"null"`, `"array"`, "",
			`["integer","null"]`, `["string"]`, `[]`, `[1]`, `"object"`, `7`)), g.maybe(9, func() string { return `"$ref":"#/$defs/a"` }),
			g.maybe(9, func() string { return `"const":1` }))...)
	}
	switch g.r.IntN(5) {
	case 0:
		return object(append(common, `"type":"array"`, field("items", g.pick(g.anySchema(depth-1), g.anySchema(depth-1), "true", "null")))...)
	case 1:
		variants := make([]string, g.r.IntN(4))
		for i := range variants {
			variants[i] = g.pick(g.anySchema(depth-1), g.anySchema(depth-1), g.anySchema(depth-1), "true")
		}
		return object(append(common, field(g.pick("oneOf", "oneOf", "anyOf", "allOf"), array(variants...)), g.maybe(8, func() string { return `"type":"string"` }))...)
	}
	return object(append(common, `"type":"object"`, field("properties", g.properties(depth)),
		field("required", g.pick("", "[]", `["query"]`, `["a","b",3]`, "null")), field("additionalProperties", g.maybe(2, func() string { return g.pick("false", "{}") })))...)
}

func (g *codedGenerator) properties(depth int) string {
	var properties []string
	for _, key := range []string{"query", "limit", "tags", "ünïcode", "b", "a", "$x", "with space", "class"} {
		if g.one(4) {
			properties = append(properties, g.quote(key)+":"+g.anySchema(depth-1))
		}
	}
	return object(properties...)
}

func (g *codedGenerator) function(name, parameters string) []string {
	schema := g.pick(g.anySchema(3), object(`"type":"object"`, field("properties", g.properties(3))), "{}")
	if parameters == "parameters" && g.one(10) {
		schema = g.pick("null", "")
	}
	fields := []string{field("name", g.quote(name)), field("description", g.pick("", "null", `""`, g.string(), g.string(), `"one\r\ntwo\n\nthree\r\n"`)),
		field(parameters, schema), field("strict", g.maybe(4, func() string { return g.pick("true", "false", "null") }))}
	g.r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return fields
}

func (g *codedGenerator) tools(route openai.Route) string {
	var list []string
	for _, name := range append(toolNames, "search")[g.r.IntN(2):][:1+g.r.IntN(4)] {
		switch route {
		case openai.Responses:
			list = append(list, object(append([]string{`"type":"function"`}, g.function(name, "parameters")...)...))
		case openai.Messages:
			list = append(list, object(g.function(name, "input_schema")...))
		default:
			list = append(list, object(g.maybe(2, func() string { return `"type":"function"` }), field("function", object(g.function(name, "parameters")...))))
		}
	}
	if route == openai.Responses && g.one(5) {
		list = append(list, g.pick(`{"type":"web_search"}`, `{"type":"web_search_preview"}`, `{"type":"code_interpreter","container":{"type":"auto"}}`,
			`{"type":"mcp","server_label":"x","server_url":"http://x"}`, `{"type":"mcp","server_label":"container","server_url":"http://x","allowed_tools":["exec"]}`))
		if g.one(2) {
			list = list[len(list)-1:]
		}
	}
	return array(list...)
}

func (g *codedGenerator) kwargs() string {
	return object(g.maybe(3, func() string { return `"thinking":` + g.pick("true", "false", "true", "null", "1", `""`) }),
		g.maybe(3, func() string { return `"enable_thinking":` + g.pick("true", "false", "null", `"auto"`, "0") }),
		g.maybe(4, func() string {
			return `"reasoning_effort":` + g.pick(`"low"`, `"high"`, `"max"`, `"none"`, `"medium"`, `"xhigh"`, `"odd"`, "7", "100", "101", "0", "1.0", "true")
		}),
		g.maybe(4, func() string { return `"drop_thinking":` + g.pick("true", "false", "null", "0") }),
		g.maybe(6, func() string { return `"unused":[1.0,null]` }))
}

func (g *codedGenerator) effort() string {
	return g.pick(`"none"`, `"low"`, `"low"`, `"high"`, `"high"`, `"medium"`, `"minimal"`, `"max"`, `"xhigh"`, "null")
}

// message returns one message of a chat, or several of an assistant and its tools.
func (g *codedGenerator) message() []string {
	role := g.pick("user", "user", "user", "user", "assistant", "assistant", "calls", "calls", "calls", "developer", "system", "tool", "odd")
	task := field("task", g.maybe(20, func() string { return g.pick(`"title"`, `"query"`, `"action"`, `"odd"`, "null") }))
	reasoning := field(g.pick("reasoning", "reasoning_content"), g.maybe(2, g.string))
	switch role {
	case "assistant":
		return []string{object(`"role":"assistant"`, field("content", g.pick(g.content("text"), g.content("text"), "null")), reasoning, task,
			g.maybe(10, func() string { return `"tool_calls":[]` }), g.maybe(20, func() string { return `"wo_eos":true` }))}
	case "calls":
		return g.turn(reasoning)
	case "tool":
		if !g.one(4) {
			return nil
		}
		return []string{g.result(`"call_x"`)}
	case "odd":
		if !g.one(10) {
			return nil
		}
		return []string{object(field("role", g.pick(`"function"`, `"latest_reminder"`, `"critic"`)), `"name":"n"`, field("content", g.content("text")))}
	}
	if (role == "developer" || role == "system") && !g.one(3) {
		return nil
	}
	return []string{object(`"role":"`+role+`"`, field("content", g.content("text")), field("name", g.maybe(8, g.word)), task,
		g.maybe(20, func() string { return `"response_format":{"type":"json_object","x":[1.0]}` }))}
}

func (g *codedGenerator) result(id string) string {
	return object(`"role":"tool"`, field("tool_call_id", id), field("content", g.content("text")), g.maybe(6, func() string { return `"name":"search"` }))
}

func (g *codedGenerator) turn(reasoning string) []string {
	var calls, results []string
	for range 1 + g.r.IntN(3) {
		g.calls++
		id := fmt.Sprintf(`"call_%d"`, g.calls)
		arguments := g.arguments()
		if g.one(8) {
			arguments = g.pick(`{"a":1,"a":"x","b":[1,{"c":2,"c":3}]}`, `"{\"a\": 1}"`, `{"q": 1e400}`, ` {"s":"\u00e9\n"} `, "nope", `{"n":NaN}`)
		}
		calls = append(calls, object(field("id", id), `"type":"function"`,
			field("function", object(field("name", g.quote(g.pick(toolNames...))), field("arguments", g.quote(arguments))))))
		results = append(results, g.result(id))
	}
	g.r.Shuffle(len(results), func(i, j int) { results[i], results[j] = results[j], results[i] })
	if g.one(6) {
		results = results[1:]
	}
	return append([]string{object(`"role":"assistant"`, field("content", g.pick("null", "", g.content("text"))), field("tool_calls", array(calls...)), reasoning)}, results...)
}

func (g *codedGenerator) chat() string {
	messages := []string{g.maybe(2, func() string {
		return object(field("role", g.pick(`"system"`, `"system"`, `"developer"`)), field("content", g.content("text")))
	})}
	for range 1 + g.r.IntN(7) {
		messages = append(messages, g.message()...)
	}
	if g.one(2) {
		messages = append(messages, object(`"role":"user"`, field("content", g.content("text"))))
	}
	fields := append(g.knobs(), field("max_tokens", "4"), field("messages", array(messages...)), field("chat_template_kwargs", g.maybe(2, g.kwargs)),
		field("reasoning_effort", g.maybe(3, g.effort)), field("documents", g.maybe(15, func() string { return `[{"title":"a","text":"b"}]` })),
		field("add_special_tokens", g.maybe(12, func() string { return g.pick("true", "false") })),
		field("add_generation_prompt", g.maybe(10, func() string { return g.pick("true", "false") })),
		field("continue_final_message", g.maybe(10, func() string { return g.pick("true", "false") })))
	if g.one(2) {
		fields = append(fields, field("tools", g.tools(openai.Chat)), field("tool_choice", g.pick("", "", `"auto"`, `"none"`, "null",
			`{"type":"function","function":{"name":"search"}}`)))
	}
	return g.body(fields...)
}

func (g *codedGenerator) responses() string {
	fields := append(g.knobs(), field("max_output_tokens", "4"), field("instructions", g.pick("", "", "null", g.string(), g.string())),
		field("reasoning", g.maybe(3, func() string { return g.pick(`{}`, `{"effort":null}`, object(field("effort", g.effort()))) })),
		field("tools", g.maybe(2, func() string { return g.tools(openai.Responses) })),
		field("truncation", g.maybe(8, func() string { return g.pick(`"auto"`, `"disabled"`) })),
		field("chat_template_kwargs", g.maybe(4, g.kwargs)), field("store", g.maybe(4, func() string { return "false" })))
	if g.one(5) {
		return g.body(append(fields, field("input", g.string()))...)
	}
	var items []string
	for range 1 + g.r.IntN(4) {
		items = append(items, object(g.maybe(2, func() string { return `"type":"message"` }),
			field("role", g.pick(`"user"`, `"user"`, `"user"`, `"system"`, `"developer"`)), field("content", g.content("input_text"))))
		items = append(items, g.outputs()...)
	}
	return g.body(append(fields, field("input", array(items...)))...)
}

func (g *codedGenerator) completion() string {
	return g.body(append(g.knobs(), `"max_tokens":4`, field("prompt", g.pick(g.string(), array(g.word(), g.string()))),
		field("suffix", g.maybe(5, g.word)), field("add_special_tokens", g.maybe(4, func() string { return g.pick("true", "false") })))...)
}
