package chat

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"warmroute/render/internal/pyvalue"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// request checks the request and merges messages of one role, as mistral-common does
// before it writes.
func (c *mistral) request(p *prompt) (*mistralRequest, error) {
	if len(p.raw) == 0 { // items and blocks that are empty
		return nil, refuse(UnknownShape)
	}
	last, _ := str(p.raw[len(p.raw)-1], "role")
	switch {
	case p.generation && p.continues:
		return nil, objection("add_generation_prompt and continue_final_message are both set")
	case p.generation && last == "assistant":
		return nil, objection("add_generation_prompt is set and the last message is the assistant's")
	case p.continues && last != "assistant":
		return nil, objection("continue_final_message is set and the last message is not the assistant's")
	}
	messages, err := mistralMessages(p.work, p.raw)
	if err != nil {
		return nil, err
	}
	if p.continues {
		p.features |= openai.FeatureContinue
		messages[len(messages)-1].prefix = true
	}
	check := mistralCheck{version: c.m.Version, work: p.work}
	if err := check.messages(messages); err != nil {
		return nil, err
	}
	r := &mistralRequest{work: p.work}
	if p.tools != nil {
		p.features |= openai.FeatureTools
		if r.tools, err = check.tools(p.tools); err != nil {
			return nil, err
		}
	}
	if err := c.merge(r, messages); err != nil {
		return nil, err
	}
	r.settings, err = c.settings(p.effort)
	return r, err
}

// settings returns the model settings of version 15, "" if there are none.
func (c *mistral) settings(effort string) (string, error) {
	switch {
	case c.m.Version < 15:
		return "", nil
	case effort != "" && !slices.Contains(efforts, effort):
		return "", objection("the reasoning effort is none that there is")
	case !c.m.Settings:
		return "", objection("the model's tokenizer has no model settings")
	case c.m.Efforts == nil:
		return "", nil
	case effort == "":
		effort = c.m.Effort
	case !slices.Contains(c.m.Efforts, effort):
		return "", objection("the reasoning effort is not one the model takes")
	}
	return `{"reasoning_effort": "` + effort + `"}`, nil
}

// merge does the work of mistral-common's normalizer: it merges neighbours of one role,
// but no tool results and no system messages.
func (c *mistral) merge(r *mistralRequest, messages []mistralMessage) error {
	early := c.m.Version < 7
	between, within := "\n\n", "\n\n"
	if c.m.Version >= 15 {
		within = ""
	}
	if early {
		var texts []string
		for _, m := range messages {
			if m.role == "system" && !m.content.empty() {
				texts = append(texts, joinContents([]mistralMessage{m}, between, within).text)
			}
		}
		r.system, r.hasSys = strings.Join(texts, between), len(texts) > 0
	}
	size := 0
	for _, m := range messages {
		size += 2*len(m.content.text) + messageBytes
		for _, chunk := range m.content.chunks {
			size += 2 * len(chunk.text)
		}
	}
	r.work.Make(size) // at most two copies of the texts
	r.work.Step(2 * messageSteps * len(messages))
	r.messages = make([]mistralMessage, 0, len(messages)+1)
	var ids []string // of the calls that await results
	for start, end := 0, 0; start < len(messages); start = end {
		for end = start; end < len(messages) && messages[end].role == messages[start].role; end++ {
		}
		group := messages[start:end]
		switch group[0].role {
		case "user":
			r.messages = append(r.messages, mistralMessage{role: "user", content: joinContents(group, between, within)})
		case "assistant":
			m := mistralMessage{role: "assistant", content: joinContents(group, between, within)}
			for _, part := range group {
				m.calls = append(m.calls, part.calls...)
				m.prefix = m.prefix || part.prefix
			}
			for _, call := range m.calls {
				ids = append(ids, call.id)
			}
			r.messages = append(r.messages, m)
		case "tool":
			results, err := c.results(r.work, group, ids, between, within)
			if err != nil {
				return err
			}
			r.messages = append(r.messages, results...)
			ids = ids[:0]
		case "system":
			for _, m := range group {
				if !early {
					r.messages = append(r.messages, mistralMessage{role: "system", content: joinContents([]mistralMessage{m}, between, within)})
				}
			}
		}
	}
	if len(r.messages) == 0 || early && r.messages[0].role != "user" {
		r.messages = slices.Insert(r.messages, 0, mistralMessage{role: "user"})
	}
	return nil
}

// results returns the tool results of one turn, from version 11 on in the order of their
// calls.
func (c *mistral) results(w *work.Budget, group []mistralMessage, ids []string, between, within string) ([]mistralMessage, error) {
	out := make([]mistralMessage, 0, len(group))
	for _, m := range group {
		content := joinContents([]mistralMessage{m}, between, within)
		if c.m.Version < 7 {
			var err error
			if content.text, err = jsonText(w, content.text); err != nil {
				return nil, err
			}
		}
		out = append(out, mistralMessage{role: "tool", content: content, id: m.id, name: m.name, named: m.named})
	}
	if c.m.Version < 11 {
		return out, nil
	}
	byCall, byResult := map[string]int{}, map[string]int{}
	for i, id := range ids {
		byCall[id] = i
	}
	for i, m := range out {
		byResult[m.id] = i
	}
	order := func(m mistralMessage) int {
		if at, ok := byCall[m.id]; ok {
			return at
		}
		return len(ids)
	}
	slices.SortStableFunc(out, func(a, b mistralMessage) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(byResult[a.id], byResult[b.id]))
	})
	return out, nil
}

// jsonText returns the text of a tool's result as versions up to 3 print it: JSON that is
// read and written again, or a JSON string if the text is no JSON.
func jsonText(w *work.Budget, text string) (string, error) {
	if text == "" {
		return "{}", nil
	}
	w.Make(len(text))
	v, err := pyvalue.ParseWithin(w, []byte(text))
	switch {
	case errors.Is(err, pyvalue.ErrSyntax):
		return dumpUnicode(w, text)
	case errors.Is(err, pyvalue.ErrDuplicateKey) || err != nil:
		return "", refuse(UnknownShape)
	}
	return dumpUnicode(w, v)
}
