package chat

import (
	"fmt"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/work"
)

// newDeepSeekV32 returns a writer that writes as deepseek_v32_encoding does.
func newDeepSeekV32(r *Renderer) coder {
	d := newDeepSeek(r, FormatString)
	d.encode = encodeV32
	return d
}

var tagsV32 = dsTags{calls: "function_calls", invoke: "invoke", parameter: "parameter"}

// toolsV32 is the text around the tools: before and after their JSON.
var toolsV32 = [2]string{strings.ReplaceAll(`## Tools
You have access to a set of tools you can use to answer the user's question.
You can invoke functions by writing a "<@function_calls>" block like the following as part of your reply to the user:
<@function_calls>
<@invoke name="$FUNCTION_NAME">
<@parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</@parameter>
...
</@invoke>
<@invoke name="$FUNCTION_NAME2">
...
</@invoke>
</@function_calls>
String and scalar parameters should be specified as is without any escaping or quotes, while lists and objects should use JSON format. The "string" attribute should be set to "true" for string type parameters and "false" for other types (numbers, booleans, arrays, objects).
If the thinking_mode is enabled, then after function results you should strongly consider outputting a thinking block. Here is an example:
<@function_calls>
...
</@function_calls>
<function_results>
...
</function_results>
<think>...thinking about results</think>
Here are the functions available in JSONSchema format:
<functions>
`, "@", dsmlToken), "\n</functions>\n"}

// v32 writes one prompt.
type v32 struct {
	dst      []byte
	messages []*pyvalue.Dict
	thinking bool
	lastUser int // of the last user or developer message, -1: none
	before   int // of the last message of another role than tool so far, -1: none
	work     *work.Budget
}

func encodeV32(dst []byte, p *prompt, vars *pyvalue.Dict) ([]byte, error) {
	v := &v32{dst: append(dst, dsBegin...), thinking: dsThinks(vars, false), lastUser: -1, before: -1, work: p.work}
	all := make([]*pyvalue.Dict, 0, len(p.messages.Items)+1)
	if p.tools != nil && len(p.tools.Items) > 0 {
		all = append(all, dict("role", "system", "tools", p.tools))
	}
	for _, m := range p.messages.Items {
		all = append(all, m.(*pyvalue.Dict))
	}
	if len(all) == 0 {
		return nil, refuse(UnknownShape)
	}
	v.messages = all
	if v.thinking && text(all[len(all)-1], "role") == "user" {
		v.messages = dropThinking(all, dsLastUser(all, false), "reasoning")
	}
	if len(v.messages) != len(all) {
		return nil, objection(fmt.Sprintf("Index %d out of range for messages list of length %d", len(v.messages), len(v.messages)))
	}
	v.lastUser = dsLastUser(v.messages, false)
	for i, m := range v.messages {
		if err := v.message(i, m); err != nil {
			return nil, err
		}
	}
	return v.dst, nil
}

func (v *v32) message(i int, m *pyvalue.Dict) error {
	v.work.Step(2 * messageSteps)
	content, role := text(m, "content"), text(m, "role")
	if role != "tool" {
		v.before = i
	}
	switch role {
	case "system":
		v.add(content)
		if tools := list(m, "tools"); tools != nil {
			return v.tools(tools)
		}
	case "developer":
		if content == "" {
			return objection("a developer message is empty")
		}
		v.add(dsUser, "\n\n# The user's message is: ", content, dsAssistant)
		v.think(i == v.lastUser)
	case "user":
		v.add(dsUser, content, dsAssistant)
		v.think(i == v.lastUser)
	case "tool":
		return v.result(i, content)
	case "assistant":
		return v.assistant(i, m, content)
	default:
		return objection("a message's role is unknown")
	}
	return nil
}

func (v *v32) add(texts ...string) {
	for _, t := range texts {
		v.work.Step(1 + len(t)/32)
		before := cap(v.dst)
		v.dst = append(v.dst, t...)
		work.Grown(v.work, before, v.dst)
	}
}

// think writes the token that opens the model's thoughts, or the one that closes them.
func (v *v32) think(open bool) {
	if open && v.thinking {
		v.add(dsThink)
	} else {
		v.add(dsThought)
	}
}

func (v *v32) tools(tools *pyvalue.List) (err error) {
	v.add("\n\n", toolsV32[0])
	if v.dst, err = dsTools(v.work, v.dst, tools); err == nil {
		v.add(toolsV32[1])
	}
	return err
}

// result writes a tool's result in the block of its assistant's calls.
func (v *v32) result(i int, content string) error {
	before := v.before
	// Python counts an index of -1 from the end.
	assistant := v.messages[(before+len(v.messages))%len(v.messages)]
	if i > 0 && (before < 0 || text(assistant, "role") != "assistant") {
		return objection("a tool's result follows no assistant message")
	}
	order := i - before
	calls := list(assistant, "tool_calls")
	if calls == nil || len(calls.Items) < order {
		return objection("No tool calls but found tool output")
	}
	if order == 1 {
		v.add("\n\n<function_results>")
	}
	v.add("\n<result>", content, "</result>")
	if order == len(calls.Items) {
		v.add("\n</function_results>\n\n")
		v.think(i >= v.lastUser)
	}
	return nil
}

func (v *v32) assistant(i int, m *pyvalue.Dict, content string) (err error) {
	calls := list(m, "tool_calls")
	if v.thinking && i > v.lastUser {
		reasoning := text(m, "reasoning")
		if reasoning == "" && calls == nil {
			return objection("in thinking mode an assistant message after the last user message has neither reasoning nor tool calls")
		}
		v.add(reasoning, dsThought)
	}
	v.add(content)
	if calls != nil {
		if v.dst, err = tagsV32.appendCalls(v.work, v.dst, calls); err != nil {
			return err
		}
	}
	v.add(dsEnd)
	return nil
}

// dsLastUser returns the index of the last user or developer message; with mid, also of a
// system message that is not the first. -1: none.
func dsLastUser(messages []*pyvalue.Dict, mid bool) int {
	for i := len(messages) - 1; i >= 0; i-- {
		switch text(messages[i], "role") {
		case "user", "developer":
			return i
		case "system":
			if mid && i > 0 {
				return i
			}
		}
	}
	return -1
}

// dropThinking removes the thoughts and the developer messages before the last user
// message.
func dropThinking(messages []*pyvalue.Dict, lastUser int, key string) []*pyvalue.Dict {
	out := make([]*pyvalue.Dict, 0, len(messages))
	for i, m := range messages {
		switch role := text(m, "role"); {
		case i >= lastUser, role == "user", role == "system", role == "tool", role == "latest_reminder", role == "direct_search_results":
			out = append(out, m)
		case role == "assistant":
			out = append(out, without(m, key))
		}
	}
	return out
}
