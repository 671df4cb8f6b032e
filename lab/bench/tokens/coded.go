package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"warmroute/render"
	"warmroute/render/testkit/oracle"
)

// dialect is a model whose chats code writes instead of a template.
type dialect struct {
	name   string
	folder string // of its files in .cache/models
	files  map[string]string
	config string
	python string // the reference's name, and its file
	file   string
}

var dialects = []dialect{
	{"gpt-oss: openai_harmony", "gptoss", huggingFace, `{"model_type":"gpt_oss"}`, "harmony", ""},
	{"Mistral v3, tekken: mistral-common", "mistral", map[string]string{"tekken_240718.json": "tekken.json"}, `{"model_type":"mistral"}`, "mistral", "tekken_240718.json"},
	{"Mistral v7, SentencePiece: mistral-common", "mistral", map[string]string{"mistral_instruct_tokenizer_241114.model.v7": "tokenizer.model.v7"},
		`{"model_type":"mistral"}`, "mistral", "mistral_instruct_tokenizer_241114.model.v7"},
	{"DeepSeek V3.2: vLLM's encoder, tokenizers", "deepseek_v4", huggingFace, `{"model_type":"deepseek_v32"}`, "deepseek_v32", "tokenizer.json"},
	{"DeepSeek V4: vLLM's encoder, tokenizers", "deepseek_v4", huggingFace, `{"model_type":"deepseek_v4"}`, "deepseek_v4", "tokenizer.json"},
	{"DeepSeek V4.1: vLLM's encoder, tokenizers", "deepseek_v4", huggingFace, `{"model_type":"deepseek_v41"}`, "deepseek_v41", "tokenizer.json"},
}

var huggingFace = map[string]string{"tokenizer.json": "tokenizer.json", "tokenizer_config.json": "tokenizer_config.json"}

// load writes the model's folder in a server's layout, and reads it.
func (d dialect) load() (*render.Server, error) {
	dir, err := os.MkdirTemp("", "bench-tokens")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	for from, name := range d.files {
		if err := os.Symlink(filepath.Join(models, d.folder, from), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(d.config), 0o600); err != nil {
		return nil, err
	}
	m, err := render.Open(context.Background(), dir, render.Flags{StartDate: "2026-03-05"})
	if err != nil {
		return nil, err
	}
	return m.Server(context.Background(), server, nil)
}

// measure compares whole requests, from a body's bytes to ids, with the Python that does
// the same (and the Rust below it). The ids must be equal.
func (d dialect) measure(ref *oracle.Process, text string) error {
	q, err := d.load()
	if err != nil {
		return err
	}
	file := ""
	if d.file != "" {
		file = filepath.Join(models, d.folder, d.file)
	}
	r := &reader{text: text, at: 11}
	pythonCold, pythonWarm, cold, warm, next := math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)
	for range rounds {
		list := r.dialogue(size)
		raw, err := body(list)
		if err != nil {
			return err
		}
		var theirs struct {
			First, Seconds float64
			IDs            []uint32
		}
		if err := ref.Ask(map[string]any{"dialect": d.python, "file": file, "body": string(raw)}, &theirs); err != nil {
			return err
		}
		pythonCold, pythonWarm = min(pythonCold, theirs.First*1e3), min(pythonWarm, theirs.Seconds*1e3)
		start := time.Now()
		ids, err := q.Tokenize(route.String(), raw)
		cold = min(cold, time.Since(start).Seconds()*1e3)
		if err != nil {
			return err
		}
		if !slices.Equal(ids[0], theirs.IDs) {
			return errors.New(d.name + ": the ids differ")
		}
		for range 3 {
			took, _, err := ask(q, raw)
			if err != nil {
				return err
			}
			warm = min(warm, took)
		}
		for range 6 {
			if list, raw, err = r.grown(list); err != nil {
				return err
			}
			took, _, err := ask(q, raw)
			if err != nil {
				return err
			}
			next = min(next, took)
		}
	}
	fmt.Printf("| %s | %.1f | %.2f | %.0f | %.1f | %.3f | %.0f | %.3f | 1/%.0f |\n", d.name, pythonCold, cold, pythonCold/cold,
		pythonWarm, warm, pythonWarm/warm, next, cold/next)
	return nil
}

// coded prints the table of all dialects.
func coded(text string) error {
	ref, err := oracle.StartVLLM(server, []string{"TZ=UTC"}, "coded_time.py")
	if err != nil {
		return err
	}
	fmt.Println("\n| dialect: what it replaces | Python, body of 100 KB, ms | Go, ms | times faster | Python again, ms | Go again, ms | times faster | next turn, ms | of the full |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, d := range dialects {
		if err := d.measure(ref, text); err != nil {
			return err
		}
	}
	return ref.Close()
}
