package chat

import (
	"strings"

	"warmroute/render/internal/jinja"
	"warmroute/render/internal/pyvalue"
)

// continueTag marks the end of the final message's text. The space at the tag's end
// shows whether the template trims.
const continueTag = "CONTINUE_FINAL_MESSAGE_TAG "

// continued renders a conversation whose last message the answer continues, as
// transformers' render_jinja_template does: it tags the message's last text, renders, and
// cuts the text at the tag.
func (r *Renderer) continued(dst []byte, p *prompt, t *template, vars *pyvalue.Dict, env jinja.Env) ([]byte, error) {
	if !strings.Contains(t.source, "content") {
		return nil, refuse(Rejected)
	}
	end := len(p.messages.Items) - 1
	last := p.messages.Items[end].(*pyvalue.Dict).Copy()
	p.messages.Items[end] = last
	final, ok := tagContent(last)
	if !ok {
		return nil, refuse(Rejected)
	}
	base := len(dst)
	out, err := t.Render(dst, vars, env)
	if err != nil {
		return nil, templateError(err)
	}
	p.work.Make(len(out) - base)
	p.work.Step((len(out) - base) / 2) // a search backwards
	text := string(out[base:])
	tag := strings.TrimRight(continueTag, " ")
	at := strings.LastIndex(text, tag)
	if at < 0 || !strings.Contains(text, pyvalue.Strip(p.work, final)) {
		return nil, refuse(Rejected)
	}
	if strings.HasPrefix(text[at:], continueTag) {
		return out[:base+at], nil
	}
	return out[:base+len(pyvalue.RStrip(p.work, text[:at]))], nil
}

// tagContent appends the tag to the last text of a message, and returns the text before
// that.
func tagContent(m *pyvalue.Dict) (string, bool) {
	switch v, _ := m.GetString("content"); v := v.(type) {
	case string:
		m.Set("content", v+continueTag)
		return v, true
	case *pyvalue.List:
		for i := len(v.Items) - 1; i >= 0; i-- {
			if block, ok := v.Items[i].(*pyvalue.Dict); ok {
				if text, ok := block.GetString("text"); ok {
					block.Set("text", text.(string)+continueTag)
					return text.(string), true
				}
			}
		}
	}
	return "", false
}
