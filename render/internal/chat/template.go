package chat

import (
	"regexp"
	"strings"

	"warmroute/render/internal/jinja"
)

// template is a compiled chat template with properties of its source.
type template struct {
	*jinja.Template
	source    string
	loops     [jinja.Detection33 + 1]bool // the template loops over content, by each release's rule
	developer bool                        // the template handles the developer role
	thinking  bool                        // the template may read a message's thinking
	variables map[string]bool             // the names that the template looks up
}

// readsThinking matches a template that reads message.thinking, which only some versions
// of transformers set. printsThinking finds a template that prints whole messages.
var readsThinking = regexp.MustCompile(`\.thinking\b|['"]thinking['"]`)

// compile returns nil for an empty source.
func compile(source string, o jinja.Options) (*template, error) {
	if source == "" {
		return nil, nil
	}
	t, err := jinja.Compile(source, o)
	if err != nil {
		return nil, err
	}
	variables := map[string]bool{}
	for _, name := range t.Undeclared() {
		variables[name] = true
	}
	return &template{
		Template: t, source: source, variables: variables,
		loops:     [...]bool{t.OpenAIContent(jinja.Detection21), t.OpenAIContent(jinja.Detection32), t.OpenAIContent(jinja.Detection33)},
		developer: strings.Contains(source, `"developer"`) || strings.Contains(source, `'developer'`),
		thinking:  readsThinking.MatchString(source),
	}, nil
}

func (r *Renderer) template(tools bool) *template {
	if tools {
		return r.tooled
	}
	return r.plain
}

// openaiFormat reports whether contents are lists, for requests with or without tools.
func (r *Renderer) openaiFormat(tools bool, d dialect) bool {
	switch t := r.template(tools); {
	case r.o.ContentFormat != FormatAuto:
		return r.o.ContentFormat == FormatOpenAI
	default:
		return t != nil && t.loops[d.detection]
	}
}
