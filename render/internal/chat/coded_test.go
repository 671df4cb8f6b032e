package chat

import (
	"strings"
	"testing"
	"time"

	"warmroute/render/openai"
)

func write(t *testing.T, o Options, body string) (Rendered, error) {
	t.Helper()
	return newRenderer(t, o).Render(nil, nil, parse(t, openai.Chat, body), time.Date(2026, 3, 5, 23, 58, 0, 0, time.UTC))
}

// vLLM 0.33 changed DeepSeek V4.1: results of tools alone open no turn, so the thoughts
// before them stay, and the image's token is refused in texts.
func TestDeepSeekV41OfTwoVersions(t *testing.T) {
	const body = `"messages":[{"role":"user","content":"a"},{"role":"assistant","reasoning":"THOUGHT","tool_calls":[{"id":"c","type":"function",
		"function":{"name":"f","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c","content":"r"}]`
	for version, kept := range map[string]bool{"0.32.0": false, "0.33.0": true, "0.34.1": true, "1.0.0": true} {
		out, err := write(t, Options{Model: Model{Type: "deepseek_v41"}, Version: version}, body)
		if err != nil || strings.Contains(string(out.Text), "THOUGHT") != kept {
			t.Errorf("%q: %v %s", version, err, out.Text)
		}
		_, err = write(t, Options{Model: Model{Type: "deepseek_v41"}, Version: version}, `"messages":[{"role":"user","content":"<｜deepseek_image｜>"}]`)
		if got := whyOf(err) == Rejected; got != kept {
			t.Errorf("%q: %v", version, err)
		}
	}
}

func TestHarmonyTellsTheDay(t *testing.T) {
	const body = `"messages":[{"role":"user","content":"a"}]`
	for _, c := range []struct {
		o     Options
		day   string
		times int
	}{
		{Options{}, "2026-03-05", 2},
		{Options{Location: time.FixedZone("", 3600)}, "2026-03-06", 1},
		{Options{StartDate: "2025-12-31"}, "2025-12-31", 1},
	} {
		c.o.Model.Type, c.o.Version = "gpt_oss", "0.32.0"
		out, err := write(t, c.o, body)
		moments := newRenderer(t, c.o).Moments(time.Date(2026, 3, 5, 23, 58, 0, 0, time.UTC))
		if err != nil || len(moments) != c.times || !strings.Contains(string(out.Text), "\nCurrent date: "+c.day+"\n") {
			t.Errorf("%+v: %v %v %s", c.o.StartDate, moments, err, out.Text)
		}
	}
}

// Around midnight of the servers there are two days that a prompt may contain.
func TestMoments(t *testing.T) {
	r := newRenderer(t, Options{Model: Model{Type: "gpt_oss"}, Location: time.FixedZone("", 2*3600)})
	for clock, days := range map[string][]int{"2026-03-05T12:00:00Z": {5}, "2026-03-05T21:54:59Z": {5}, "2026-03-05T21:57:00Z": {5, 6},
		"2026-03-05T22:03:00Z": {6, 5}, "2026-03-05T22:06:00Z": {6}} {
		now, err := time.Parse(time.RFC3339, clock)
		if err != nil {
			t.Fatal(err)
		}
		moments := r.Moments(now)
		if len(moments) != len(days) {
			t.Errorf("%s: %v", clock, moments)
			continue
		}
		for i, m := range moments {
			if m.Day() != days[i] {
				t.Errorf("%s: %v", clock, moments)
			}
		}
	}
}

// serde_json reads some numbers as their neighbours, and writes them so.
func TestSerdeFloats(t *testing.T) {
	for number, want := range map[string]string{"123456789.12345679": "123456789.1234568", "1e+22": "1e+22", "1e-07": "1e-7", "1e-05": "0.00001", "1e+16": "1e+16",
		"1000000000000000.0": "1000000000000000.0", "2.5e-320": "2.5e-320", "5e-324": "5e-324", "-0.0": "-0.0", "18446744073709551616": "1.8446744073709552e+19",
		"-123456789012345678901234567890": "-1.2345678901234568e+29", "1.7976931348623157e+308": "1.7976931348623157e+308", "0.1": "0.1"} {
		ts := &typescript{}
		if got := string(ts.appendFloat(nil, number)); got != want || ts.unknown {
			t.Errorf("%s: %s, want %s", number, got, want)
		}
	}
	ts := &typescript{}
	if ts.appendFloat(nil, "1e400"); !ts.unknown {
		t.Error("a number out of range")
	}
}
