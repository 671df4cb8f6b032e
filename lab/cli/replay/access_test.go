package replay

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"warmroute/lab/simulator"
)

const accessLog = `{"time":"2026-03-05T12:00:00.000Z","method":"POST","route":"/v1/chat/completions","status":200,"prompt_tokens":1000,"predicted_tokens":800,"bytes_received":4000}
{"time":"2026-03-05T12:00:30.000Z","method":"POST","route":"/v1/chat/completions","status":200,"prompt_tokens":1000,"predicted_tokens":0,"bytes_received":4000}
{"time":"2026-03-05T12:00:40.000Z","method":"GET","route":"/v1/models","status":200,"prompt_tokens":null,"predicted_tokens":null,"bytes_received":0}
{"time":"2026-03-05T12:00:50.000Z","method":"POST","route":"/v1/completions","status":503,"prompt_tokens":9999,"predicted_tokens":9,"bytes_received":40}
{"time":"2026-03-05T12:01:00.000Z","method":"POST","route":"/v1/completions","status":200,"prompt_tokens":"-","predicted_tokens":null,"bytes_received":8000}
`

// TestAccessLogsHaveOtherLines: Envoy's own log lines do not count.
func TestAccessLogsHaveOtherLines(t *testing.T) {
	mixed := "[2026-03-05 12:00:00.000][1][info] starting\n" + strings.ReplaceAll(accessLog, "\n", "\n\n[info] more\n")
	if got, want := replayAccess(t, mixed), replayAccess(t, accessLog); got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
}

func replayAccess(t *testing.T, text string) string {
	t.Helper()
	var out bytes.Buffer
	if err := Run(t.Context(), []io.Reader{strings.NewReader(text)}, &out, Options{PrefillRate: 1000, Price: 2, GPUs: 1}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestAccessLogsAreSummedUp: 3 requests of 4,000 tokens in a minute are 4 s of prefill at
// 1,000 tokens/s: 48 GPU hours in 30 days.
func TestAccessLogsAreSummedUp(t *testing.T) {
	got := replayAccess(t, accessLog)
	for _, want := range []string{
		"3 requests in 60 s", "no policy can be simulated", "of 1 of them are estimated", "4000 prompt tokens: 4.0 s of prefill if nothing is cached, 48 GPU hours in 30 days, 96 in money",
		"40.0 % of them were cached, by the router's predictions (2 requests)", "left: 2.4 s, 29 GPU hours in 30 days, 58 in money",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	plain := strings.NewReplacer(`"prompt_tokens":1000,"predicted_tokens":800`, `"prompt_tokens":null`, `"prompt_tokens":1000,"predicted_tokens":0`, `"prompt_tokens":null`).Replace(accessLog)
	if got := replayAccess(t, plain); !strings.Contains(got, "the cached tokens are not known") || !strings.Contains(got, "shadow mode") {
		t.Errorf("without warmroute:\n%s", got)
	}
	shadow := strings.ReplaceAll(accessLog, `"predicted_tokens":`, `"withheld":"shadow","predicted_tokens":`)
	if got := replayAccess(t, shadow); !strings.Contains(got, "the cached tokens are not known") {
		t.Errorf("in shadow mode:\n%s", got)
	}
	told := strings.ReplaceAll(accessLog, `"predicted_tokens":800`, `"actual_cached_tokens":500,"actual_prompt_tokens":1000,"withheld":"shadow","predicted_tokens":800`)
	if got := replayAccess(t, told); !strings.Contains(got, "25.0 % of them were cached, as the replicas counted for 1 requests, for the others by the router") {
		t.Errorf("with the replicas' counts:\n%s", got)
	}
}

func TestBadAccessLogsAreRefused(t *testing.T) {
	first, _, _ := strings.Cut(accessLog, "\n")
	for want, text := range map[string]string{
		"line 2: unexpected end":   first + "\n{\n",
		`time "noon"`:              strings.Replace(first, "2026-03-05T12:00:00.000Z", "noon", 1),
		"no request with a prompt": strings.Replace(first, "200", "500", 1),
		"line 2: bufio.Scanner":    first + "\n" + strings.Repeat(" ", maxAccessLine+1),
	} {
		err := Run(t.Context(), []io.Reader{strings.NewReader(text)}, io.Discard, Options{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// FuzzInputs: any input is read or refused, and what is read can be simulated.
func FuzzInputs(f *testing.F) {
	f.Add(accessLog)
	f.Add(traceOf(2))
	f.Add(`{"timestamp":5,"input_length":512,"output_length":1,"hash_ids":[1]}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, kind, err := open([]io.Reader{strings.NewReader(text)})
		if err != nil {
			return
		}
		silent := func(int) {}
		var trace *simulator.Trace
		switch kind {
		case kindAccess:
			_, _ = readAccess(in, silent)
		case kindLog:
			trace, _ = read(in[0], Options{}, silent)
		case kindTrace:
			r, err := readTraces(in, silent)
			if err != nil || r.choose("") != nil {
				return
			}
			trace, _, _ = r.trace(r.block, 0)
			r.holders()
		}
		if trace == nil {
			return
		}
		for i, q := range trace.Requests {
			if i > 0 && q.At < trace.Requests[i-1].At || q.Input < 1 || q.Output < 1 {
				t.Errorf("request %+v", q)
			}
			for _, b := range append(slices.Clone(q.Blocks), q.Answer...) {
				if b < 0 || int(b) >= trace.Blocks {
					t.Errorf("block %d of %d", b, trace.Blocks)
				}
			}
		}
	})
}
