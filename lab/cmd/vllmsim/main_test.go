package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"warmroute/lab/vllmsim"
)

func TestParse(t *testing.T) {
	o, err := parse([]string{
		"-listen", "127.0.0.1:0", "-events", "*:5557", "-alias", "a", "-alias", "b", "-lora", "sql=/adapters/sql",
		"-group", "sliding_window,window=512,block=32", "-group", "full_attention", "-eagle", "0,1", "-retention=-1",
		"-version", "0.21.0", "-hash-seed", "", "-fail-delay-events", "20ms",
	}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if o.Events != ":5557" || strings.Join(o.Aliases, " ") != "a b" || o.LoRAs[0].Path != "/adapters/sql" ||
		o.Version != vllmsim.V021 || o.HashSeed == nil || o.Faults.EventDelay.Milliseconds() != 20 {
		t.Errorf("parsed %+v", o)
	}
	if len(o.Groups) != 2 || o.Groups[0] != (vllmsim.Group{Kind: vllmsim.SlidingWindow, Window: 512, BlockSize: 32}) || len(o.Eagle) != 2 || o.Retention != vllmsim.Dense {
		t.Errorf("groups %+v, EAGLE in %v, retention %d", o.Groups, o.Eagle, o.Retention)
	}
}

func TestRunRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"-lora is":        {"-lora", "sql"},
		"is not a flag":   {"serve"},
		"BlockSize is -1": {"-block-size=-1", "-blocks", "9"},
		"not defined":     {"-nonsense"},
		"is not block":    {"-group", "mamba,size=3"},
		"window of 0":     {"-group", "sliding_window"},
		"are for version": {"-group", "mamba", "-version", "0.21.0"},
		"Eagle names":     {"-eagle", "3"},
		"kind \"other\"":  {"-group", "other"},
	} {
		err := run(context.Background(), args, io.Discard, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}

// TestVersion: "-version" alone is the program's own; with a release it is vLLM's.
func TestVersion(t *testing.T) {
	for _, arg := range []string{"version", "-version"} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, &out, io.Discard); err != nil || !strings.HasPrefix(out.String(), "vllmsim ") || !strings.Contains(out.String(), " go1.") {
			t.Errorf("%s: %q, %v", arg, out.String(), err)
		}
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var said bytes.Buffer
	if err := run(ctx, []string{"-listen", "127.0.0.1:0"}, io.Discard, &said); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "address=127.0.0.1:") {
		t.Errorf("said %q", said.String())
	}
}
