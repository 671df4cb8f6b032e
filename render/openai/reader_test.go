package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"warmroute/render/work"

	"warmroute/render/internal/pyvalue"
)

// sameRequest fails unless a Reader and Parse make the same request of a body. The body's
// bytes are others afterwards, as a server's are.
func sameRequest(t testing.TB, m *Reader, route Route, body []byte) {
	t.Helper()
	borrowed := bytes.Clone(body)
	defer func() {
		for i := range borrowed {
			borrowed[i] = '?'
		}
	}()
	got, gotErr := m.Parse(route, borrowed)
	want, wantErr := Parse(route, body)
	if reasonOf(gotErr) != reasonOf(wantErr) {
		t.Fatalf("%q: reason %q, without memory %q", body, reasonOf(gotErr), reasonOf(wantErr))
	}
	if wantErr != nil {
		return
	}
	if got.Multimodal != want.Multimodal || got.Model != want.Model || got.MaxTokens != want.MaxTokens {
		t.Fatalf("%q: %+v, without memory %+v", body, got, want)
	}
	for f := range numFields {
		if string(got.Raw(f)) != string(want.Raw(f)) {
			t.Fatalf("%q: field %v is %q, without memory %q", body, f, got.Raw(f), want.Raw(f))
		}
	}
	if a, b := string(got.AppendText(nil, math.MaxInt)), string(want.AppendText(nil, math.MaxInt)); a != b {
		t.Fatalf("the text is %q, without memory %q", a, b)
	}
	f := route.list()
	if f == numFields {
		return
	}
	v, listed, errV := got.Values(nil, f)
	if !listed {
		return
	}
	plain, err := pyvalue.Parse(got.Raw(f))
	if (err == nil) != (errV == nil) {
		t.Fatalf("%q: %v by its structure, %v when it is read", body, errV, err)
	}
	if err != nil {
		return
	}
	a, _ := pyvalue.Repr(nil, plain)
	if b, _ := pyvalue.Repr(nil, v); a != b {
		t.Fatalf("%q by its structure is\n%s, read it is\n%s", body, b, a)
	}
}

// element is a random message.
func element(r *rand.Rand) string {
	text, _ := json.Marshal(strings.Repeat([]string{"word ", "line\n\t", `a "quote" `, "é漢😀", "x"}[r.IntN(5)], r.IntN(1<<r.IntN(11))))
	role := []string{"user", "assistant", "system", "tool"}[r.IntN(4)]
	switch r.IntN(12) {
	case 0:
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%s},{"type":"text","text":"b\u0041"}]}`, role, text)
	case 1:
		return fmt.Sprintf(`{ "role" : %q , "tool_calls":[{"id":"c","function":{"name":"f","arguments":%s}}],"n":[1,2,3],"m":[-1.5,NaN,null,true,[],{}]}`, role, text)
	case 2:
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"image_url","image_url":{"url":%s}}]}`, role, text)
	case 3:
		return string(text)
	}
	return fmt.Sprintf(`{"role":%q,"content":%s}`, role, text)
}

// Conversations that grow, branch, shrink and break off are read as without memory,
// whether all is remembered, little or nothing.
func TestReaderReadsAsParse(t *testing.T) {
	for _, c := range []struct {
		limit int64
		m     *Reader
	}{
		{DefaultMemory, NewReader(DefaultMemory)}, {30_000, NewReader(30_000)}, {0, NewReader(0)},
		{DefaultMemory, NewPositionsReader(DefaultMemory)},
	} {
		limit, m := c.limit, c.m
		r := rand.New(rand.NewPCG(3, 4))
		var kept [][]string
		for i := range 700 {
			var list []string
			if len(kept) > 0 && r.IntN(8) > 0 {
				list = kept[r.IntN(len(kept))]
				list = list[:r.IntN(len(list)+1)]
			}
			for range 1 + r.IntN(3) {
				list = append(list[:len(list):len(list)], element(r))
			}
			kept = append(kept, list)
			array := "[" + strings.Join(list, []string{",", " ,\n"}[i%7/6]) + "]"
			route, field := Chat, "messages"
			if i%5 == 0 {
				route, field = Responses, "input"
			}
			body := fmt.Sprintf(`{"model":"m",%q:%s,"stream":true,"tools":[{"type":"image_url"}]}`, field, array)
			if i%9 == 0 {
				body = fmt.Sprintf(`{"system":[{"type":"image"}],"model":"m",%q:%s}`, field, array)
			}
			sameRequest(t, m, route, []byte(body))
			sameRequest(t, m, route, []byte(body)[:r.IntN(len(body))])
			at := r.IntN(len(body))
			sameRequest(t, m, route, []byte(body[:at]+`"`+body[at:]))
			sameRequest(t, m, route, []byte(strings.Replace(body, `"model"`, `"messages":`+array+`,"model"`, 1)))
		}
		if entries, bytes := m.cache.Stats(); bytes > limit || limit == DefaultMemory && entries < 200 {
			t.Errorf("limit %d: %d entries of %d bytes", limit, entries, bytes)
		}
	}
}

