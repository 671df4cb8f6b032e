package replay

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"

	"warmroute/lab/simulator"
)

// conversations is a log of n requests of three turns each, as bodies.
func conversations(n int) string {
	var b strings.Builder
	for i := range n {
		system := strings.Repeat(fmt.Sprintf("You are assistant %d. ", i%3), 400)
		text := ""
		for turn := range 1 + i/3%3 {
			text += strings.Repeat(fmt.Sprintf("user %d says %d. ", i%40, turn), 150)
		}
		fmt.Fprintf(&b, `{"timestamp":%d,"output_length":50,"body":{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","content":%q}]}}`+"\n",
			i*40, system, text)
	}
	return b.String()
}

func TestReplayOfBodies(t *testing.T) {
	var out, plot, progress bytes.Buffer
	err := Run(context.Background(), []io.Reader{strings.NewReader(conversations(2500))}, &out, Options{Warm: 0.1, Plot: &plot, Progress: &progress})
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.HasPrefix(lines[0], "2500 requests in 100 s") || !strings.Contains(lines[4], "warmroute") {
		t.Errorf("table:\n%s", out.String())
	}
	for _, name := range []string{"warmroute", "p2c", "least", "localai", "llm-d", "dynamo"} {
		if !strings.Contains(out.String(), name) || !strings.Contains(plot.String(), name+", mean") {
			t.Errorf("%s is missing", name)
		}
	}
	for d := xml.NewDecoder(&plot); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("the plot is not XML: %v", err)
		}
	}
	for _, want := range []string{"read 2000 requests", "warmroute: 2000 of 2500 requests", "dynamo: 1000 of"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("progress lacks %q", want)
		}
	}
}

// TestBodiesShareWhatTheirTextShares: turns of a conversation share their
// beginning, salts and models keep apart.
func TestBodiesShareWhatTheirTextShares(t *testing.T) {
	body := func(model, salt, text string) string {
		return fmt.Sprintf(`{"timestamp":1,"body":{"model":%q%s,"messages":[{"role":"user","content":%q}]}}`, model, salt, text) + "\n"
	}
	long := strings.Repeat("0123456789", 1000)
	in := body("m", "", long) + body("m", "", long+"more") + body("m", `,"cache_salt":"s"`, long) + body("n", "", long)
	trace, err := read(strings.NewReader(in), Options{}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	shared := func(i, k int) int {
		a, b, n := trace.Requests[i].Blocks, trace.Requests[k].Blocks, 0
		for n < len(a) && n < len(b) && a[n] == b[n] {
			n++
		}
		return n
	}
	if got := []int{shared(0, 1), shared(0, 2), shared(0, 3)}; got[0] != 4 || got[1] != 0 || got[2] != 0 {
		t.Errorf("blocks shared %v, want 4, 0 and 0", got)
	}
	if r := trace.Requests[0]; math.Abs(float64(r.Input)-2500) > 20 || r.Output != typicalOutput || len(r.Blocks) != 5 {
		t.Errorf("%d input tokens, %d output, %d blocks", r.Input, r.Output, len(r.Blocks))
	}
}

// TestBlockIDsAreTakenAtTheirWord: the same log as a trace gives the same run.
func TestBlockIDsAreTakenAtTheirWord(t *testing.T) {
	want := simulator.Synthetic(500, 1)
	var log strings.Builder
	for _, r := range want.Requests {
		ids := strings.ReplaceAll(strings.Trim(fmt.Sprint(r.Blocks), "[]"), " ", ",")
		fmt.Fprintf(&log, `{"timestamp":%.9f,"input_length":%d,"output_length":%d,"hash_ids":[%s]}`+"\n", r.At, r.Input, r.Output, ids)
	}
	got, err := read(strings.NewReader(log.String()), Options{Seconds: true}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	o, err := Options{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	hw, _ := o.engine(0, pace{})
	a, _ := o.simulate("llm-d", 4, want, hw)
	b, _ := o.simulate("llm-d", 4, got, hw)
	if a.Hit != b.Hit || math.Abs(a.Mean-b.Mean) > 1e-3*a.Mean {
		t.Errorf("hits %g and %g, mean %g and %g", a.Hit, b.Hit, a.Mean, b.Mean)
	}
}

func TestBadLogsAreRefusedByLine(t *testing.T) {
	const good = `{"timestamp":5,"input_length":512,"output_length":1,"hash_ids":[1]}` + "\n"
	for in, want := range map[string]string{
		"":                                      "the log is empty",
		"x":                                     "line 1:",
		good + `{"timestamp":4,"hash_ids":[1]}`: "line 2: timestamp 4 is before",
		good + `{"timestamp":6}`:                "line 2: there is neither body nor hash_ids",
		`{"timestamp":6,"body":{"model":"m"}}`:  "line 1: request body: no_prompt",
		`{"timestamp":6,"path":"/x","body":{}}`: `line 1: path "/x" is not`,
		`{"timestamp":6,"hash_ids":[]}`:         "line 1: the prompt is empty",
		`{"timestamp":6,"input_length":513,"hash_ids":[1]}`: "line 1: 513 input tokens are more than 1 blocks",
	} {
		err := Run(context.Background(), []io.Reader{strings.NewReader(in)}, io.Discard, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", in, err, want)
		}
	}
	for want, o := range map[string]Options{
		"replicas: 65":             {Replicas: []int{65}},
		`there is none called "x"`: {Rivals: []string{"x"}},
		"must be positive":         {Speedup: -1},
	} {
		if err := Run(context.Background(), []io.Reader{strings.NewReader(good)}, io.Discard, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", o, err, want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Run(ctx, []io.Reader{strings.NewReader(good)}, io.Discard, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
