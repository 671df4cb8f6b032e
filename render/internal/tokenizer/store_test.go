package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"warmroute/render/testkit/race"
	"warmroute/render/work"
)

// conversation makes a chat of about size bytes in the marks of a template.
func conversation(r *rand.Rand, size int, open, end string) string {
	words := strings.Fields("the a request tokens cache prefix block 42 3.14 error: func return if, then. We've measured latency; don't (really) assume 中文 über naïve {\"key\": [1, 2]} == != x_y `code` https://example.com/path?q=1")
	var b strings.Builder
	for b.Len() < size {
		for _, role := range []string{"user", "assistant"} {
			b.WriteString(open + role + "\n")
			for range 40 + r.IntN(160) {
				b.WriteString(words[r.IntN(len(words))])
				if r.IntN(15) == 0 {
					b.WriteString(fmt.Sprintf("\n%d. ", r.IntN(10000)))
				}
				b.WriteByte(' ')
			}
			b.WriteString(end + "\n")
		}
	}
	return b.String() + open + "assistant\n"
}

var chats = map[string][2]string{
	"qwen3": {"<|im_start|>", "<|im_end|>"}, "llama3_1": {"<|start_header_id|>", "<|eot_id|>"},
	"gemma3": {"<start_of_turn>", "<end_of_turn>"}, "deepseek_v3": {"<｜User｜>", "<｜end▁of▁sentence｜>"}, "llama2": {"<s>", "</s>"},
}

// The store gives the same ids as encoding from scratch, on growing and branching
// conversations, whole or evicting.
func TestStoreEqualsFullEncoding(t *testing.T) {
	for _, name := range someModels() {
		tok := model(t, name)
		for _, limit := range []int64{64 << 20, 200_000, 0} {
			s, err := NewStore(tok, limit)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(5, 6))
			base := conversation(r, 12_000, chats[name][0], chats[name][1])
			c := newCorpus(t, 9, tok)
			text := base
			for turn := range 60 {
				switch r.IntN(6) {
				case 0: // another branch
					text = base[:r.IntN(len(base))]
					text = strings.ToValidUTF8(text, "")
				case 1:
					text = c.next()
				}
				text += c.next() + chats[name][1] + "\n" + chats[name][0] + "user\n" + c.next()
				for range 2 {
					checkStore(t, tok, s, text, turn%3 == 0)
				}
			}
			if got := s.Stats(); got.Bytes > limit {
				t.Errorf("%s: %d bytes in a store of %d", name, got.Bytes, limit)
			} else if limit > 1<<20 && (got.Entries > 0) != tok.cuts {
				t.Errorf("%s: %d entries, cuts %v", name, got.Entries, tok.cuts)
			}
		}
	}
}

func checkStore(t *testing.T, tok *Tokenizer, s *Store, text string, addSpecial bool) {
	t.Helper()
	want := tok.Append(nil, nil, []byte(text), addSpecial)
	if ids := s.Append(nil, nil, []byte(text), addSpecial); !slices.Equal(ids, want) {
		t.Fatalf("the ids differ, on %d bytes", len(text))
	}
}

// Invalid UTF-8 is replaced everywhere: in new text, and in text that has an
// entry without it.
func TestStoreReplacesInvalidBytes(t *testing.T) {
	for _, name := range someModels() {
		tok := model(t, name)
		s, err := NewStore(tok, 64<<20)
		if err != nil {
			t.Fatal(err)
		}
		open, end := chats[name][0], chats[name][1]
		r := rand.New(rand.NewPCG(8, 9))
		base := conversation(r, 6_000, open, end)
		checkStore(t, tok, s, base, false)
		for _, bad := range []string{"\xff", "\xe4\xb8", "a\x80b", "\xe4" + open, open + "\xb8\xad", strings.Repeat("\xc0", 300)} {
			at := r.IntN(len(base))
			for range 2 { // the second time finds the first one's entries
				checkStore(t, tok, s, base+bad, false)
				checkStore(t, tok, s, base+bad+end+"\n"+open+"user\n"+base[:2000], false)
				checkStore(t, tok, s, base[:at]+bad+base[at:], false)
				checkStore(t, tok, s, bad+base, false)
				checkStore(t, tok, s, strings.ToValidUTF8(base+bad, "\ufffd")+end+"more", false)
			}
		}
	}
}

