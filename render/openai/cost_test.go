package openai

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"warmroute/render/work"
)

// shapes are bodies that repeat a piece, each of which has been or could be read more
// than once for every copy.
var shapes = []struct {
	name          string
	route         Route
	before, piece string
	after         string
}{
	{"messages again", Chat, `{"model":"m",`, `"messages":[],`, `"a":1}`},
	{"an unknown field again", Chat, `{"model":"m",`, `"messagez":[],`, `"messages":[]}`},
	{"empty messages", Chat, `{"model":"m","messages":[`, `{},`, `{}]}`},
	{"lists in messages", Chat, `{"model":"m","messages":[`, `[],`, `[]]}`},
	{"types in a message", Chat, `{"model":"m","messages":[{`, `"t\u0079pe":"te\u0078t",`, `"a":1}]}`},
	{"numbers in messages", Chat, `{"model":"m","messages":[`, `1,`, `{}]}`},
	{"numbers and a word in tools", Chat, `{"model":"m","messages":[],"tools":[`, `1,`, `true]}`},
	{"nested numbers", Chat, `{"model":"m","messages":[`, `[1,1,1,`, ``},
	{"digits", Chat, `{"model":"m","messages":[],"n":[`, `1`, `]}`},
	{"brackets", Chat, `{"model":"m","messages":`, `[`, ``},
	{"objects", Chat, `{"model":"m","messages":`, `{"a":`, ``},
	{"escapes", Chat, `{"model":"m","messages":[{"content":"`, `\n`, `"}]}`},
	{"letters", Chat, `{"model":"m","messages":[{"content":"`, `é`, `"}]}`},
	{"an escaped key", Chat, `{"model":"m","messages":[],"`, `\n`, `":1}`},
	{"white space", Chat, `{"model":"m",`, " \n", `"messages":[]}`},
	{"texts", Completions, `{"model":"m","prompt":[`, `"",`, `""]}`},
	{"lists of ids", Completions, `{"model":"m","prompt":[`, `[1],`, `[1]]}`},
	{"ids", Completions, `{"model":"m","prompt":[`, `1,`, `1]}`},
	{"ids and a text", Completions, `{"model":"m","prompt":[`, `1,`, `"a"]}`},
	{"ids with spaces", Completions, `{"model":"m","prompt":[`, ` 1 ,`, `1]}`},
	{"prompt again", Completions, `{"model":"m",`, `"prompt":[1,1,1],`, `"a":1}`},
}

// cost returns the cost of reading a body, in steps and in bytes allocated.
func cost(m *Reader, route Route, body []byte) (steps int, bytes uint64) {
	var before, after runtime.MemStats
	b := work.New(context.Background(), work.Limits{}, len(body))
	runtime.ReadMemStats(&before)
	_, _ = m.ParseWithin(b, route, body)
	runtime.ReadMemStats(&after)
	steps, _ = b.Spent()
	return steps, after.TotalAlloc - before.TotalAlloc
}

// The highest costs of reading. A byte of a list of numbers costs an eighth of a step
// each of the three times that it is read at most, one of a short value a step;
// structures cost 16 bytes for a value of two, in memory that grows and in a copy.
const (
	stepsPerByte, stepsAtMost = 2, 1000
	bytesPerByte, bytesAtMost = 64, 4 << 20
)

func linear(t *testing.T, route Route, body []byte) {
	t.Helper()
	steps, bytes := cost(NewReader(DefaultMemory), route, body)
	if most := stepsPerByte*len(body) + stepsAtMost; steps > most {
		t.Errorf("%d steps for %d bytes, want at most %d", steps, len(body), most)
	}
	if most := uint64(bytesPerByte*len(body) + bytesAtMost); bytes > most {
		t.Errorf("%d bytes allocated for %d bytes, want at most %d", bytes, len(body), most)
	}
}

func TestReadingIsLinear(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			for _, n := range []int{10_000, 1_000_000} {
				linear(t, s.route, []byte(s.before+strings.Repeat(s.piece, n/len(s.piece))+s.after))
			}
		})
	}
}

// FuzzReadingCost: nothing that is repeated costs more than its length.
func FuzzReadingCost(f *testing.F) {
	for _, s := range shapes {
		f.Add(uint8(s.route), uint16(200), s.before, s.piece, s.after)
	}
	f.Fuzz(func(t *testing.T, route uint8, times uint16, before, piece, after string) {
		if len(piece)*int(times) > 1<<20 {
			return
		}
		linear(t, Routes[int(route)%len(Routes)], []byte(before+strings.Repeat(piece, int(times))+after))
	})
}

// TestReadingEnds: when the budget's context ends, reading stops within a slice of the
// budget, or within the string that is being read.
func TestReadingEnds(t *testing.T) {
	const size = 100_000 // of a message
	for name, content := range map[string]string{
		"short": "a", "letters": strings.Repeat("é", size/2), "escapes": strings.Repeat(`\n`, size/2),
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		body := []byte(`{"model":"m","messages":[` + strings.Repeat(`{"role":"user","content":"`+content+`"},`, 20*size/len(content)))
		b := work.New(ctx, work.Limits{}, len(body))
		_, err := (*Reader)(nil).ParseWithin(b, Chat, body)
		if steps, _ := b.Spent(); !errors.Is(err, work.ErrEnded) || !errors.Is(err, context.Canceled) || steps > 5*size/8 {
			t.Errorf("%s: %v after %d steps", name, err, steps)
		}
	}
}

// looks is a context that counts how often it is looked at.
type looks struct {
	context.Context
	n int
}

func (l *looks) Err() error { l.n++; return nil }

// TestLongValuesLookAtTheContext: one value, however long it is, is read with a look at the
// context for every 300 KB, so that work ends with its request.
func TestLongValuesLookAtTheContext(t *testing.T) {
	const size, each = 3_000_000, 300_000
	for name, s := range map[string]struct {
		route                Route
		before, piece, after string
	}{
		"letters":   {Chat, `{"model":"m","messages":[{"content":"`, "a", `"}]}`},
		"not ASCII": {Chat, `{"model":"m","messages":[{"content":"`, "é", `"}]}`},
		"escapes":   {Chat, `{"model":"m","messages":[{"content":"`, `\n`, `"}]}`},
		"ids":       {Completions, `{"model":"m","prompt":[`, "1,", `1]}`},
		"numbers":   {Chat, `{"model":"m","tools":[`, "1,", `1],"messages":[]}`},
	} {
		ctx := &looks{Context: t.Context()}
		body := []byte(s.before + strings.Repeat(s.piece, size/len(s.piece)) + s.after)
		b := work.New(ctx, work.Limits{}, len(body))
		if _, err := (*Reader)(nil).ParseWithin(b, s.route, body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if ctx.n < size/each {
			t.Errorf("%s: %d looks in %d bytes, want at least %d", name, ctx.n, size, size/each)
		}
	}
}

// TestManySmallValuesAreRefused: the structure of messages takes no more memory than the
// budget has for their bytes.
func TestManySmallValuesAreRefused(t *testing.T) {
	body := []byte(`{"model":"m","messages":[` + strings.Repeat(`[],`, 5<<20) + `[]]}`)
	_, err := (*Reader)(nil).ParseWithin(work.New(t.Context(), work.Limits{}, len(body)), Chat, body)
	if reasonOf(err) != TooWide {
		t.Errorf("%v, want %s", err, TooWide)
	}
}
