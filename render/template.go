package render

import (
	"errors"
	"fmt"
	"time"

	"warmroute/render/internal/jinja"
	"warmroute/render/internal/pyvalue"
	"warmroute/render/internal/tokenizer"
)

// Template is a chat template that renders conversations as transformers'
// apply_chat_template does (5.23, with Jinja2 3.1.6). It lacks the changes that vLLM makes
// to a request before that; a Server makes them. A Template is safe for concurrent use.
type Template struct {
	compiled *jinja.Template
	special  *pyvalue.Dict
}

// ReadTemplate reads the source of a folder's chat template, and the template's special
// tokens by their names ("bos_token"). The folder needs tokenizer_config.json or
// chat_template.jinja alone.
func ReadTemplate(dir string) (source string, special map[string]string, err error) {
	config, err := tokenizer.ReadConfig(dir)
	if err != nil {
		return "", nil, fmt.Errorf("model folder %s: %w", dir, err)
	}
	if source = config.Template(false); source == "" {
		return "", nil, fmt.Errorf("model folder %s has no chat template", dir)
	}
	return source, config.Special, nil
}

// NewTemplate compiles a template. The error has the text of Python's, or names the part of
// Jinja that this package does not render.
func NewTemplate(source string, special map[string]string) (*Template, error) {
	compiled, err := jinja.Compile(source, jinja.Options{GuardNamespace: true})
	if err != nil {
		return nil, errors.New(jinja.Detail(err))
	}
	t := &Template{compiled, pyvalue.NewDict()}
	for name, token := range special {
		t.special.Set(name, token)
	}
	return t, nil
}

// Append appends the text of a conversation; strftime_now prints now. The conversation is
// a JSON object of messages and, optionally, tools, documents, add_generation_prompt and
// chat_template_kwargs. The error has the text of Python's, and unlike a Server's it may
// quote the conversation.
func (t *Template) Append(dst, conversation []byte, now time.Time) ([]byte, error) {
	v, err := pyvalue.Parse(conversation)
	if err != nil {
		return dst, fmt.Errorf("the request: %w", err)
	}
	object, ok := v.(*pyvalue.Dict)
	if !ok {
		return dst, errors.New("the request is not an object")
	}
	vars, err := t.variables(object)
	if err != nil {
		return dst, err
	}
	out, err := t.compiled.Render(dst, vars, jinja.Env{Now: func() time.Time { return now }})
	if err != nil {
		return dst, errors.New(jinja.Detail(err))
	}
	return out, nil
}

// variables returns the variables that apply_chat_template gives a template: the special
// tokens, the conversation's own fields, then chat_template_kwargs over them.
func (t *Template) variables(conversation *pyvalue.Dict) (*pyvalue.Dict, error) {
	vars := t.special.Copy()
	messages, ok := conversation.GetString("messages")
	if _, isList := messages.(*pyvalue.List); !ok || !isList {
		return nil, errors.New("messages is not a list")
	}
	vars.Set("messages", jinja.AliasReasoning(messages))
	for _, name := range []string{"tools", "documents"} {
		v, _ := conversation.GetString(name)
		vars.Set(name, v)
	}
	generation, ok := conversation.GetString("add_generation_prompt")
	if !ok {
		generation = false
	}
	vars.Set("add_generation_prompt", generation)
	kwargs, _ := conversation.GetString("chat_template_kwargs")
	switch kwargs := kwargs.(type) {
	case nil:
	case *pyvalue.Dict:
		for k, v := range kwargs.All() {
			vars.Set(k, v)
		}
	default:
		return nil, errors.New("chat_template_kwargs is not an object")
	}
	return vars, nil
}