// Work that its budget stops leaves what it has encoded: the same text needs less the next
// time, and gets all its ids at last.
func TestStoreKeepsWhatStoppedWorkEncoded(t *testing.T) {
	tok := model(t, "qwen3")
	s, err := NewStore(tok, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(conversation(rand.New(rand.NewPCG(7, 7)), 100_000, "<|im_start|>", "<|im_end|>"))
	encode := func() (ids []uint32, err error) {
		defer work.Catch(&err)
		return s.Append(work.New(t.Context(), work.Limits{Steps: 100_000, StepsPerByte: 1}, 0), nil, text, false), nil
	}
	want := tok.Append(nil, nil, text, false)
	const attempts = 40
	for i := range attempts {
		ids, err := encode()
		if err == nil {
			if i == 0 || !slices.Equal(ids, want) {
				t.Fatalf("attempt %d: %d ids of %d", i, len(ids), len(want))
			}
			return
		}
	}
	t.Fatalf("not encoded in %d attempts", attempts)
}

func TestStoreIsShared(t *testing.T) {
	tok := model(t, "qwen3")
	s, err := NewStore(tok, 300_000)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g%2), 1)) // two pairs with the same prompts
			text := ""
			for range 15 {
				text += conversation(r, 2000, "<|im_start|>", "<|im_end|>")
				want := tok.Append(nil, nil, []byte(text), false)
				got := s.Append(nil, nil, []byte(text), false)
				if !slices.Equal(got, want) {
					t.Errorf("goroutine %d: the ids differ", g)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Tokens that look beyond themselves must switch cutting off.
func TestCutPointsAreSound(t *testing.T) {
	for name, c := range map[string]struct {
		tokens []any
		cuts   bool
	}{
		"plain":         {[]any{token(0, "<a>", "s"), token(0, "<a", "")}, true},
		"single word":   {[]any{token(0, "<a>", "s"), token(0, "b", "w")}, false},
		"strip":         {[]any{token(0, "<a>", "s"), token(0, "<b>", "r")}, true},
		"strip spaces":  {[]any{token(0, "<a>\n", "s"), token(0, "<b>", "r")}, false},
		"only normal":   {[]any{token(0, "<a>", "n")}, false},
		"none":          {nil, false},
		"spaces, plain": {[]any{token(0, "\n\n", "")}, true},
	} {
		tok, err := Parse([]byte(small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "added_tokens": c.tokens}, nil)), Options{})
		if err != nil {
			t.Fatal(err)
		}
		if tok.cuts != c.cuts {
			t.Errorf("%s: cuts %v, want %v", name, tok.cuts, c.cuts)
		}
	}
}

// Where tokens may begin within others, or reach across the bytes that others begin with,
// the store still gives the same ids as encoding from scratch.
func TestAnchors(t *testing.T) {
	for name, c := range map[string]struct {
		tokens   []any
		anchor   byte
		anchored bool
	}{
		"one byte":                {[]any{token(0, "<a>", "s"), token(0, "<ab>", "")}, '<', true},
		"runs beside it":          {[]any{token(0, "\n", ""), token(0, "\n\n", ""), token(0, "\n\n\n", ""), token(0, "<a>", "s"), token(0, "<b>", "")}, '<', true},
		"special ones count":      {[]any{token(0, "[a]", ""), token(0, "[b]", ""), token(0, "<a>", "s")}, '<', true},
		"then their number":       {[]any{token(0, "[a]", "s"), token(0, "<b>", ""), token(0, "<a>", "s")}, '<', true},
		"begins inside another":   {[]any{token(0, "<a>", "s"), token(0, "x<a", "")}, 'x', true},
		"reaches across":          {[]any{token(0, "<a>", "s"), token(0, "\n<", ""), token(0, "<\n", "")}, 0, false},
		"the same byte twice":     {[]any{token(0, "<<", "s")}, 0, false},
		"stripping beside it":     {[]any{token(0, "<a>", "s"), token(0, "<b>", "rs"), token(0, "<c>", "ls")}, '<', true},
		"in the normalized text":  {[]any{token(0, "<a>", "n"), token(0, "b<", "")}, 'b', true},
		"a token itself":          {[]any{token(0, "<", "s"), token(0, "<a>", "s")}, '<', true},
		"longer ones before them": {[]any{token(0, "<a", "s"), token(0, "<a>", "s"), token(0, "<a>b", "")}, '<', true},
	} {
		t.Run(name, func(t *testing.T) {
			tok, err := Parse([]byte(small(true, dict{"pre_tokenizer": byteLevelStep(false, true), "added_tokens": c.tokens}, nil)), Options{})
			if err != nil {
				t.Fatal(err)
			}
			if tok.anchor.first != c.anchor || tok.anchor.ok != c.anchored {
				t.Errorf("anchor %q %v, want %q %v", tok.anchor.first, tok.anchor.ok, c.anchor, c.anchored)
			}
			s, err := NewStore(tok, 1<<20)
			if err != nil {
				t.Fatal(err)
			}
			r := rand.New(rand.NewPCG(3, 4))
			parts := []string{"<a>", "<ab>", "<b>", "<c>", "<a", "x<a>", "<", "<<", "<<<", "[a]", "[b]", "\n", "\n<", "<\n<a>", "\n\n\n", " ", "  ", "a", "b", "x", "b<a>", "<a>b", "some words "}
			text := ""
			for range 40 {
				if r.IntN(5) == 0 {
					text = text[:r.IntN(len(text)+1)]
				}
				for range 100 {
					text += parts[r.IntN(len(parts))]
				}
				checkStore(t, tok, s, text, false)
			}
			if s.Stats().Entries == 0 {
				t.Error("nothing was remembered")
			}
		})
	}
}

func TestWarmPathAllocatesNothing(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector makes sync.Pool drop things at random")
	}
	tok := model(t, "qwen3")
	s, err := NewStore(tok, 64<<20)
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(conversation(rand.New(rand.NewPCG(1, 1)), 20_000, "<|im_start|>", "<|im_end|>"))
	ids := tok.Append(nil, nil, text, true)
	if n := testing.AllocsPerRun(20, func() { ids = tok.Append(nil, ids[:0], text, true) }); n != 0 {
		t.Errorf("Append allocates %v times", n)
	}
	ids = s.Append(nil, ids[:0], text, true)
	if n := testing.AllocsPerRun(20, func() { ids = s.Append(nil, ids[:0], text, true) }); n != 0 {
		t.Errorf("Store.Append allocates %v times", n)
	}
}
