package chat

import (
	"slices"
	"strconv"
	"strings"

	"warmroute/render/internal/pyvalue"
)

// newDeepSeekV41 returns a writer that writes as deepseek_v41_encoding does.
func newDeepSeekV41(r *Renderer) coder {
	d := newDeepSeek(r, FormatOpenAI)
	r.keepRaw = true
	newer := r.from33()
	d.fim, d.encode = true, func(dst []byte, p *prompt, vars *pyvalue.Dict) ([]byte, error) { return encodeV41(dst, p, vars, newer) }
	return d
}

func encodeV41(dst []byte, p *prompt, vars *pyvalue.Dict, newer bool) ([]byte, error) {
	v := &v4{work: p.work, dst: dst, v41: true, newer: newer, thinking: dsThinks(vars, true), tags: tagsV41, toolsText: toolsTextV41}
	effort, _ := vars.GetString("reasoning_effort")
	if effort == "none" {
		v.thinking, effort = false, nil
	}
	budget, ok := effortV41(effort)
	if !ok {
		return nil, objection("DeepSeek V4.1 reasoning_effort must be low, high, xhigh, max, or an integer within [1, 100] in chat_template_kwargs")
	}
	v.effort = "Reasoning Effort: " + strconv.FormatInt(budget, 10) + " (range 1-100, the higher the value, the more thorough the reasoning)\n\n"
	for i, item := range p.messages.Items {
		content, err := contentV41(p.raw[i], p.validated)
		if err != nil {
			return nil, err
		}
		if newer && (holdsImage(content) || holdsImage(text(p.raw[i], "reasoning")) || holdsImage(text(p.raw[i], "reasoning_content"))) {
			return nil, objection("a text contains the image special token")
		}
		task, _ := p.raw[i].GetString("task")
		if err := v.add(item.(*pyvalue.Dict), content, task); err != nil {
			return nil, err
		}
		v.messages[len(v.messages)-1].own(p.raw[i])
	}
	return v.encode(p, vars)
}

// lazilyRead reports whether vLLM's validation makes an iterator of an empty list of parts,
// which the encoder cannot copy. It makes none if the message has a field that vLLM's own
// class has and the OpenAI class of its role lacks.
func lazilyRead(m *pyvalue.Dict, role string) bool {
	for _, key := range []string{"reasoning", "reasoning_content", "task", "tools"} {
		if v, ok := m.GetString(key); ok && (v != nil || key != "reasoning_content") {
			return false
		}
	}
	if _, named := m.GetString("name"); role == "tool" && (named || !has(m, "tool_call_id")) {
		return false
	}
	return list(m, "tool_calls") == nil
}

// holdsImage reports whether a text has the token that stands for an image.
func holdsImage(v any) bool {
	s, _ := v.(string)
	return strings.Contains(s, "<｜deepseek_image｜>")
}

func effortV41(v any) (budget int64, ok bool) {
	switch v := v.(type) {
	case nil:
		return 75, true
	case int64:
		return v, v >= 1 && v <= 100
	case string:
		budget, ok = map[string]int64{"low": 50, "high": 75, "xhigh": 75, "max": 100}[v]
		return budget, ok
	}
	return 0, false
}

// contentV41 returns a message's content as the client sent it, with its parts joined.
func contentV41(m *pyvalue.Dict, validated bool) (any, error) {
	role := text(m, "role")
	if !slices.Contains([]string{"system", "developer", "user", "assistant", "tool"}, role) {
		return nil, objection("a message's role is unknown")
	}
	if has(m, "content_blocks") || has(m, "tools") {
		return nil, refuse(UnknownShape)
	}
	v, _ := m.GetString("content")
	list, ok := v.(*pyvalue.List)
	if !ok {
		return v, nil
	}
	if validated && len(list.Items) == 0 && lazilyRead(m, role) {
		return nil, objection("content is an empty array")
	}
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		part, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(UnknownShape)
		}
		switch kind := text(part, "type"); kind {
		case "text", "input_text", "output_text":
			texts = append(texts, text(part, "text"))
		default:
			return nil, objection("DeepSeek V4.1 supports text and image content only")
		}
	}
	return strings.Join(texts, "\n\n"), nil
}

// own reads the fields of a message that V4.1's encoder obeys.
func (t *v4message) own(m *pyvalue.Dict) {
	switch t.role {
	case "assistant":
		v, _ := m.GetString("wo_eos")
		t.open = pyvalue.Truth(v)
	case "system", "developer":
		if v, _ := m.GetString("response_format"); pyvalue.Truth(v) {
			t.format = v
		}
	}
}
