package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"warmroute/internal/cli/predict"
	"warmroute/internal/kvevents/kvtest"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// lines runs kvsub with args and returns its next n lines.
func lines(t *testing.T, n int, args ...string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	in, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, args, out, io.Discard)
		out.CloseWithError(io.EOF)
		done <- err
	}()
	var got []string
	for s := bufio.NewScanner(in); len(got) < n && s.Scan(); {
		got = append(got, s.Text())
	}
	cancel()
	go io.Copy(io.Discard, in)
	if err := <-done; err != nil {
		t.Errorf("run: %v", err)
	}
	if len(got) < n {
		t.Fatalf("%d lines, want %d: %v", len(got), n, got)
	}
	return got
}

func publish(t *testing.T, enc kvtest.Encoding) *kvtest.Publisher {
	t.Helper()
	p := must.Get(kvtest.Start(kvtest.Options{Encoding: enc, Topic: "kv@a"}))(t)
	t.Cleanup(p.Close)
	parent := uint64(5)
	p.PublishRaw(enc.Batch(1.5, 2,
		kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1 << 63, 7}, Parent: &parent, Tokens: []uint32{11, 12, 13, 14}, BlockSize: 2,
			LoRA: "sql", Extras: [][]any{{"sql", "pepper"}, {"sql", []any{"img", 1}}}},
		kvtest.Event{Kind: kvtest.Removed, Hashes: []uint64{7}, Medium: "CPU"},
		kvtest.Event{Kind: kvtest.Cleared},
		kvtest.Event{Kind: "BlockMoved"}))
	return p
}

func TestPrint(t *testing.T) {
	for name, c := range map[string]struct {
		enc    kvtest.Encoding
		hashes string
		parent string
	}{
		"arrays, ints": {kvtest.Encoding{Generation: kvtest.Arrays}, "[9223372036854775808,7]", "5"},
		"maps, bytes": {kvtest.Encoding{Generation: kvtest.Maps, Bytes: true},
			`["a5a5a5a5a5a5a525a5a5a5a5a5a5a525a5a5a5a5a5a5a5258000000000000000","a2a5a5a5a5a5a5a5a2a5a5a5a5a5a5a5a2a5a5a5a5a5a5a50000000000000007"]`,
			`"a0a5a5a5a5a5a5a5a0a5a5a5a5a5a5a5a0a5a5a5a5a5a5a50000000000000005"`},
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t, c.enc)
			got := lines(t, 4, "-print", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint(), "-topic", "kv@a")
			want := `{"seq":0,"time":1.5,"rank":2,"event":"stored","hashes":` + c.hashes + `,"parent":` + c.parent +
				`,"block_size":2,"tokens":4,"medium":"GPU","lora":"sql"}`
			if got[0] != want {
				t.Errorf("stored:\n%s\nwant\n%s", got[0], want)
			}
			if !strings.Contains(got[1], `"event":"removed"`) || !strings.Contains(got[1], `"medium":"CPU"`) ||
				got[2] != `{"seq":0,"time":1.5,"rank":2,"event":"cleared"}` || got[3] != `{"seq":0,"time":1.5,"event":"unknown","events":1}` {
				t.Errorf("the rest:\n%s", strings.Join(got[1:], "\n"))
			}
			if all := strings.Join(got, ""); strings.Contains(all, "pepper") || strings.Contains(all, "token_ids") {
				t.Errorf("a salt or token ids without being asked for: %s", all)
			}
		})
	}
}

func TestPrintTokens(t *testing.T) {
	p := publish(t, kvtest.Encoding{Generation: kvtest.Maps})
	got := lines(t, 1, "-print", "-tokens", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint())
	if want := `"token_ids":[11,12,13,14],"extra_keys":[["sql","pepper"],["sql",["img",1]]]}`; !strings.HasSuffix(got[0], want) {
		t.Errorf("%s\nwant at its end\n%s", got[0], want)
	}
}

// TestPrintBegin: a new life of the publisher is a line of its own.
func TestPrintBegin(t *testing.T) {
	p := publish(t, kvtest.Encoding{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	go func() {
		if p.WaitSubscribers(ctx, 1) == nil && p.WaitRequests(ctx, 2) == nil { // the second: history has arrived
			p.Restart()
			p.Publish(kvtest.Event{Kind: kvtest.Cleared})
		}
	}()
	got := lines(t, 6, "-print", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint())
	if got[4] != `{"event":"begin","incarnation":2}` || !strings.Contains(got[5], `"seq":0`) {
		t.Errorf("%s", strings.Join(got[4:], "\n"))
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("no space") }

func TestPrintFails(t *testing.T) {
	p := publish(t, kvtest.Encoding{})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := run(ctx, []string{"-print", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint()}, broken{}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("error %v", err)
	}
}

func TestOptions(t *testing.T) {
	ended, end := context.WithCancel(t.Context()) // an accepted command line ends at once, without an error
	end()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-print"}, "-endpoint: must be given"},
		{[]string{"-print", "-endpoint", "tcp://h:1", "x"}, `argument "x"`},
		{[]string{"-print", "-endpoint", "tcp://*:1"}, `endpoint "tcp://*:1"`},
		{[]string{"-print", "-endpoint", "tcp://h:1", "-replay", "h"}, `-replay: endpoint "h"`},
		{[]string{"-nope"}, "-nope"},
	} {
		if err := run(ended, c.args, io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: error %v, want %q", c.args, err, c.want)
		}
	}
}

// reportingArgs is a command line that could report, and the problem of it.
func reportingArgs(wrong ...string) []string {
	return append([]string{"-endpoint", "tcp://h:1", "-replica", "10.0.0.1:8000", "-model", "m", "-hash-scheme", "tokens"}, wrong...)
}

// TestPrintRaw: frames come as lab predict reads them, byte for byte.
func TestPrintRaw(t *testing.T) {
	enc := kvtest.Encoding{Generation: kvtest.Maps}
	p := must.Get(kvtest.Start(kvtest.Options{Encoding: enc, Topic: "kv@a"}))(t)
	t.Cleanup(p.Close)
	tokens := make([]uint32, 32)
	p.PublishRaw(enc.Batch(1.5, 0, kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1, 2}, Tokens: tokens, BlockSize: 16}))
	got := lines(t, 1, "-print", "-raw", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint(), "-topic", "kv@a")
	in := got[0] + "\n" + `{"query":{"tokens":[` + strings.Repeat("0,", 32) + `0]}}` + "\n"
	var out strings.Builder
	must.Do(t, predict.Run(strings.NewReader(in), &out, nil))
	if !strings.HasPrefix(out.String(), `{"cached":32,`) {
		t.Errorf("%s\n%s", got[0], out.String())
	}
}
