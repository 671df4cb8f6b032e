package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/internal/reporter"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

// running is a sidecar of a publisher, started with flags; it ends with the test.
func running(t *testing.T, addr string, flags ...string) *kvtest.Publisher {
	t.Helper()
	p := must.Get(kvtest.Start(kvtest.Options{}))(t)
	t.Cleanup(p.Close)
	args := append([]string{"-endpoint", p.Endpoint(), "-replay", p.ReplayEndpoint(), "-index", addr, "-replica", "10.0.0.1:8000",
		"-model", "m", "-hash-scheme", "engine"}, flags...)
	testenv.Run(t, func(ctx context.Context) error { return run(ctx, args, io.Discard, io.Discard) })
	return p
}

// stored is a chain's block n of two tokens.
func stored(n uint64) kvtest.Event {
	e := kvtest.Event{Kind: kvtest.Stored, Hashes: []uint64{100 + n}, Tokens: []uint32{1, 2}, BlockSize: 2}
	if n > 0 {
		parent := 99 + n
		e.Parent = &parent
	}
	return e
}

// TestDurationsAreChecked: none of them may be zero, negative or not a duration.
func TestDurationsAreChecked(t *testing.T) {
	for _, name := range []string{"-window", "-rpc-timeout", "-backoff", "-reconnect-after", "-metrics-every", "-metrics-timeout"} {
		for value, want := range map[string]string{
			"0s": name + " 0s: must be positive", "-1s": name + " -1s: must be positive",
			"soon": `invalid value "soon" for flag ` + name, "5": `invalid value "5" for flag ` + name,
		} {
			if _, err := parse(reportingArgs(name, value), io.Discard); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s %s: error %v, want %q", name, value, err, want)
			}
		}
		if _, err := parse(reportingArgs(name, "1ns"), io.Discard); err != nil {
			t.Errorf("%s 1ns: %v", name, err)
		}
	}
}

// TestOddValuesAreOneSentence: each mistake is told in one sentence that names its flag.
func TestOddValuesAreOneSentence(t *testing.T) {
	const connect = " lacks a host or a port to connect to"
	for _, c := range []struct{ name, value, want string }{
		{"-rank", "-1", "-rank -1: must be between 0 and 2147483647"},
		{"-rank", "4294967296", "-rank 4294967296: must be between 0 and 2147483647"}, // rank 0 in 32 bits
		{"-rank", "NaN", `invalid value "NaN" for flag -rank: parse error`},
		{"-index", "", `-index: "" is not host:port`},
		{"-index", ",", `-index: "," is not host:port`},
		{"-index", "a:1,b:2", `-index: "a:1,b:2" is not host:port`},
		{"-index", ":", `-index: ":"` + connect},
		{"-index", "h:0", `-index: "h:0"` + connect},
		{"-index", "h:65536", `-index: "h:65536" has no port between 0 and 65535`},
		{"-endpoint", "tcp://h:65536", `-endpoint: endpoint "tcp://h:65536": has no port between 1 and 65535`},
		{"-endpoint", "tcp://h:0", `-endpoint: endpoint "tcp://h:0": has no port between 1 and 65535`},
		{"-replay", "tcp://h:-1", `-replay: endpoint "tcp://h:-1": has no port between 1 and 65535`},
		{"-replay", "tcp://h:1", "-replay: is that of -endpoint; events and replays have a port each"},
		{"-metrics", "http://", `-metrics: "http://" is no address such as http://127.0.0.1:8000/metrics`},
		{"-metrics", "/metrics", `-metrics: "/metrics" is no address such as http://127.0.0.1:8000/metrics`},
		{"-metrics", "http://h:65536/metrics", `-metrics: "h:65536" has no port between 0 and 65535`},
		{"-admin", ":65536", `-admin: ":65536" has no port between 0 and 65535`},
		{"-cache-tier", "", `-cache-tier "": want auto, kv, gpu or cpu`},
		{"-cache-tier", "GPU", `-cache-tier "GPU": want auto, kv, gpu or cpu`},
		{"-ceiling", "-1", "-ceiling -1: must not be negative"},
		{"-ceiling", "1.5", `invalid value "1.5" for flag -ceiling: parse error`},
		{"-hash-scheme", "engine:", `-hash-scheme "engine:": want tokens, engine or engine:NAME, NAME of letters, digits, dots, hyphens and underscores`},
		{"-hash-scheme", "engine:a b", `-hash-scheme "engine:a b": want tokens, engine or engine:NAME, NAME of letters, digits, dots, hyphens and underscores`},
		{"-hash-scheme", "sha256", `-hash-scheme "sha256": want tokens, engine or engine:NAME, NAME of letters, digits, dots, hyphens and underscores`},
	} {
		var said strings.Builder
		_, err := parse(reportingArgs(c.name, c.value), &said)
		if err == nil || err.Error() != c.want || said.Len() > 0 {
			t.Errorf("%s %s: error %v, want %s; said %q", c.name, c.value, err, c.want, said.String())
		}
	}
	for _, fine := range []string{"-rank=2147483647", "-index=[::1]:1", "-metrics=https://h/m", "-metrics=http://h:1", "-admin=:0", "-replay=ipc:///tmp/r",
		"-cache-tier=auto", "-cache-tier=kv", "-cache-tier=gpu", "-cache-tier=cpu", "-ceiling=0", "-ceiling=256"} {
		if _, err := parse(reportingArgs(fine), io.Discard); err != nil {
			t.Errorf("%s: %v", fine, err)
		}
	}
}

// patience is how long a test waits for what the index or the sidecar does.
const patience = 15 * time.Second

// TestFlagsReachTheirParts: the reporter has its own flags, and the reports of stats theirs.
func TestFlagsReachTheirParts(t *testing.T) {
	o := must.Get(parse(reportingArgs("-window", "1s", "-rpc-timeout", "2s", "-backoff", "3s", "-tenant", "blue", "-metrics-every", "4s",
		"-metrics-timeout", "5s", "-metrics-model", "a", "-cache-tier", "cpu", "-ceiling", "8"), io.Discard))(t)
	log := slog.New(slog.DiscardHandler)
	if got, want := o.reporting(log), (reporter.Options{Tenant: "blue", Model: "m", Window: time.Second, Timeout: 2 * time.Second, Backoff: 3 * time.Second, Log: log}); got.Now != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the reporter has %+v, want %+v", got, want)
	}
	if o.statsEvery != 4*time.Second || o.patience != 5*time.Second || o.modelName != "a" || o.tier != "cpu" || o.ceiling != 8 {
		t.Errorf("the reports of stats have %+v", o)
	}
}
