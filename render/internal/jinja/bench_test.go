package jinja

import (
	"fmt"
	"strings"
	"testing"

	"warmroute/render/internal/pyvalue"
)

// longConversation is about 100 KB of chat in 200 messages, as JSON.
func longConversation() string {
	var b strings.Builder
	b.WriteString(`{"add_generation_prompt":true,"tools":null,"documents":null,"bos_token":"<s>","eos_token":"</s>","messages":[{"role":"system","content":"You are helpful."}`)
	text := strings.Repeat("The quick brown fox jumps over the lazy dog. ", 11)
	for i := range 199 {
		role := "user"
		if i%2 == 1 {
			role = "assistant"
		}
		fmt.Fprintf(&b, `,{"role":%q,"content":"%d %s"}`, role, i, text)
	}
	b.WriteString("]}")
	return b.String()
}

var benchTemplates = []string{"hf__qwen3", "hf__llama3_1", "hf__gemma3", "vllm__tool_chat_template_deepseekv31", "GLM-4.6", "vllm__template_chatml"}

func BenchmarkRender(b *testing.B) {
	v, err := pyvalue.Parse([]byte(longConversation()))
	if err != nil {
		b.Fatal(err)
	}
	vars := v.(*pyvalue.Dict)
	for _, name := range benchTemplates {
		tmpl, err := Compile(loadTemplate(b, name), Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				out, err := tmpl.Render(buf[:0], vars, Env{Now: goldenClock})
				if err != nil {
					b.Fatal(err)
				}
				buf = out
			}
			b.SetBytes(int64(len(buf)))
		})
	}
}

func BenchmarkParse(b *testing.B) {
	data := []byte(longConversation())
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := pyvalue.Parse(data); err != nil {
			b.Fatal(err)
		}
	}
}
