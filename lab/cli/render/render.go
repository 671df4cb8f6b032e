package render

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"warmroute/render/jinja"
	"warmroute/render/pyvalue"
)

// Options select what to render with. Exactly one of Model and Template is set.
type Options struct {
	Model    string    // folder with tokenizer_config.json (and chat_template.jinja)
	Template string    // file
	Now      time.Time // clock of strftime_now; zero: the wall clock
	BOS, EOS *string   // bos_token and eos_token; nil: the model's, else undefined
}

// NowLayout is the form of the -now flag.
const NowLayout = "2006-01-02T15:04:05"

// maxLine bounds a request line: the largest body a router buffers by default
// is far smaller.
const maxLine = 64 << 20

// Run answers every line of in on out.
func Run(ctx context.Context, in io.Reader, out io.Writer, o Options) error {
	r, err := newRenderer(o)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	w := bufio.NewWriter(out)
	for ctx.Err() == nil && lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if _, err := w.Write(r.answer(line)); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
		if err := w.Flush(); err != nil {
			return fmt.Errorf("write the answer: %w", err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read the requests: %w", err)
	}
	return ctx.Err()
}

type renderer struct {
	template *jinja.Template
	err      error // the template does not compile
	special  *pyvalue.Dict
	env      jinja.Env
}

func newRenderer(o Options) (*renderer, error) {
	r := &renderer{special: pyvalue.NewDict()}
	if !o.Now.IsZero() {
		r.env.Now = func() time.Time { return o.Now }
	}
	src, err := source(o, r.special)
	if err != nil {
		return nil, err
	}
	if o.BOS != nil {
		r.special.Set("bos_token", *o.BOS)
	}
	if o.EOS != nil {
		r.special.Set("eos_token", *o.EOS)
	}
	// Python compiles at the first request, so the error is each answer's.
	r.template, r.err = jinja.Compile(src, jinja.Options{GuardNamespace: true})
	return r, nil
}

// source finds the template and, in a model's folder, its special tokens.
func source(o Options, special *pyvalue.Dict) (string, error) {
	switch {
	case o.Model != "" && o.Template != "":
		return "", errors.New("give either a model or a template, not both")
	case o.Template != "":
		b, err := os.ReadFile(o.Template)
		if err != nil {
			return "", fmt.Errorf("read the template: %w", err)
		}
		return string(b), nil
	case o.Model == "":
		return "", errors.New("a model folder or a template file is needed")
	}
	b, err := os.ReadFile(filepath.Join(o.Model, "tokenizer_config.json"))
	if err != nil {
		return "", fmt.Errorf("read the model's configuration: %w", err)
	}
	v, err := pyvalue.Parse(b)
	if err != nil {
		return "", fmt.Errorf("tokenizer_config.json of %s: %w", o.Model, err)
	}
	config, ok := v.(*pyvalue.Dict)
	if !ok {
		return "", fmt.Errorf("tokenizer_config.json of %s is not an object", o.Model)
	}
	specialTokens(config, special)
	if b, err := os.ReadFile(filepath.Join(o.Model, "chat_template.jinja")); err == nil {
		return string(b), nil
	}
	return configTemplate(o.Model, config)
}

// specialTokens copies the tokens transformers passes to templates.
func specialTokens(config, special *pyvalue.Dict) {
	for _, name := range []string{"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"} {
		v, _ := config.Get(name)
		if d, ok := v.(*pyvalue.Dict); ok {
			v, _ = d.Get("content")
		}
		if s, ok := v.(string); ok {
			special.Set(name, s)
		}
	}
}

// configTemplate is the chat_template of tokenizer_config.json: a text, or a
// list of named ones of which "default" is taken.
func configTemplate(model string, config *pyvalue.Dict) (string, error) {
	v, _ := config.Get("chat_template")
	if l, ok := v.(*pyvalue.List); ok {
		for _, it := range l.Items {
			if d, ok := it.(*pyvalue.Dict); ok {
				if name, _ := d.Get("name"); name == "default" {
					v, _ = d.Get("template")
				}
			}
		}
	}
	if s, ok := v.(string); ok {
		return s, nil
	}
	return "", fmt.Errorf("model %s has no chat template", model)
}

// answer renders one request line.
func (r *renderer) answer(line []byte) []byte {
	text, err := r.render(line)
	var b []byte
	if err != nil {
		b = append(b, `{"error": `...)
		b = pyvalue.AppendJSONString(b, jinja.Detail(err), false)
	} else {
		b = append(b, `{"text": `...)
		b = pyvalue.AppendJSONString(b, string(text), false)
	}
	return append(b, "}\n"...)
}

func (r *renderer) render(line []byte) ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	v, err := pyvalue.Parse(line)
	if err != nil {
		return nil, fmt.Errorf("the request: %w", err)
	}
	request, ok := v.(*pyvalue.Dict)
	if !ok {
		return nil, errors.New("the request is not an object")
	}
	vars, err := r.variables(request)
	if err != nil {
		return nil, err
	}
	return r.template.Render(nil, vars, r.env)
}

// variables are what apply_chat_template passes to the template: the special
// tokens, the request's own names, then chat_template_kwargs over them.
func (r *renderer) variables(request *pyvalue.Dict) (*pyvalue.Dict, error) {
	vars := r.special.Copy()
	messages, ok := request.GetString("messages")
	if _, isList := messages.(*pyvalue.List); !ok || !isList {
		return nil, errors.New("messages is not a list")
	}
	vars.Set("messages", jinja.AliasReasoning(messages))
	for _, name := range []string{"tools", "documents"} {
		v, _ := request.GetString(name)
		vars.Set(name, v)
	}
	generation, ok := request.GetString("add_generation_prompt")
	if !ok {
		generation = false
	}
	vars.Set("add_generation_prompt", generation)
	kwargs, _ := request.GetString("chat_template_kwargs")
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
