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
	p, err := kvtest.Start(kvtest.Options{Encoding: enc, Topic: "kv@a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.PublishRaw(enc.Batch(1.5, 2, kvtest.Event{Kind: kvtest.Cleared}))
	return p
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
		{[]string{"-print", "-endpoint", "tcp://h:1", "-replay", "h"}, `replay endpoint "h"`},
		{[]string{"-nope"}, "-nope"},
		{reportingArgs("-hash-scheme", ""), "-hash-scheme: must be given"},
		{reportingArgs("-hash-scheme", "sha256"), `-hash-scheme "sha256": want tokens, engine or engine:NAME`},
		{reportingArgs("-hash-scheme", "engine:"), `-hash-scheme "engine:"`},
		{reportingArgs("-hash-scheme", "engine:a b"), `-hash-scheme "engine:a b"`},
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
	p, err := kvtest.Start(kvtest.Options{Encoding: enc, Topic: "kv@a"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	tokens := make([]uint32, 32)
	p.PublishRaw(enc.Batch(1.5, 0, kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{1, 2}, Tokens: tokens, BlockSize: 16}))
	got := lines(t, 1, "-print", "-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint(), "-topic", "kv@a")
	in := got[0] + "\n" + `{"query":{"tokens":[` + strings.Repeat("0,", 32) + `0]}}` + "\n"
	var out strings.Builder
	if err := predict.Run(strings.NewReader(in), &out, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), `{"cached":32,`) {
		t.Errorf("%s\n%s", got[0], out.String())
	}
}
