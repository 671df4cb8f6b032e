package render_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"warmroute/render"
	"warmroute/render/work"
)

// folder writes a model of single bytes, so that the example needs no download.
func folder() (string, error) {
	dir, err := os.MkdirTemp("", "model")
	if err != nil {
		return "", err
	}
	for name, text := range map[string]string{
		"config.json":           `{"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}`,
		"tokenizer_config.json": `{"chat_template": "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}"}`,
		"tokenizer.json": `{"model": {"type": "BPE", "vocab": {"u": 0, ":": 1, "h": 2, "i": 3, "Ċ": 4}, "merges": []},
			"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

func Example() {
	dir, err := folder()
	defer os.RemoveAll(dir)
	if err != nil {
		fmt.Println(err)
		return
	}
	model, err := render.Open(context.Background(), dir, render.Flags{})
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := model.Server(context.Background(), "0.32.0", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	prompts, err := server.Tokenize("/v1/chat/completions", []byte(`{"model": "m", "messages": [{"role": "user", "content": "hi"}]}`))
	fmt.Println(prompts, err)

	_, err = server.Tokenize("/v1/chat/completions", []byte(`{"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`))
	var refusal *render.Refusal
	fmt.Println(errors.As(err, &refusal), err)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	budget := work.New(ctx, work.Limits{Steps: 1, StepsPerByte: 1}, 0)
	_, err = server.TokenizeInto(budget, new([]uint32), "/v1/completions", []byte(`{"model": "m", "prompt": "hi"}`))
	fmt.Println(errors.Is(err, work.ErrSteps))
	// Output:
	// [[0 1 2 3 4]] <nil>
	// true not computed in this process: multimodal
	// true
}
