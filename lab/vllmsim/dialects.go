package vllmsim

import "time"

// completionsBase has the common parts of chat and completions: an id, choices, a usage in
// OpenAI's first form, and "[DONE]" at a stream's end.
type completionsBase struct {
	g            *generation
	s            *Sim
	includeUsage bool
}

func (d *completionsBase) body(object string, choices []any, u any) map[string]any {
	b := map[string]any{"id": d.g.id, "object": object, "created": time.Now().Unix(), "model": d.g.model, "choices": choices}
	if u != nil {
		b["usage"] = u
	}
	return b
}

// usage returns the usage: with details on, 0.32 always has prompt_tokens_details, 0.21
// only if some tokens came from the cache.
func (d *completionsBase) usage(u usage, created any) map[string]any {
	out := map[string]any{
		"prompt_tokens": u.prompt, "completion_tokens": u.completion, "total_tokens": u.prompt + u.completion,
		"prompt_tokens_details": nil,
	}
	switch {
	case d.s.o.NoPromptDetails:
	case d.s.o.Version == V032:
		out["prompt_tokens_details"] = map[string]any{"cached_tokens": u.hit, "created_cache_tokens": created, "multimodal_tokens": nil}
		out["completion_tokens_details"] = nil
	case u.hit > 0:
		out["prompt_tokens_details"] = map[string]any{"cached_tokens": u.hit}
	}
	return out
}

func (d *completionsBase) open(*sse) {}

func (d *completionsBase) finish(w *sse, object string, u map[string]any) {
	if d.includeUsage {
		w.send("", d.body(object, []any{}, u))
	}
	w.raw("", []byte("[DONE]"))
}

// finishReason returns "length" at the end: made-up answers never stop by themselves.
func finishReason(last bool) any {
	if last {
		return "length"
	}
	return nil
}

type chatDialect struct{ completionsBase }

const chatChunk = "chat.completion.chunk"

func (d *chatDialect) whole(texts []string, u usage) any {
	var choices []any
	for i, t := range texts {
		choices = append(choices, map[string]any{
			"index": i, "message": map[string]any{"role": "assistant", "content": t, "tool_calls": []any{}},
			"logprobs": nil, "finish_reason": "length", "stop_reason": nil,
		})
	}
	return d.body("chat.completion", choices, d.usage(u, u.created))
}

func (d *chatDialect) first(w *sse, _ usage) {
	for i := range d.g.n {
		w.send("", d.body(chatChunk, []any{map[string]any{
			"index": i, "delta": map[string]any{"role": "assistant", "content": ""}, "logprobs": nil, "finish_reason": nil,
		}}, nil))
	}
}

func (d *chatDialect) delta(w *sse, index int, text string, last bool) {
	w.send("", d.body(chatChunk, []any{map[string]any{
		"index": index, "delta": map[string]any{"content": text}, "logprobs": nil, "finish_reason": finishReason(last),
	}}, nil))
}

func (d *chatDialect) done(w *sse, _ []string, u usage) {
	d.finish(w, chatChunk, d.usage(u, u.created))
}

type completionDialect struct {
	completionsBase
	echo bool
}

// echoed returns the prompt's text in front of a choice, if the request has echo.
func (d *completionDialect) echoed(index int) string {
	if !d.echo {
		return ""
	}
	return decodeAll(d.g.prompts[index/d.g.n].tokens)
}

func (d *completionDialect) whole(texts []string, u usage) any {
	var choices []any
	for i, t := range texts {
		choices = append(choices, map[string]any{
			"index": i, "text": d.echoed(i) + t, "logprobs": nil, "finish_reason": "length", "stop_reason": nil,
		})
	}
	return d.body("text_completion", choices, d.usage(u, nil))
}

func (d *completionDialect) first(w *sse, _ usage) {
	for i := range len(d.g.prompts) * d.g.n {
		if d.echo {
			d.delta(w, i, d.echoed(i), false)
		}
	}
}

func (d *completionDialect) delta(w *sse, index int, text string, last bool) {
	w.send("", d.body("text_completion", []any{map[string]any{
		"index": index, "text": text, "logprobs": nil, "finish_reason": finishReason(last), "stop_reason": nil,
	}}, nil))
}

func (d *completionDialect) done(w *sse, _ []string, u usage) {
	d.finish(w, "text_completion", d.usage(u, nil))
}

// responsesDialect is /v1/responses.
type responsesDialect struct {
	g   *generation
	s   *Sim
	seq int
}

func (d *responsesDialect) response(status string, output []any, u any) map[string]any {
	return map[string]any{
		"id": d.g.id, "object": "response", "created_at": time.Now().Unix(), "model": d.g.model, "status": status,
		"output": output, "usage": u, "parallel_tool_calls": true, "tool_choice": "auto", "tools": []any{},
		"background": false, "max_output_tokens": d.g.maxTokens, "service_tier": "auto", "truncation": "disabled",
		"temperature": 1, "top_p": 1,
	}
}

