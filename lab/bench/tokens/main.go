// Command tokens measures encoding here and in the Rust-backed Python tokenizers,
// in one run and one thread each, taking turns, and prints a Markdown table.
//
// The text is Go's own standard library, source and comments, cut into the turns of
// conversations: real text on every machine that compiles this, and no part of it occurs
// twice. Cold is the best of several conversations of which the process has seen no line;
// warm is one conversation, encoded again and again; next turn is a conversation of 100
// KB with a new turn of 1 KB, with its block keys, from the prefix store. A second table
// is of whole requests: from a body's bytes to ids, rendering included. A third is of the
// models whose chats vLLM writes in code, against that code. A fourth compares next turns
// with first ones in processor time, for every dialect.
package main

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unicode/utf8"

	"warmroute/prefixhash"
	"warmroute/render"
	"warmroute/render/testkit/checkout"
	"warmroute/render/testkit/oracle"
)

const (
	size   = 100_000 // bytes of a conversation
	rounds = 12      // conversations each way, all different
)

// templated are the models with a chat template, and their marks of a turn's start and end.
var templated = []struct{ name, open, end string }{
	{"qwen3", "<|im_start|>", "<|im_end|>"}, {"llama3_1", "<|start_header_id|>", "<|eot_id|>"}, {"deepseek_v3", "<｜User｜>", "<｜end▁of▁sentence｜>"},
	{"gemma3", "<start_of_turn>", "<end_of_turn>"}, {"llama2", "<s>", "</s>"},
}

func main() {
	only := flag.String("only", "", "one of the tables: encoding, templates, coded or turns")
	flag.Parse()
	text, err := corpus()
	if err != nil {
		fail(err)
	}
	if *only != "coded" && *only != "turns" {
		templates(text, *only)
	}
	if *only == "" || *only == "coded" {
		if err := coded(text); err != nil {
			fail(err)
		}
	}
	if *only == "" || *only == "turns" {
		if err := turns(text); err != nil {
			fail(err)
		}
	}
}

// templates prints the tables of the models that have a chat template.
func templates(text, only string) {
	ref, err := oracle.Start("tokenizers_fuzz.py")
	if err != nil {
		fail(err)
	}
	if only != "templates" {
		fmt.Println("| tokenizer | load, s | memory, MB | Rust cold, ms | Go cold, ms | times faster | Rust warm, ms | Go warm, ms | times faster | next turn, ms | of the full |")
		fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
		for _, m := range templated {
			if err := measure(ref, m.name, m.open, m.end, text); err != nil {
				fail(err)
			}
		}
	}
	if only != "encoding" {
		fmt.Println("\n| tokenizer | body of 100 KB to ids, ms | its next turn, ms | of the full | of it scanning and reading JSON | rendering and encoding | of the full without JSON | short body, tokens | Rust, its text alone, ms | bytes to ids cold, ms | warm, ms | times faster |")
		fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
		for _, m := range templated {
			if only == "templates" { // the previous table did not load it
				if err := ref.Ask(map[string]any{"op": "load", "name": m.name, "path": filepath.Join(models, m.name, "tokenizer.json")}, &struct{}{}); err != nil {
					fail(err)
				}
			}
			if err := requests(ref, m.name, text); err != nil {
				fail(err)
			}
		}
	}
	if err := ref.Close(); err != nil {
		fail(err)
	}
}

// corpus returns the standard library's source, without files that are not text.
func corpus() (string, error) {
	var b strings.Builder
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find the standard library's source: %w", err)
	}
	goroot := strings.TrimSpace(string(out))
	root := filepath.Join(goroot, "src")
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || b.Len() > 30<<20 || !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata") || strings.Contains(path, "zerrors") || strings.Contains(path, "tables") {
			return err
		}
		raw, err := os.ReadFile(path)
		if err == nil && utf8.Valid(raw) {
			b.Write(raw)
		}
		return err
	})
	return b.String(), err
}

// reader returns text from all over the corpus, each part once.
type reader struct {
	text string
	at   int
}

func (r *reader) take(n int) string {
	start := r.at % (len(r.text) - 2*n)
	r.at += n + 1_000_003 // a prime: parts of one conversation come from far apart
	for !utf8.RuneStart(r.text[start]) {
		start++
	}
	end := start + n
	for !utf8.RuneStart(r.text[end]) {
		end++
	}
	return r.text[start:end]
}

func (r *reader) conversation(open, end string) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(open + "user\n" + r.take(1000) + end + "\n")
	}
	return b.String()
}

// models returns the folder of the models' files.
var models = filepath.Join(checkout.Root(), ".cache", "models")

type timing struct{ Seconds, First float64 }

func measure(ref *oracle.Process, name, open, end, text string) error {
	dir := filepath.Join(models, name)
	before := live()
	start := time.Now()
	plain, err := render.Open(context.Background(), dir, render.Flags{StoreBytes: -1})
	if err != nil {
		return err
	}
	load := time.Since(start)
	memory := live() - before
	runtime.KeepAlive(plain)
	if err := ref.Ask(map[string]any{"op": "load", "name": name, "path": filepath.Join(dir, "tokenizer.json")}, &struct{}{}); err != nil {
		return err
	}
	stored, err := render.Open(context.Background(), dir, render.Flags{})
	if err != nil {
		return err
	}
	r := &reader{text: text}
	rustCold, rustWarm, goCold, goWarm, next := math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1), math.Inf(1)
	var ids []uint32
	var keys []prefixhash.Key
	timed := func(best *float64, f func()) {
		start := time.Now()
		f()
		*best = min(*best, time.Since(start).Seconds()*1e3)
	}
	for range rounds {
		chat := r.conversation(open, end)
		var t timing
		if err := ref.Ask(map[string]any{"op": "time", "name": name, "text": chat}, &t); err != nil {
			return err
		}
		rustCold, rustWarm = min(rustCold, t.First*1e3), min(rustWarm, t.Seconds*1e3)
		raw := []byte(chat)
		timed(&goCold, func() { ids = plain.Encode(ids[:0], raw, false) })
		for range 5 {
			timed(&goWarm, func() { ids = plain.Encode(ids[:0], raw, false) })
		}
		encode := func() {
			ids = stored.Encode(ids[:0], raw, false)
			keys = prefixhash.AppendTokens(keys[:0], 1, ids, prefixhash.Blocks{Size: 16}, nil)
		}
		encode()
		for range 5 {
			raw = append(raw, open+"user\n"+r.take(1000)+end+"\n"...)
			timed(&next, encode)
		}
	}
	fmt.Printf("| %s | %.2f | %.0f | %.1f | %.2f | %.0f | %.1f | %.2f | %.0f | %.3f | 1/%.0f |\n", name, load.Seconds(), float64(memory)/1e6,
		rustCold, goCold, rustCold/goCold, rustWarm, goWarm, rustWarm/goWarm, next, goCold/next)
	return nil
}

// live returns the heap in use after a garbage collection, in bytes.
func live() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// fail ends the program with an error.
func fail(err error) {
	fmt.Fprintln(os.Stderr, "tokens:", err)
	os.Exit(1)
}
