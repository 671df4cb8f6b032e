package chattest

import (
	"fmt"
	"strings"

	"warmroute/render/openai"
)

func (g *generator) knobs() []string {
	return []string{field("temperature", g.maybe(2, g.temperature)), field("stream", g.maybe(4, func() string { return "true" })),
		field("cache_salt", g.maybe(8, func() string { return `"salt-1"` })), field("user", g.maybe(8, g.word))}
}

func (g *generator) temperature() string { return g.pick("0", "0.7", "1.0") }

// body shuffles the fields: their order must not matter.
func (g *generator) body(fields ...string) string {
	fields = append(fields, field("model", g.quote(g.model)))
	g.r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	return object(fields...)
}

func (g *generator) chat() string {
	var messages []string
	if g.one(2) {
		messages = append(messages, object(`"role":"system"`, field("content", g.content("text", true))))
	}
	if g.one(12) {
		messages = append(messages, object(`"role":"developer"`, field("content", g.content("text", false))))
	}
	for range 1 + g.r.IntN(3) {
		messages = append(messages, g.user())
		if g.one(2) {
			messages = append(messages, g.turn()...)
		}
	}
	fields := append(g.knobs(), field("max_tokens", "4"))
	if g.one(8) {
		messages = append(messages, object(`"role":"assistant"`, field("content", g.pick(g.word(), g.content("text", false)))))
		fields = append(fields, `"continue_final_message":true`, `"add_generation_prompt":false`)
	} else if g.one(10) {
		fields = append(fields, `"add_generation_prompt":`+g.pick("true", "false"))
	}
	if g.one(2) {
		fields = append(fields, field("tools", g.tools(openai.Chat)), field("tool_choice", g.pick("", "", `"auto"`, `"none"`, `"required"`,
			"null", `{"type":"function","function":{"name":"search"}}`)))
	}
	fields = append(fields, field("messages", array(messages...)), field("chat_template_kwargs", g.maybe(4, g.kwargs)),
		field("reasoning_effort", g.maybe(6, func() string { return g.pick(`"none"`, `"low"`, `"high"`, `"medium"`) })),
		field("documents", g.maybe(15, func() string { return `[{"title":"a","text":"b"}]` })),
		field("add_special_tokens", g.maybe(12, func() string { return g.pick("true", "false") })))
	return g.body(fields...)
}

func (g *generator) kwargs() string {
	return g.pick(`{"enable_thinking":false}`, `{"enable_thinking":true,"x":[1.0,null]}`, `{"enable_thinking":null}`, `{}`, `{"enable_thinking":"auto"}`,
		`{"range":3,"unused":"y"}`)
}

// content returns a message's content: a string or parts. A system message sometimes has
// the billing line of a well-known client.
func (g *generator) content(kind string, system bool) string {
	switch {
	case system && g.one(6):
		return g.quote("x-anthropic-billing-header: cch=1;\n" + g.text())
	case !g.one(4):
		return g.string()
	}
	parts := make([]string, 1+g.r.IntN(3))
	for i := range parts {
		extra := ""
		if kind == "text" && g.one(6) {
			extra = `"cache_control":{"type":"ephemeral"}`
		}
		parts[i] = object(field("type", `"`+kind+`"`), field("text", g.string()), extra)
	}
	return array(parts...)
}

func (g *generator) user() string {
	return object(`"role":"user"`, field("content", g.content("text", false)), field("name", g.maybe(8, g.word)))
}

// turn returns an assistant's answer, sometimes with calls and their results.
func (g *generator) turn() []string {
	reasoning := field(g.pick("reasoning", "reasoning_content"), g.maybe(4, g.string))
	if g.one(2) {
		return []string{object(`"role":"assistant"`, field("content", g.content("text", false)), reasoning,
			g.maybe(8, func() string { return `"tool_calls":[]` }), g.maybe(8, func() string { return `"refusal":null` }))}
	}
	var calls, results []string
	for range 1 + g.r.IntN(2) {
		g.calls++
		id := fmt.Sprintf(`"call_%d"`, g.calls)
		calls = append(calls, object(field("id", id), `"type":"function"`, field("function",
			object(field("name", g.quote(g.pick(toolNames...))), field("arguments", g.quote(g.arguments())))), g.maybe(6, func() string { return `"index":0` })))
		results = append(results, object(`"role":"tool"`, field("tool_call_id", id), field("content", g.content("text", false)),
			field("name", g.maybe(6, func() string { return `"search"` }))))
	}
	return append([]string{object(`"role":"assistant"`, field("content", g.pick("null", "", g.string())), field("tool_calls", array(calls...)), reasoning)}, results...)
}

