package render

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"warmroute/render"
)

// Options select the template. Exactly one of Model and Template is set.
type Options struct {
	Model    string    // folder with tokenizer_config.json (and chat_template.jinja)
	Template string    // file
	Now      time.Time // clock of strftime_now; zero: the wall clock
	BOS, EOS *string   // bos_token and eos_token; nil: the model's, else undefined
}

// NowLayout is the form of the -now flag.
const NowLayout = "2006-01-02T15:04:05"

// maxLine bounds a request line. By default a router buffers far smaller bodies.
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
	template *render.Template
	err      error // the template does not compile
	now      func() time.Time
}

func newRenderer(o Options) (*renderer, error) {
	r := &renderer{now: time.Now}
	if !o.Now.IsZero() {
		r.now = func() time.Time { return o.Now }
	}
	source, special, err := source(o)
	if err != nil {
		return nil, err
	}
	for name, token := range map[string]*string{"bos_token": o.BOS, "eos_token": o.EOS} {
		if token != nil {
			special[name] = *token
		}
	}
	// Python compiles at the first request, so every answer has the error.
	r.template, r.err = render.NewTemplate(source, special)
	return r, nil
}

// source finds the template and, in a model's folder, its special tokens.
func source(o Options) (string, map[string]string, error) {
	switch {
	case o.Model != "" && o.Template != "":
		return "", nil, errors.New("give either a model or a template, not both")
	case o.Template != "":
		b, err := os.ReadFile(o.Template)
		if err != nil {
			return "", nil, fmt.Errorf("read the template: %w", err)
		}
		return string(b), map[string]string{}, nil
	case o.Model == "":
		return "", nil, errors.New("a model folder or a template file is needed")
	}
	return render.ReadTemplate(o.Model)
}

// answer renders one request line.
func (r *renderer) answer(line []byte) []byte {
	err := r.err
	var text []byte
	if err == nil {
		text, err = r.template.Append(nil, line, r.now())
	}
	if err != nil {
		return object("error", err.Error())
	}
	return object("text", string(text))
}

// object returns a line of one key and one text.
func object(key, text string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"%s": `, key)
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(text) // a string always encodes; Encode adds a line end
	return append(bytes.TrimSuffix(b.Bytes(), []byte("\n")), "}\n"...)
}
