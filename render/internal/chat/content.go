package chat

import (
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
)

// billingHeader starts the line that Claude Code puts first in its system text.
// Its value changes with every request, so vLLM drops it.
const billingHeader = "x-anthropic-billing-header"

// partFields are the keys of a content part that vLLM accepts
// (_KNOWN_CONTENT_PART_FIELDS, 0.32); any other is an extra.
var partFields = map[string]bool{
	"audio_embeds": true, "audio_url": true, "closed": true, "data": true, "file": true, "image_embeds": true,
	"image_pil": true, "image_url": true, "input_audio": true, "name": true, breakpoint: true,
	"refusal": true, "text": true, "thinking": true, "type": true, "uuid": true, "video_embeds": true, "video_url": true,
}

// toolReference is the type of a part whose text names a tool.
const toolReference = "tool_reference"

// part is one piece of a message's content.
type part struct {
	text   string
	kind   string        // its type, "" for a bare text
	extras *pyvalue.Dict // keys the template may see besides type and text
}

// content builds a message's content from the request's value: a string in the string
// format, a list of parts in the openai format.
func (c *conversation) content(role string, v any, present bool) (any, error) {
	if _, isText := v.(string); isText && role != "system" {
		return c.text(v), nil
	}
	parts, err := c.parts(role, v, present)
	if err != nil {
		return nil, err
	}
	if role == "system" && c.d.stripBilling {
		parts = stripBilling(parts)
	}
	if c.openai {
		list := pyvalue.NewList()
		for _, p := range parts {
			list.Items = append(list.Items, p.dict())
		}
		return list, nil
	}
	if len(parts) == 1 {
		return parts[0].text, nil
	}
	texts := make([]string, 0, len(parts))
	for _, p := range parts {
		if p.text != "" {
			texts = append(texts, p.text)
		}
	}
	return join(c.work, texts, "\n"), nil
}

// text builds a content of one text.
func (c *conversation) text(v any) any {
	if !c.openai {
		return v
	}
	list, part := c.slab.List(1), c.slab.Dict(2)
	part.Set("type", "text")
	part.Set("text", v)
	list.Items[0] = part
	return list
}

func (p part) dict() *pyvalue.Dict {
	if p.kind == toolReference {
		return dict("type", toolReference, "name", p.text)
	}
	d := dict("type", "text", "text", p.text)
	if p.extras != nil {
		for k, v := range p.extras.All() {
			d.Set(k, v)
		}
	}
	return d
}

func (c *conversation) parts(role string, v any, present bool) ([]part, error) {
	switch v := v.(type) {
	case string:
		return []part{{text: v}}, nil
	case nil:
		if present && c.validated && role != "assistant" && role != "function" {
			return nil, refuse(Rejected)
		}
		return nil, nil
	case *pyvalue.List:
		c.features |= openai.FeatureParts
		parts := make([]part, 0, len(v.Items))
		strings := 0
		for _, item := range v.Items {
			c.work.Step(fieldSteps)
			c.work.Memory(3 * fieldBytes)
			p, err := c.part(item)
			if err != nil {
				return nil, err
			}
			if _, ok := item.(string); ok {
				strings++
			}
			parts = append(parts, p)
		}
		if strings > 0 && strings == len(parts) && (c.coded || lazyContent[role]) {
			if c.coded || c.at.Len() > 2 {
				return nil, refuse(UnknownShape) // the content depends on the message's other fields
			}
			return nil, refuse(Rejected)
		}
		return parts, nil
	}
	return nil, refuse(Rejected)
}

// lazyContent has the roles in which a content of strings alone passes vLLM's validation
// and fails later, at its first use. It does not fail if the message has a field that
// vLLM's own class has and the OpenAI class of its role lacks.
var lazyContent = map[string]bool{"user": true, "assistant": true, "system": true, "developer": true}

// textKeys maps the part types of text to the key of their text. The Responses API's own
// types pass only where vLLM does not validate messages.
var textKeys = map[string]string{"text": "text", "refusal": "refusal", "thinking": "thinking", toolReference: "name",
	"input_text": "text", "output_text": "text"}

func (c *conversation) part(v any) (part, error) {
	d, ok := v.(*pyvalue.Dict)
	if !ok {
		text, ok := v.(string)
		if !ok {
			return part{}, refuse(Rejected)
		}
		return part{text: text}, nil
	}
	kind, ok := str(d, "type")
	if !ok || has(d, "uuid") {
		return part{}, refuse(Rejected)
	}
	key := textKeys[kind]
	if key == "" {
		return part{}, refuse(Multimodal)
	}
	if c.validated && (kind == "input_text" || kind == "output_text") {
		return part{}, refuse(UnknownShape)
	}
	text, ok := d.GetString(key)
	if text, isText := text.(string); ok && isText {
		extras, err := c.extras(d, key)
		return part{text: text, kind: kind, extras: extras}, err
	}
	return part{}, refuse(Rejected)
}

// breakpoint is the key by which a client marks the end of what OpenAI shall cache. Prompts
// have no trace of it.
const breakpoint = "prompt_cache_breakpoint"

// explicit reports whether vLLM's validation passes the part's breakpoint, if it has one.
func explicit(d *pyvalue.Dict) bool {
	v, ok := d.GetString(breakpoint)
	mark, isDict := v.(*pyvalue.Dict)
	return !ok || isDict && text(mark, "mode") == "explicit"
}

// extras returns the keys of a part besides its type and own.
func (c *conversation) extras(d *pyvalue.Dict, own string) (*pyvalue.Dict, error) {
	var extras *pyvalue.Dict
	for k, v := range d.All() {
		key, _ := k.(string)
		switch {
		case key == "type" || key == own:
		case key == breakpoint:
			if !explicit(d) {
				return nil, refuse(UnknownShape)
			}
		case key == "closed":
			if _, ok := v.(bool); !ok {
				return nil, refuse(UnknownShape)
			}
		case partFields[key]:
			return nil, refuse(UnknownShape)
		case c.d.keepPartExtras && c.openai:
			if extras == nil {
				extras = pyvalue.NewDict()
			}
			extras.Set(k, v)
		}
	}
	return extras, nil
}

// stripBilling drops the billing line of texts, and a text of the billing line alone. The
// other types keep it, those of the Responses API among them.
func stripBilling(parts []part) []part {
	out := parts[:0]
	for _, p := range parts {
		if (p.kind == "" || p.kind == "text") && strings.HasPrefix(p.text, billingHeader) {
			_, rest, _ := strings.Cut(p.text, "\n")
			if rest == "" {
				continue
			}
			p.text = rest
		}
		out = append(out, p)
	}
	return out
}