// A Reader of positions has no values in memory after a request, and no text.
func TestPositionsReaderKeepsNoValues(t *testing.T) {
	for _, c := range []struct {
		m    *Reader
		want bool
	}{{NewReader(DefaultMemory), true}, {NewPositionsReader(DefaultMemory), false}} {
		body := chatBody(12 << 10)
		for range 2 {
			r, err := c.m.Parse(Chat, body)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Values(nil, FieldMessages); err != nil {
				t.Fatal(err)
			}
			if len(r.known) == 0 {
				t.Fatal("nothing is remembered")
			}
			for _, k := range r.known {
				if kept := k.values.Load() != nil; kept != c.want {
					t.Fatalf("values are kept: %t, want %t", kept, c.want)
				}
			}
		}
	}
}

// Of a known conversation only the new part is read.
func TestReaderResumes(t *testing.T) {
	m := NewReader(DefaultMemory)
	body := chatBody(100 << 10)
	if _, err := m.Parse(Chat, body); err != nil {
		t.Fatal(err)
	}
	grown := append(body[:len(body)-2:len(body)-2], `,{"role":"user","content":"more"}]}`...)
	s := &scanner{b: grown, budget: new(work.Budget)}
	s.base = strings.Index(string(grown), "[")
	if at := m.resume(s); at < len(body)-2-stride-2000 {
		t.Errorf("only %d of %d bytes are known", at, len(body))
	}
	if m.resume(&scanner{b: []byte(strings.Repeat("x", 10*stride)), budget: new(work.Budget)}) != 0 {
		t.Error("bytes never seen are known")
	}
}

// An array longer than the memory is read as any other.
func TestReaderOfAnImage(t *testing.T) {
	m := NewReader(DefaultMemory)
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"user","content":[{"type":"image_url","image_url":{"url":%q}}]},"x"`, strings.Repeat("A", (mostStrides+9)*stride))
	sameRequest(t, m, Chat, []byte(body+"]}"))
	sameRequest(t, m, Chat, []byte(body+`,"y"]}`))
	if entries, bytes := m.cache.Stats(); entries != mostStrides || bytes > 600_000 {
		t.Errorf("%d entries of %d bytes", entries, bytes)
	}
}

// A Reader counts the size of its memory.
func TestReaderCountsItsMemory(t *testing.T) {
	heap := func() int64 {
		for range 3 { // pools let go in two
			runtime.GC()
		}
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	const limit = 8 << 20
	for name, message := range map[string]func(r *rand.Rand, i int) string{
		"short": func(_ *rand.Rand, i int) string { return fmt.Sprintf(`{"role":"user","content":"message %d"}`, i) },
		"long": func(_ *rand.Rand, i int) string {
			return fmt.Sprintf(`{"role":"user","content":"%d %s"}`, i, strings.Repeat(`a line of it\n`, 300))
		},
		"any": func(r *rand.Rand, _ int) string { return element(r) },
	} {
		m, r := NewReader(limit), rand.New(rand.NewPCG(5, 6))
		before := heap()
		for conversation := range 400 {
			var b strings.Builder
			fmt.Fprintf(&b, `{"model":"m","messages":["%d"`, conversation)
			for i := 0; b.Len() < 50_000; i++ {
				b.WriteString("," + message(r, i))
			}
			req, err := m.Parse(Chat, []byte(b.String()+"]}"))
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := req.Values(nil, FieldMessages); err != nil {
				t.Fatal(err)
			}
		}
		took := heap() - before
		_, counted := m.cache.Stats()
		t.Logf("%s: %d bytes, counted %d", name, took, counted)
		if counted < limit*9/10 || counted > limit || took > counted*5/4 {
			t.Errorf("%s: %d bytes, counted %d", name, took, counted)
		}
	}
}

func TestReaderIsConcurrent(t *testing.T) {
	m := NewReader(60_000)
	var wg sync.WaitGroup
	for worker := range uint64(4) {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(9, worker/2)) // two see the same
			var list []string
			for range 120 {
				if list = append(list, element(r)); len(list) > 40 {
					list = nil
				}
				sameRequest(t, m, Chat, []byte(`{"model":"m","messages":[`+strings.Join(list, ",")+`]}`))
			}
		})
	}
	wg.Wait()
}

// FuzzReader reads a body that begins as a known one.
func FuzzReader(f *testing.F) {
	f.Add(uint16(3000), []byte(`{"role":"user","content":"a\n"}]}`))
	f.Add(uint16(5000), []byte(`]}`))
	f.Add(uint16(65000), []byte(`,"x"],"messages":[]}`))
	base := string(chatBody(12 << 10))
	m := NewReader(DefaultMemory)
	if _, err := m.Parse(Chat, []byte(base)); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at uint16, rest []byte) {
		body := append([]byte(base[:min(int(at), len(base))]), rest...)
		sameRequest(t, m, Chat, body)
		sameRequest(t, m, Chat, body)
	})
}
