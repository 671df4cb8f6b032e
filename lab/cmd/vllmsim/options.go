package main

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"warmroute/lab/vllmsim"
)

// list collects the values of a repeated flag.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(s string) error { *l = append(*l, s); return nil }

// parse reads the command line into the options of one replica.
func parse(args []string, stderr io.Writer) (vllmsim.Options, error) {
	var o vllmsim.Options
	var aliases, loras, groups list
	f := flag.NewFlagSet("vllmsim", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8000", "HTTP `address`")
	f.StringVar(&o.Events, "events", "", "`address` of the KV event publisher, e.g. *:5557 (rank r: port + r); empty: no events")
	f.StringVar(&o.Replay, "replay", "", "`address` of the event replay socket (rank r: port + r); empty: no replay")
	f.StringVar(&o.Topic, "topic", "", "`topic` of event batches")
	f.IntVar(&o.BufferSteps, "buffer-steps", 10_000, "event batches kept for replay")
	f.StringVar((*string)(&o.Version), "version", string(vllmsim.V032), "vLLM release to behave as: 0.21.0 or 0.32.0")
	f.StringVar(&o.Model, "model", "sim", "served model `name`")
	f.StringVar(&o.Root, "root", "", "`folder` that the model was loaded from, by its word; empty: /models/NAME")
	f.Func("write-model", "`folder` that the simulated model's files are written to, as a hub has them", vllmsim.WriteModel)
	f.Var(&aliases, "alias", "further `name` of the model (repeatable)")
	f.Var(&loras, "lora", "adapter as `name=path` (repeatable)")
	f.IntVar(&o.MaxLoRAs, "max-loras", 1, "adapters in one batch")
	f.IntVar(&o.BlockSize, "block-size", 16, "tokens per KV block")
	f.IntVar(&o.Blocks, "blocks", 2048, "KV blocks per data-parallel rank, the null block included")
	f.IntVar(&o.MaxModelLen, "max-model-len", 0, "tokens per request; 0: 32768, or what the cache holds if that is less")
	f.Var(&groups, "group", "KV cache `group` as kind[,block=N][,window=N][,chunk=N], e.g. sliding_window,window=512 (repeatable, in vLLM's order); none: one of full_attention")
	f.IntVar(&o.Retention, "retention", 0, "prefix_cache_retention_interval of windows and Mamba states: 0 keeps the latest place to resume at, -1 all")
	f.Func("eagle", "`groups` that drop the last block of a hit, as with EAGLE or MTP, e.g. 0,1", func(s string) (err error) { o.Eagle, err = numbers(s); return err })
	f.IntVar(&o.Draft, "draft", 0, "draft tokens that slots are kept for")
	f.StringVar(&o.HashAlgorithm, "hash", "sha256", "block hash: sha256, sha256_cbor, xxhash or xxhash_cbor")
	f.BoolVar(&o.HashBytes, "hash-bytes", false, "publish hashes as bytes, not integers")
	f.Func("hash-seed", "PYTHONHASHSEED; not given: vLLM's default `root`", func(s string) error { o.HashSeed = &s; return nil })
	f.IntVar(&o.DataParallel, "data-parallel", 1, "data-parallel ranks")
	f.Float64Var(&o.PrefillRate, "prefill-rate", 8000, "prompt tokens per second of a rank; negative: prefill takes no time")
	f.Float64Var(&o.DecodeRate, "decode-rate", 50, "decode steps per second of a rank; negative: decode takes no time")
	f.IntVar(&o.MaxRunning, "max-running", 256, "sequences in a batch")
	f.IntVar(&o.MaxBatchedTokens, "max-batched-tokens", 2048, "tokens scheduled in a step")
	f.IntVar(&o.OutputTokens, "output-tokens", 32, "answer length where a request gives no limit")
	f.IntVar(&o.ImageTokens, "image-tokens", 64, "placeholder tokens of an image")
	f.StringVar(&o.Connector, "connector", "", "KV connector: NixlConnector, or empty for none")
	f.StringVar(&o.LoadFailure, "load-failure", vllmsim.Fail, "request whose KV does not arrive: fail (an error) or recompute")
	f.DurationVar(&o.Lease, "lease", 30*time.Second, "how long the KV of a prompt is kept for another replica")
	f.DurationVar(&o.Handover, "handover", 5*time.Millisecond, "time of a pull beside its tokens; negative: none")
	f.Float64Var(&o.TransferRate, "transfer-rate", 200_000, "tokens pulled per second; negative: a pull takes no time")
	f.BoolVar(&o.NoPromptDetails, "no-prompt-details", false, "as without --enable-prompt-tokens-details")
	f.BoolVar(&o.NoScaleOut, "no-scale-out", false, "as without --enable-scale-out: /render answers 403")
	f.BoolVar(&o.NoDevMode, "no-dev-mode", false, "as without VLLM_SERVER_DEV_MODE=1: no /reset_prefix_cache")
	f.Int64Var(&o.Seed, "seed", 0, "seed of everything made up")
	f.IntVar(&o.Faults.DropEvery, "fail-drop-events", 0, "do not send every N-th event batch (replay has it); 0: send all")
	f.DurationVar(&o.Faults.EventDelay, "fail-delay-events", 0, "publish each event batch this much later")
	f.IntVar(&o.Faults.ErrorEvery, "fail-errors", 0, "answer every N-th generation request with 500; 0: none")
	f.BoolVar(&o.Faults.Stall, "fail-stall", false, "accept requests and never answer")
	f.BoolVar(&o.Faults.NoRender, "fail-render", false, "never answer /render and /tokenize")
	f.DurationVar(&o.Faults.LegDelay, "fail-leg-delay", 0, "begin legs, which compute a prompt for another replica, this much later")
	f.IntVar(&o.Faults.LegStatus, "fail-leg-status", 0, "answer legs with this `status`; 0: as they should be")
	f.BoolVar(&o.Faults.LegReset, "fail-leg-reset", false, "break the connection of legs")
	f.BoolVar(&o.Faults.LegNoParams, "fail-leg-params", false, "answer legs without kv_transfer_params")
	f.BoolVar(&o.Faults.TransferFails, "fail-transfer", false, "pull no KV from other replicas")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("vllmsim: the argument %q is not a flag", f.Arg(0))
	}
	o.Events, o.Replay = anyHost(o.Events), anyHost(o.Replay)
	o.Aliases = aliases
	for _, l := range loras {
		name, path, ok := strings.Cut(l, "=")
		if !ok {
			return o, fmt.Errorf("vllmsim: -lora is %q, it must be name=path", l)
		}
		o.LoRAs = append(o.LoRAs, vllmsim.LoRA{Name: name, Path: path})
	}
	for _, g := range groups {
		group, err := parseGroup(g)
		if err != nil {
			return o, fmt.Errorf("vllmsim: -group is %q: %w", g, err)
		}
		o.Groups = append(o.Groups, group)
	}
	return o, nil
}

// parseGroup reads kind[,block=N][,window=N][,chunk=N].
func parseGroup(s string) (vllmsim.Group, error) {
	kind, rest, _ := strings.Cut(s, ",")
	g := vllmsim.Group{Kind: vllmsim.Kind(kind)}
	for setting := range strings.SplitSeq(rest, ",") {
		if setting == "" {
			continue
		}
		name, value, _ := strings.Cut(setting, "=")
		field, ok := map[string]*int{"block": &g.BlockSize, "window": &g.Window, "chunk": &g.Chunk}[name]
		if !ok {
			return g, fmt.Errorf("%q is not block, window or chunk", name)
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			return g, fmt.Errorf("%s is %q, it must be a number", name, value)
		}
		*field = n
	}
	return g, nil
}

// numbers reads numbers between commas.
func numbers(s string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(part)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", part)
		}
		out = append(out, n)
	}
	return out, nil
}

// anyHost accepts ZeroMQ's form of "every interface" in an address.
func anyHost(addr string) string {
	if port, ok := strings.CutPrefix(addr, "*:"); ok {
		return ":" + port
	}
	return addr
}
