package tokenizer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"warmroute/render/work"
)

// within encodes a text with a budget and returns why it ended.
func within(b *work.Budget, tok *Tokenizer, text []byte) (err error) {
	defer work.Catch(&err)
	tok.Append(b, nil, text, false)
	return nil
}

// splitter is a tokenizer that splits by an expression.
func newSplitter(t testing.TB, expression string, b *work.Budget) (*Tokenizer, error) {
	t.Helper()
	pattern, err := json.Marshal(expression)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(fmt.Appendf(nil, `{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},
		"pre_tokenizer":{"type":"Split","pattern":{"Regex":%s},"behavior":"Isolated"}}`, pattern), Options{WordCache: -1, Work: b})
}

// An expression that takes its author's time for each character ends with the text's
// budget, and so does one that goes back inside a look-ahead.
func TestSplitExpressionsEndWithTheBudget(t *testing.T) {
	for name, c := range map[string]struct{ expression, text string }{
		"alternatives": {strings.Repeat("a*b|", 3000) + "c", strings.Repeat("a", 20_000)},
		"look-ahead":   {"(?=(?:a|a){28}b)a|a", strings.Repeat("a", 1000)},
	} {
		tok, err := newSplitter(t, c.expression, nil)
		if err != nil {
			t.Fatal(err)
		}
		limits := work.Limits{Steps: 1_000_000}
		b := work.New(t.Context(), limits, len(c.text))
		if err := within(b, tok, []byte(c.text)); !errors.Is(err, work.ErrSteps) && !errors.Is(err, work.ErrMemory) {
			t.Errorf("%s: error %v, want the end of the budget", name, err)
		}
		// The tokenizer is as it was.
		if ids := tok.Append(nil, nil, []byte("ab"), false); len(ids) == 0 {
			t.Errorf("%s: no ids afterwards", name)
		}
	}
}

