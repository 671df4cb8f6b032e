package chat

import (
	"errors"
	"slices"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// conversation collects the messages that a template reads.
// The least cost of reading a message, and of reading a part or a field of it.
const (
	messageSteps, messageBytes = 32, 320
	fieldSteps, fieldBytes     = 8, 128
)

type conversation struct {
	work      *work.Budget
	d         dialect
	coded     bool // vLLM writes the prompt in code
	openai    bool // content format: list of parts, else string
	validated bool // messages pass vLLM's chat validation (not on /v1/responses)
	features  openai.Features
	reasoning bool // a message carries reasoning
	nulls     bool // a message has a null field
	developer bool
	messages  *pyvalue.List
	at        *pyvalue.Dict   // the message that add reads, as the client sent it
	keepRaw   bool            // addAll fills raw
	raw       []*pyvalue.Dict // the messages as the client sent them
	slab      pyvalue.Slab    // of messages and parts
}

func (c *conversation) addAll(messages *pyvalue.List) error {
	c.messages.Items = slices.Grow(c.messages.Items, len(messages.Items))
	if c.keepRaw {
		c.raw = slices.Grow(c.raw, len(messages.Items))
	}
	for _, m := range messages.Items {
		d, ok := m.(*pyvalue.Dict)
		if !ok {
			return refuse(Rejected)
		}
		if c.keepRaw {
			c.raw = append(c.raw, original(d))
		}
		if err := c.add(d); err != nil {
			return err
		}
	}
	return nil
}

// original returns m, or a copy if the writer of a prompt may change it.
func original(m *pyvalue.Dict) *pyvalue.Dict {
	if bare(m) {
		return m
	}
	return m.Copy()
}

// add normalises one message, as _parse_chat_message_content and _postprocess_messages of
// vLLM's chat_utils do: it drops unknown fields. It does not change m.
func (c *conversation) add(m *pyvalue.Dict) error {
	role, ok := m.GetString("role")
	name, isText := role.(string)
	if !ok || !isText {
		return refuse(Rejected)
	}
	c.work.Step(messageSteps)
	c.work.Memory(messageBytes)
	c.at = m
	content, present := m.GetString("content")
	value, err := c.content(name, content, present)
	if err != nil {
		return err
	}
	if bare(m) && name != "tool" && name != "developer" {
		if value != content {
			m = c.slab.Dict(2)
			m.Set("role", role)
			m.Set("content", value)
		}
		c.messages.Items = append(c.messages.Items, m)
		return nil
	}
	out := dict("role", role, "content", value)
	switch name {
	case "assistant":
		err = c.assistant(out, m)
	case "tool":
		err = c.tool(out, m)
	}
	if name != "assistant" && has(m, "tool_calls") && (c.coded || !lazyContent[name] && name != "tool") {
		err = refuse(UnknownShape) // vLLM validates them
	}
	if err != nil {
		return err
	}
	if err := c.named(out, m); err != nil {
		return err
	}
	if name == "developer" {
		c.features |= openai.FeatureDeveloper
		c.developer = true
		if has(m, "tools") {
			return refuse(UnknownShape) // a library decides the order of their keys
		}
		out.Set("tools", nil)
		c.nulls = true
	}
	c.messages.Items = append(c.messages.Items, out)
	return nil
}

// bare reports whether m has a role and a content alone, in this order, like most messages.
func bare(m *pyvalue.Dict) bool {
	if m.Len() != 2 {
		return false
	}
	key, _ := m.At(0)
	return key == "role" && has(m, "content")
}

func (c *conversation) named(out, m *pyvalue.Dict) error {
	if v, ok := m.GetString("name"); ok {
		if _, isText := v.(string); !isText {
			return refuse(Rejected)
		}
		out.Set("name", v)
	}
	if v, ok := m.GetString("task"); ok {
		if _, isText := v.(string); isText {
			out.Set("task", v)
		}
	}
	return nil
}

func (c *conversation) assistant(out, m *pyvalue.Dict) error {
	if v, _ := m.GetString("tool_calls"); v != nil {
		list, ok := v.(*pyvalue.List)
		if !ok {
			return refuse(Rejected)
		}
		if len(list.Items) > 0 {
			c.features |= openai.FeatureToolCalls
			calls, err := c.toolCalls(list)
			if err != nil {
				return err
			}
			out.Set("tool_calls", calls)
		}
	}
	v, _ := m.GetString("reasoning")
	if c.d.renameReasoning && v == nil && c.validated {
		v, _ = m.GetString("reasoning_content")
	}
	if v == nil {
		return nil
	}
	if _, ok := v.(string); !ok {
		return refuse(UnknownShape)
	}
	c.features |= openai.FeatureReasoning
	c.reasoning = true
	out.Set("reasoning", v)
	out.Set("reasoning_content", v)
	return nil
}

func (c *conversation) tool(out, m *pyvalue.Dict) error {
	if id, ok := m.GetString("tool_call_id"); ok {
		if _, isText := id.(string); !isText && id != nil {
			return refuse(UnknownShape)
		}
		out.Set("tool_call_id", id)
		c.nulls = c.nulls || id == nil
	}
	// A content of texts alone becomes a string in either format; empty texts count.
	content, _ := out.GetString("content")
	list, ok := content.(*pyvalue.List)
	if !ok {
		return nil
	}
	c.work.Make(16 * len(list.Items))
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		c.work.Step(1)
		p := item.(*pyvalue.Dict)
		if kind, _ := p.GetString("type"); kind != "text" {
			return nil
		}
		text, _ := p.GetString("text")
		texts = append(texts, text.(string))
	}
	out.Set("content", join(c.work, texts, "\n"))
	return nil
}

