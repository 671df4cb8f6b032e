package replay

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

const traceHead = `{"trace":1,"run":"a","t":1}
{"fleet":[{"replica":"r1","model":"m","block":16,"blocks":101,"ranks":2},{"replica":"r2","model":"m","block":16,"blocks":201,"ranks":1},{"replica":"r3","model":"other","block":16,"blocks":11,"ranks":1}]}
`

// traceOf is a trace of n conversations of two turns. A turn adds 5 blocks to its prompt
// and 2 by the answer to the turn before; their system prompt of 10 blocks is common.
func traceOf(n int) string {
	var b strings.Builder
	b.WriteString(traceHead)
	next, number, at := 10, 0, 100.0
	line := func(tokens int, blocks string, held int) {
		number++
		at++
		fmt.Fprintf(&b, `{"n":%d,"t":%.6f,"route":"/v1/chat/completions","model":"m","tokens":%d,"block":16,"blocks":[%s],"cached":%d,"held":%d,"reason":"warm","to":"r1"}`+"\n",
			number, at, tokens, blocks, held, held)
		fmt.Fprintf(&b, `{"end":%d,"t":%.6f,"first":%.6f,"status":200}`+"\n", number, at+0.1+0.32, at+0.1)
	}
	for i := range n {
		own := next
		next += 5
		held := 160
		if i == 0 {
			held = 0
		}
		line(15*16+8, fmt.Sprintf("0,10,%d,5", own), held)
		answer := next // two blocks of the answer and five of the next question
		next += 7
		line(22*16+4, fmt.Sprintf("0,10,%d,5,%d,7", own, answer), 17*16)
	}
	return b.String()
}