// looks is a context that ends when it has been looked at a number of times.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// Encoding stops at the first look at a context that has ended, whatever it is at.
func TestEncodingEndsWithItsContext(t *testing.T) {
	tok := model(t, "qwen3")
	for name, text := range map[string]string{
		"one word": strings.Repeat("a", 1<<18), "spaces": strings.Repeat(" ", 1<<18), "words": strings.Repeat("one two ", 1<<15),
		"marks": strings.Repeat("\u0323\u0301", 1<<16), "han": strings.Repeat("中", 1<<16),
	} {
		const allowed = 5
		ctx := &looks{t.Context(), allowed}
		b := work.New(ctx, work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
		err := within(b, tok, []byte(text))
		if !errors.Is(err, work.ErrEnded) || ctx.left != -1 {
			t.Errorf("%s: %v after %d looks, want an end at look %d", name, err, allowed-ctx.left, allowed+1)
		}
		// The looks are a slice of steps apart, or as far as one charge goes.
		if steps, _ := b.Spent(); steps > 1<<19 {
			t.Errorf("%s: %d steps for %d looks", name, steps, allowed+1)
		}
	}
}

// The budget that requests have by default is enough for ordinary text, cold.
func TestOrdinaryTextIsWithinTheBudget(t *testing.T) {
	for _, name := range someModels() {
		tok := model(t, name)
		text := []byte(strings.Join(slices.Repeat(goldenStrings(t), 8), "\n"))
		b := work.New(t.Context(), work.Limits{Steps: 1}, len(text))
		if err := within(b, tok, text); err != nil {
			t.Errorf("%s: %v for %d bytes", name, err, len(text))
		}
		steps, memory := b.Spent()
		t.Logf("%s: %.1f steps and %.1f bytes a byte", name, float64(steps)/float64(len(text)), float64(memory)/float64(len(text)))
	}
}

// Files that an author chose to be slow to load end with their budget, or cost no more
// than in proportion to their size.
func TestLoadingIsLinear(t *testing.T) {
	files := map[string]func(n int) []byte{
		"long token": func(n int) []byte {
			return fmt.Appendf(nil, `{"version":"1.0","added_tokens":[{"id":3,"content":%q,"special":true}],
				"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]}}`, strings.Repeat("x", n))
		},
		"vocabulary": func(n int) []byte {
			var b strings.Builder
			for i := 0; b.Len() < n; i++ {
				fmt.Fprintf(&b, `,"t%d":%d`, i, i+2)
			}
			return fmt.Appendf(nil, `{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1%s},"merges":[]}}`, b.String())
		},
		"classes": func(n int) []byte {
			return fmt.Appendf(nil, `{"version":"1.0","model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},
				"pre_tokenizer":{"type":"Split","pattern":{"Regex":"[%s]"},"behavior":"Isolated"}}`, strings.Repeat(`\\p{L}`, n/6))
		},
	}
	for name, file := range files {
		cost := func(n int) (steps, memory int) {
			b := work.New(t.Context(), work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
			if _, err := Parse(file(n), Options{WordCache: -1, Work: b}); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return b.Spent()
		}
		steps, memory := cost(1 << 13)
		twice, more := cost(1 << 14)
		if twice > 3*steps || more > 3*memory {
			t.Errorf("%s: %d steps and %d bytes, for twice as much %d and %d", name, steps, memory, twice, more)
		}
		b := work.New(t.Context(), work.Limits{Steps: 1000}, 0)
		if _, err := Parse(file(1<<14), Options{WordCache: -1, Work: b}); !errors.Is(err, work.ErrSteps) {
			t.Errorf("%s: error %v, want %v", name, err, work.ErrSteps)
		}
	}
}

// A class of characters may have any number of different pages.
func TestWideClass(t *testing.T) {
	var b strings.Builder
	for page := range 300 {
		for bit := range 9 {
			if page>>bit&1 != 0 {
				fmt.Fprintf(&b, `\x{%x}`, (page+0x100)<<8+2*bit)
			}
		}
	}
	if _, err := newSplitter(t, "["+b.String()+"]", nil); err != nil {
		t.Error(err)
	}
}

// FuzzCost: whatever the text, the steps are in proportion to it: a text twice as long
// takes at most three times the steps.
func FuzzCost(f *testing.F) {
	for _, seed := range []string{"a", "A", " ", "\n", "7", "é", "\u0323\u0301", "\u1112\u1161", "中", "<|im_", "<|im_end|>", "\xff", "aA1 !\n", "'s", "👩‍🚀", "x y"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, unit string) {
		if unit == "" || len(unit) > 1<<12 {
			return
		}
		for _, name := range []string{"qwen3", "llama2"} {
			tok := model(t, name)
			cost := func(n int) (steps, memory int) {
				b := work.New(t.Context(), work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
				if err := within(b, tok, []byte(strings.Repeat(unit, n/len(unit)+1))); err != nil {
					t.Fatal(err)
				}
				return b.Spent()
			}
			steps, _ := cost(1 << 13)
			twice, memory := cost(1 << 14)
			if twice > 3*steps+10_000 || memory > 1<<20+100*(1<<14) {
				t.Errorf("%s: %+q: %d steps, for twice as much %d and %d bytes", name, unit, steps, twice, memory)
			}
		}
	})
}

// The time of a step on hostile text, with the steps and the charged memory of its bytes.
func BenchmarkStep(b *testing.B) {
	tok := model(b, "qwen3")
	for _, unit := range []string{"a", "A", "7", " ", "\n", "\u0323\u0301", "\u1112\u1161", "中", "<|im_", "<|im_end|>", "\xff", "aA1 !\n", "'", "👩‍🚀", "kqxzjv", "word and word "} {
		b.Run(fmt.Sprintf("%+q", unit), func(b *testing.B) {
			text := []byte(strings.Repeat(unit, 1<<20/len(unit)))
			steps, memory := 0, 0
			for b.Loop() {
				budget := work.New(b.Context(), work.Limits{Steps: 1 << 40, Memory: 1 << 40}, 0)
				if err := within(budget, tok, text); err != nil {
					b.Fatal(err)
				}
				steps, memory = budget.Spent()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(steps), "ns/step")
			b.ReportMetric(float64(steps)/float64(len(text)), "steps/B")
			b.ReportMetric(float64(memory)/float64(len(text)), "charged_B/B")
		})
	}
}