func (d *responsesDialect) item(status string, content []any) map[string]any {
	return map[string]any{"id": "msg_" + d.g.id, "type": "message", "role": "assistant", "status": status, "content": content}
}

func textPart(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": nil}
}

func (d *responsesDialect) usage(u usage) map[string]any {
	in := map[string]any{"cached_tokens": u.hit, "input_tokens_per_turn": []int{}, "cached_tokens_per_turn": []int{}}
	if d.s.o.Version == V032 {
		in["cache_write_tokens"] = u.created
	}
	return map[string]any{
		"input_tokens": u.prompt, "input_tokens_details": in,
		"output_tokens": u.completion, "total_tokens": u.prompt + u.completion,
		"output_tokens_details": map[string]any{
			"reasoning_tokens": 0, "tool_output_tokens": 0, "output_tokens_per_turn": []int{}, "tool_output_tokens_per_turn": []int{},
		},
	}
}

func (d *responsesDialect) whole(texts []string, u usage) any {
	return d.response("completed", []any{d.item("completed", []any{textPart(texts[0])})}, d.usage(u))
}

func (d *responsesDialect) event(w *sse, kind string, fields map[string]any) {
	fields["type"], fields["sequence_number"] = kind, d.seq
	d.seq++
	w.send(kind, fields)
}

func (d *responsesDialect) open(w *sse) {
	d.event(w, "response.created", map[string]any{"response": d.response("in_progress", []any{}, nil)})
	d.event(w, "response.in_progress", map[string]any{"response": d.response("in_progress", []any{}, nil)})
}

func (d *responsesDialect) first(w *sse, _ usage) {
	d.event(w, "response.output_item.added", map[string]any{"output_index": 0, "item": d.item("in_progress", []any{})})
	d.event(w, "response.content_part.added", map[string]any{"output_index": 0, "content_index": 0, "item_id": "msg_" + d.g.id, "part": textPart("")})
}

func (d *responsesDialect) delta(w *sse, _ int, text string, _ bool) {
	d.event(w, "response.output_text.delta", map[string]any{"output_index": 0, "content_index": 0, "item_id": "msg_" + d.g.id, "delta": text, "logprobs": []any{}})
}

func (d *responsesDialect) done(w *sse, texts []string, u usage) {
	at := func(k string, v any) map[string]any {
		return map[string]any{"output_index": 0, "content_index": 0, "item_id": "msg_" + d.g.id, k: v}
	}
	d.event(w, "response.output_text.done", at("text", texts[0]))
	d.event(w, "response.content_part.done", at("part", textPart(texts[0])))
	d.event(w, "response.output_item.done", map[string]any{"output_index": 0, "item": d.item("completed", []any{textPart(texts[0])})})
	d.event(w, "response.completed", map[string]any{"response": d.whole(texts, u)})
}

// messagesDialect is /v1/messages.
type messagesDialect struct {
	g *generation
	s *Sim
}

// usage returns the usage: 0.32 splits the prompt into the tokens read from the cache, the
// tokens added to it and the rest; 0.21 has the whole prompt alone.
func (d *messagesDialect) usage(u usage) map[string]any {
	if d.s.o.Version != V032 || d.s.o.NoPromptDetails {
		return map[string]any{"input_tokens": u.prompt, "output_tokens": u.completion}
	}
	return map[string]any{
		"input_tokens": u.prompt - u.hit - u.created, "output_tokens": u.completion,
		"cache_creation_input_tokens": u.created, "cache_read_input_tokens": u.hit,
	}
}

func (d *messagesDialect) whole(texts []string, u usage) any {
	return map[string]any{
		"id": d.g.id, "type": "message", "role": "assistant", "model": d.g.model,
		"content":     []any{map[string]any{"type": "text", "text": texts[0]}},
		"stop_reason": "max_tokens", "stop_sequence": nil, "usage": d.usage(u),
	}
}

func (d *messagesDialect) open(*sse) {}

func (d *messagesDialect) first(w *sse, u usage) {
	w.send("message_start", map[string]any{"type": "message_start", "message": map[string]any{
		"id": d.g.id, "type": "message", "role": "assistant", "model": d.g.model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": u.prompt, "output_tokens": 0},
	}})
	w.send("content_block_start", map[string]any{"type": "content_block_start", "index": 0, "content_block": map[string]any{"type": "text", "text": ""}})
}

func (d *messagesDialect) delta(w *sse, _ int, text string, _ bool) {
	w.send("content_block_delta", map[string]any{"type": "content_block_delta", "index": 0, "delta": map[string]any{"type": "text_delta", "text": text}})
}

func (d *messagesDialect) done(w *sse, _ []string, u usage) {
	w.send("content_block_stop", map[string]any{"type": "content_block_stop", "index": 0})
	w.send("message_delta", map[string]any{"type": "message_delta", "delta": map[string]any{"stop_reason": "max_tokens", "stop_sequence": nil}, "usage": d.usage(u)})
	w.send("message_stop", map[string]any{"type": "message_stop"})
}