func readRecording(t *testing.T, texts ...string) *recording {
	t.Helper()
	var in []io.Reader
	for _, text := range texts {
		in = append(in, strings.NewReader(text))
	}
	r, err := readTraces(in, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestAnswersAreFound: blocks that no prompt had, but a replica has, are an answer.
func TestAnswersAreFound(t *testing.T) {
	r := readRecording(t, traceOf(20))
	if err := r.choose(""); err != nil {
		t.Fatal(err)
	}
	trace, a, err := r.trace(16, 0)
	if err != nil {
		t.Fatal(err)
	}
	if a.reused != 20 || a.dropped != 0 || a.typical != 17*16+8-(15*16+8) || a.before != 0 {
		t.Errorf("%d reused, %d dropped, %d tokens, %d before", a.reused, a.dropped, a.typical, a.before)
	}
	for i := 0; i < len(trace.Requests); i += 2 {
		first, second := trace.Requests[i], trace.Requests[i+1]
		if len(first.Blocks) != 15 || !slices.Equal(first.Answer, second.Blocks[15:17]) || first.Output != 32 || second.Output != 32 || second.Answer != nil {
			t.Fatalf("conversation %d: %+v, %+v", i/2, first, second)
		}
	}
	if n, capacity := r.holders(); n != 3 || capacity != 100*16 {
		t.Errorf("%d caches of %d tokens", n, capacity)
	}
	if p := r.pace(a); p.step != 0.01 || p.answers != 20 || p.prompts != 0 {
		t.Errorf("pace %+v", p)
	}
	coarse, _, err := r.trace(64, 0)
	if err != nil || coarse.Block != 64 || len(coarse.Requests[1].Blocks) != 5 || coarse.Requests[1].Blocks[1] != coarse.Requests[2].Blocks[1] || coarse.Requests[1].Blocks[2] == coarse.Requests[3].Blocks[2] {
		t.Errorf("blocks of 64: %v, %v", coarse.Requests[:4], err)
	}
}

// TestEvictedAnswersAreTypical: where answers are reused, one that no replica has any more
// had blocks, too; where they are not, none has.
func TestEvictedAnswersAreTypical(t *testing.T) {
	text := traceOf(20)
	i := strings.LastIndex(text, `"held":272`)
	evicted := text[:i] + `"held":240` + text[i+len(`"held":272`):]
	never := strings.ReplaceAll(text, `"held":272`, `"held":240`)
	for name, want := range map[string]struct {
		text   string
		blocks int
	}{"evicted": {evicted, 2}, "never": {never, 0}} {
		r := readRecording(t, want.text)
		if err := r.choose("m"); err != nil {
			t.Fatal(err)
		}
		trace, _, err := r.trace(16, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := trace.Requests[38].Answer; len(got) != want.blocks {
			t.Errorf("%s: answer %v", name, got)
		}
	}
}

// TestTracesOfSeveralFiles: rotated files follow each other, also compressed; blocks of
// two runs of the router differ.
func TestTracesOfSeveralFiles(t *testing.T) {
	text := traceOf(30)
	cut := strings.Index(text, `{"n":31`)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(text[:cut]))
	z.Close()
	var whole, parts bytes.Buffer
	o := Options{Rivals: []string{"p2c"}}
	if err := Run(t.Context(), []io.Reader{strings.NewReader(text)}, &whole, o); err != nil {
		t.Fatal(err)
	}
	second := `{"trace":1,"run":"a","t":2}` + "\n" + text[cut:]
	if err := Run(t.Context(), []io.Reader{&packed, strings.NewReader(second)}, &parts, o); err != nil {
		t.Fatal(err)
	}
	if whole.String() != parts.String() || !strings.Contains(whole.String(), "60 requests") {
		t.Errorf("whole:\n%sin parts:\n%s", whole.String(), parts.String())
	}
	r := readRecording(t, text[:cut], strings.Replace(second, `"run":"a"`, `"run":"b"`, 1))
	if err := r.choose(""); err != nil {
		t.Fatal(err)
	}
	trace, _, err := r.trace(16, 0)
	if err != nil || trace.Requests[0].Blocks[0] == trace.Requests[40].Blocks[0] {
		t.Errorf("a block of another run is the same: %v", err)
	}
}

// TestLeftOut: other models, failures and requests without a length.
func TestLeftOut(t *testing.T) {
	text := traceOf(3) + `{"n":90,"t":200,"model":"other","tokens":16,"block":16,"blocks":[0,1]}
{"n":91,"t":200,"model":"m","tokens":0,"reason":"no_tokens"}
{"n":92,"t":200,"model":"m","tokens":16,"block":16,"blocks":[0,1]}
{"end":92,"t":200,"status":503}
{"n":93,"t":199.9,"model":"m","tokens":100,"reason":"budget"}
`
	r := readRecording(t, text)
	if err := r.choose(""); err != nil {
		t.Fatal(err)
	}
	if len(r.all) != 7 || r.left != 3 || r.all[6].Number != 93 {
		t.Errorf("%d requests, %d left out", len(r.all), r.left)
	}
	if err := readRecording(t, text).choose("absent"); err == nil || !strings.Contains(err.Error(), `"absent"`) {
		t.Errorf("another model: %v", err)
	}
}

func TestWithheldHintsSayNothingAboutTheCache(t *testing.T) {
	var out bytes.Buffer
	text := strings.ReplaceAll(traceOf(5), `"to":"r1"`, `"to":"r1","withheld":"shadow"`)
	if err := Run(t.Context(), []io.Reader{strings.NewReader(text)}, &out, Options{Replicas: []int{1, 2}, Rivals: []string{"p2c"}, Price: 2.5, GPUs: 8}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the cached tokens are not known", "hints were withheld from", "8 GPU a replica", "1 replicas: warmroute saves", "2 replicas: warmroute saves"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestMoneyNeedsASpeed: where no first token is seen, the replicas' counters show how fast they
// prefill; without these, and without a speed that is set, nothing is counted in money.
func TestMoneyNeedsASpeed(t *testing.T) {
	shadow := strings.ReplaceAll(traceOf(5), `"to":"r1"`, `"to":"r1","withheld":"shadow"`)
	counters := ""
	for i := range 20 {
		counters += fmt.Sprintf(`{"prefills":"m","seconds":%d,"tokens":10000,"requests":20}`+"\n", 10+i)
		counters += `{"prefills":"other","seconds":1,"tokens":90000,"requests":2}` + "\n" + `{"prefills":"m","seconds":1,"tokens":90000,"requests":9000}` + "\n" // short prompts
	}
	for name, tt := range map[string]struct {
		text  string
		o     Options
		speed string
		money bool
	}{
		"neither":  {shadow, Options{}, "an 8B model on an H100; set -prefill-rate, without which no cost is counted", false},
		"counters": {shadow + counters, Options{}, "a replica prefills 909 tokens/s (the fastest tenth of 20 times of 10 s, as the replicas counted)", true},
		"set":      {shadow, Options{PrefillRate: 500}, "a replica prefills 500 tokens/s (as set)", true},
		"slower":   {shadow, Options{Slower: 2}, "by -slower", true},
	} {
		var out bytes.Buffer
		tt.o.Replicas, tt.o.Rivals, tt.o.Price, tt.o.GPUs = []int{1}, []string{"p2c"}, 2.5, 8
		if err := Run(t.Context(), []io.Reader{strings.NewReader(tt.text)}, &out, tt.o); err != nil {
			t.Fatal(err)
		}
		money := strings.Contains(out.String(), "in money") && strings.Contains(out.String(), "2.5 a GPU hour")
		if !strings.Contains(out.String(), tt.speed) || money != tt.money || !tt.money && strings.Contains(out.String(), "cost  ") {
			t.Errorf("%s: no %q, or money: %v, in\n%s", name, tt.speed, money, out.String())
		}
	}
}

func TestBadTracesAreRefused(t *testing.T) {
	for want, text := range map[string]string{
		"the trace has no requests":      traceHead,
		"came 1m0s before one above it":  traceHead + `{"n":1,"t":100,"model":"m","tokens":5}` + "\n" + `{"n":2,"t":40,"model":"m","tokens":5}` + "\n",
		"has no prompts with blocks":     traceHead + `{"n":1,"t":100,"model":"m","tokens":5}` + "\n",
		"line 3: 5 tokens, 6 cached":     traceHead + `{"n":1,"t":100,"model":"m","tokens":5,"cached":6}` + "\n",
		"not a multiple of the recorded": traceOf(1),
	} {
		err := Run(t.Context(), []io.Reader{strings.NewReader(text)}, io.Discard, Options{Block: 24})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := Run(t.Context(), nil, io.Discard, Options{}); err == nil {
		t.Error("no input is accepted")
	}
}

// TestShadowsAreCounted: where hints are withheld, the replicas' own counts say what was
// cached and how fast the engines are.
func TestShadowsAreCounted(t *testing.T) {
	text := strings.ReplaceAll(traceOf(10), `"to":"r1"`, `"to":"r1","withheld":"shadow"`)
	for i := range 20 {
		text += fmt.Sprintf(`{"counted":%d,"prompt":300,"cached":40,"output":33,"first_us":100000,"took_us":430000}`+"\n", i+1)
	}
	r := readRecording(t, text)
	if err := r.choose(""); err != nil {
		t.Fatal(err)
	}
	trace, a, err := r.trace(16, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := r.pace(a)
	if p.prefill != 2600 || p.prompts != 20 || p.step != 0.01 || p.answers != 20 || a.typical != 33 || trace.Requests[1].Output != 33 {
		t.Errorf("pace %+v, %d tokens typical, %d of one", p, a.typical, trace.Requests[1].Output)
	}
	if got := r.recorded(0); !strings.Contains(got, "13.3 % of the prompt tokens were cached, as the replicas counted for 20 requests; hints were withheld from 20") {
		t.Error(got)
	}
}