func (g *generator) responses() string {
	fields := append(g.knobs(), field("max_output_tokens", "4"), field("instructions", g.maybe(2, g.string)),
		field("reasoning", g.maybe(6, func() string { return g.pick(`{"effort":"low"}`, `{"effort":"none"}`, `{}`, `{"effort":null}`) })),
		field("tools", g.maybe(2, func() string { return g.tools(openai.Responses) })),
		field("truncation", g.maybe(8, func() string { return g.pick(`"auto"`, `"disabled"`) })),
		field("chat_template_kwargs", g.maybe(5, g.kwargs)), field("store", g.maybe(4, func() string { return "false" })))
	if g.one(4) {
		return g.body(append(fields, field("input", g.word()))...)
	}
	var items []string
	for range 1 + g.r.IntN(3) {
		items = append(items, object(g.maybe(2, func() string { return `"type":"message"` }),
			field("role", g.pick(`"user"`, `"user"`, `"user"`, `"system"`)), field("content", g.content("input_text", false))))
		items = append(items, g.outputs()...)
	}
	return g.body(append(fields, field("input", array(items...)))...)
}

// outputs returns the items of an assistant's turn.
func (g *generator) outputs() []string {
	var items []string
	if g.one(4) {
		items = append(items, object(`"type":"reasoning"`, `"summary":[]`, field("content", array(object(`"type":"reasoning_text"`, field("text", g.string()))))))
	}
	if g.one(3) {
		items = append(items, object(`"role":"assistant"`, field("content", g.string())))
	}
	if g.one(4) {
		items = append(items, object(`"type":"message"`, `"role":"assistant"`, field("content", array(object(`"type":"output_text"`, field("text", g.string()))))))
	}
	if g.one(2) {
		g.calls++
		id := fmt.Sprintf(`"call_%d"`, g.calls)
		items = append(items,
			object(`"type":"function_call"`, field("call_id", id), field("name", g.quote(g.pick(toolNames...))), field("arguments", g.quote(g.arguments()))),
			object(`"type":"function_call_output"`, field("call_id", id), field("output", g.pick(g.string(), g.content("input_text", false)))))
	}
	return items
}

func (g *generator) messages() string {
	fields := append(g.knobs(), `"max_tokens":4`, field("system", g.maybe(2, func() string { return g.content("text", true) })),
		field("chat_template_kwargs", g.maybe(6, g.kwargs)), field("stop_sequences", g.maybe(8, func() string { return `["x"]` })))
	if g.one(2) {
		fields = append(fields, field("tools", g.tools(openai.Messages)), field("tool_choice", g.pick("", `{"type":"auto"}`, `{"type":"any"}`,
			`{"type":"none"}`, `{"type":"tool","name":"search"}`)))
	}
	if g.one(6) {
		fields = append(fields, field("thinking", g.pick(`{"type":"disabled"}`, `{"type":"adaptive"}`)))
	}
	if g.one(8) {
		fields = append(fields, field("output_config", g.pick(`{"effort":"low"}`, `{"effort":"max"}`, `{}`)))
	}
	var list []string
	for range 1 + g.r.IntN(3) {
		list = append(list, object(`"role":"user"`, field("content", g.content("text", false))))
		if g.one(2) {
			list = append(list, g.blocks()...)
		}
	}
	return g.body(append(fields, field("messages", array(list...)))...)
}

// blocks returns an assistant's message and the results of its calls.
func (g *generator) blocks() []string {
	if g.one(3) {
		return []string{object(`"role":"assistant"`, field("content", g.content("text", false)))}
	}
	parts := []string{g.maybe(3, func() string { return object(`"type":"thinking"`, field("thinking", g.string()), `"signature":"s"`) }),
		g.maybe(2, func() string { return object(`"type":"text"`, field("text", g.string())) })}
	var results []string
	for range 1 + g.r.IntN(2) {
		g.calls++
		id := fmt.Sprintf(`"toolu_%d"`, g.calls)
		parts = append(parts, object(`"type":"tool_use"`, field("id", id), field("name", g.quote(g.pick(toolNames...))), field("input", g.dict(2))))
		results = append(results, object(`"type":"tool_result"`, field("tool_use_id", id), field("content", g.maybe(1, func() string { return g.content("text", false) })),
			g.maybe(8, func() string { return `"is_error":true` })))
	}
	results = append(results, g.maybe(2, func() string { return object(`"type":"text"`, field("text", g.string())) }))
	return []string{object(`"role":"assistant"`, field("content", array(parts...))), object(`"role":"user"`, field("content", array(results...)))}
}

func (g *generator) completions() string {
	prompt := ""
	switch g.r.IntN(5) {
	case 0:
		prompt = array(g.word(), g.word())
	case 1:
		prompt = "[" + g.ids() + "]"
	case 2:
		prompt = "[[" + g.ids() + "],[" + g.ids() + "]]"
	default:
		prompt = g.word()
	}
	return g.body(append(g.knobs(), `"max_tokens":4`, field("prompt", prompt),
		field("add_special_tokens", g.maybe(4, func() string { return g.pick("true", "false") })))...)
}

func (g *generator) ids() string {
	ids := make([]string, 1+g.r.IntN(40))
	for i := range ids {
		ids[i] = fmt.Sprint(g.r.IntN(150000))
	}
	return strings.Join(ids, ",")
}