// toolCalls rebuilds an assistant's calls with their arguments as mappings. The order of
// keys is that of the TypedDicts of vLLM's validation; on /v1/responses it is the order in
// which vLLM writes them.
func (c *conversation) toolCalls(list *pyvalue.List) (*pyvalue.List, error) {
	out := pyvalue.NewList()
	for _, item := range list.Items {
		c.work.Step(messageSteps)
		c.work.Memory(messageBytes)
		call, ok := item.(*pyvalue.Dict)
		if !ok {
			return nil, refuse(Rejected)
		}
		id, hasID := call.GetString("id")
		kind, _ := call.GetString("type")
		fn, _ := call.GetString("function")
		function, ok := fn.(*pyvalue.Dict)
		if _, isText := id.(string); !hasID || !isText || kind != "function" || !ok {
			return nil, refuse(Rejected)
		}
		body, err := c.function(function)
		if err != nil {
			return nil, err
		}
		d := dict("id", id, "function", body, "type", kind)
		rest(d, call)
		out.Items = append(out.Items, d)
	}
	return out, nil
}

func (c *conversation) function(f *pyvalue.Dict) (*pyvalue.Dict, error) {
	name, _ := f.GetString("name")
	text, _ := f.GetString("arguments")
	arguments, ok := text.(string)
	if _, isText := name.(string); !isText || !ok {
		return nil, refuse(Rejected)
	}
	parsed, err := c.arguments(arguments)
	if err != nil {
		return nil, err
	}
	if !c.validated {
		return dict("name", name, "arguments", parsed), nil
	}
	d := dict("arguments", parsed, "name", name)
	rest(d, f)
	return d, nil
}

// join is strings.Join that charges b.
func join(b *work.Budget, texts []string, sep string) string {
	if len(texts) == 1 {
		return texts[0]
	}
	size := 0
	for _, text := range texts {
		size += len(text) + len(sep)
	}
	b.Make(size)
	return strings.Join(texts, sep)
}

// rest copies the keys of from that d lacks, in their order.
func rest(d, from *pyvalue.Dict) {
	for k, v := range from.All() {
		if _, ok := d.Get(k); !ok {
			d.Set(k, v)
		}
	}
}

// arguments reads the JSON text of a call's arguments.
func (c *conversation) arguments(text string) (any, error) {
	if text == "" {
		return pyvalue.NewDict(), nil
	}
	c.work.Make(len(text))
	v, err := pyvalue.ParseLast(c.work, []byte(text))
	switch {
	case errors.Is(err, pyvalue.ErrSyntax) && c.d.lenientArguments:
		return pyvalue.NewDict(), nil
	case errors.Is(err, pyvalue.ErrSyntax):
		return nil, refuse(Rejected)
	case err != nil:
		return nil, refuse(UnknownShape)
	}
	if _, ok := v.(*pyvalue.Dict); !ok && c.d.lenientArguments {
		return pyvalue.NewDict(), nil
	}
	return v, nil
}

// developersToSystem merges developer messages into one leading system message, as
// _convert_developer_to_system and _consolidate_system_messages do (0.32).
func (c *conversation) developersToSystem() {
	var texts []string
	var others []any
	merge := false
	for i, item := range c.messages.Items {
		c.work.Step(messageSteps)
		m := item.(*pyvalue.Dict)
		if role, _ := m.GetString("role"); role == "developer" {
			m.Set("role", "system")
			m.Delete("tools")
		}
		if role, _ := m.GetString("role"); role != "system" {
			others = append(others, m)
			continue
		}
		merge = merge || i > 0 || len(texts) > 0
		if text := systemText(m); text != "" {
			texts = append(texts, text)
		}
	}
	if !merge {
		return
	}
	first := dict("role", "system", "content", join(c.work, texts, "\n\n"))
	c.messages.Items = append([]any{first}, others...)
}

func systemText(m *pyvalue.Dict) string {
	v, _ := m.GetString("content")
	list, ok := v.(*pyvalue.List)
	if !ok {
		text, _ := v.(string)
		return text
	}
	texts := make([]string, 0, len(list.Items))
	for _, item := range list.Items {
		if text, ok := item.(*pyvalue.Dict).GetString("text"); ok {
			texts = append(texts, text.(string))
		}
	}
	return strings.Join(texts, "\n")
}
