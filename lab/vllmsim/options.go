package vllmsim

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// Version is the vLLM release that a replica simulates.
type Version string

// The releases that a replica can simulate. They differ in the wire form of KV events
// (arrays or maps), in the extra keys that block hashes cover, in the order in which the
// pool reuses freed blocks, in the frames of the replay reply, and in the routes
// (only 0.32 has /kv_event_sources, /v1/responses/render and /v1/messages/render).
const (
	V021 Version = "0.21.0"
	V032 Version = "0.32.0"
)

// The policies for a request whose KV does not arrive: vLLM's kv_load_failure_policy.
const (
	Fail      = "fail"      // it ends with an error
	Recompute = "recompute" // its prompt is computed here
)

// Dense is the Retention that keeps every block (vLLM's None).
const Dense = -1

// LoRA is an adapter that the replica serves besides its base model.
type LoRA struct {
	Name string
	Path string
}

// Faults are ways in which a replica can misbehave. The zero value has none.
// Sim.SetFaults changes them while the replica runs.
type Faults struct {
	DropEvery  int           // subscribers do not get every DropEvery-th event batch (replay still has it); 0: they get all
	DropAll    bool          // subscribers get no batch (replay has them all)
	EventDelay time.Duration // the publisher sends each batch this much later
	ErrorEvery int           // every ErrorEvery-th generation request gets a 500; 0: none
	Stall      bool          // HTTP requests hang until their client leaves; the replica still accepts connections
	NoRender   bool          // /render and /tokenize hang until their client leaves

	// Faults of legs, the requests that compute a prompt for another replica.
	LegDelay    time.Duration // legs begin this much later
	LegStatus   int           // legs are answered with this status; 0: as they should be
	LegReset    bool          // the connection breaks instead of an answer
	LegNoParams bool          // answers have no kv_transfer_params

	TransferFails bool // this replica pulls no KV from others: its transfers fail
}

// Options describe a replica. A zero field means its default.
type Options struct {
	Listen string // HTTP address, default "127.0.0.1:0" (any free port)
	Events string // "host:port" of the KV event publisher, rank r on port+r; port 0: any free one per rank; "": no events
	Replay string // "host:port" of the replay socket, the same way; "": no replay
	Topic  string // topic of event batches, default ""

	BufferSteps int // batches kept for replay, default 10000 (vLLM's)

	Version  Version  // default V032
	Model    string   // served model name, default "sim"
	Root     string   // path of the model's files, as in /v1/models, default "/models/" + Model
	Aliases  []string // further names of the same model
	LoRAs    []LoRA   // adapters
	MaxLoRAs int      // adapters in one batch, default 1 (vLLM's)

	BlockSize   int // tokens per KV block, default 16
	Blocks      int // KV blocks per data-parallel rank, the reserved null block included (vLLM's num_gpu_blocks), default 2048
	MaxModelLen int // tokens per request, default 32768 or the cache's tokens, whichever is less

	Groups    []Group // KV cache groups, default one of full attention
	Retention int     // prefix_cache_retention_interval: 0 keeps the latest position to resume from, Dense all; it concerns windows and Mamba
	Eagle     []int   // groups that drop the last block of a hit, as with EAGLE and MTP
	Draft     int     // draft tokens that get slots; the engine drafts none

	HashAlgorithm string  // sha256 (default), sha256_cbor, xxhash, xxhash_cbor
	HashSeed      *string // PYTHONHASHSEED; nil: vLLM's default root, or a draw from Seed if vLLM's is random
	HashBytes     bool    // publish hashes as bytes (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0)

	DataParallel int // data-parallel ranks, default 1

	PrefillRate      float64 // prompt tokens per second of one rank, default 8000; < 0: takes no time
	DecodeRate       float64 // decode steps per second of one rank, default 50; < 0: takes no time
	MaxRunning       int     // sequences in a batch (max_num_seqs), default 256
	MaxBatchedTokens int     // tokens scheduled in a step (max_num_batched_tokens), default 2048
	OutputTokens     int     // answer length if the request gives no limit, default 32
	ImageTokens      int     // placeholder tokens of one image, default 64

	Connector    string        // its KV connector, Nixl; "": none
	LoadFailure  string        // Fail (vLLM's default) or Recompute: what becomes of a request whose KV does not arrive
	Lease        time.Duration // how long the KV of a prompt is kept for another replica, default 30 s (vLLM's)
	Handover     time.Duration // of a pull beside its tokens, default 5 ms; < 0: none
	TransferRate float64       // tokens pulled per second, default 200000; < 0: takes no time

	NoPromptDetails bool // as without --enable-prompt-tokens-details: chat and completions report no cached tokens
	NoScaleOut      bool // as without --enable-scale-out: 0.32's /render routes answer 403
	NoDevMode       bool // as without VLLM_SERVER_DEV_MODE=1: no /reset_prefix_cache

	Seed int64 // of the answers and random hash roots that the simulator makes up

	// Generate returns the n-th (from 0) token of the answer to prompt; nil: words made
	// up from Seed and the prompt.
	Generate func(prompt []uint32, n int) uint32

	// Front wraps the HTTP API, to answer some requests in another way; nil: no wrapper.
	Front func(api http.Handler) http.Handler

	Faults Faults
}

func (o Options) withDefaults() Options {
	setString := func(p *string, v string) {
		if *p == "" {
			*p = v
		}
	}
	setInt := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	setString(&o.Listen, "127.0.0.1:0")
	setString((*string)(&o.Version), string(V032))
	setString(&o.Model, "sim")
	setString(&o.Root, "/models/"+o.Model)
	setString(&o.HashAlgorithm, "sha256")
	setInt(&o.BufferSteps, 10_000)
	setInt(&o.MaxLoRAs, 1)
	setInt(&o.BlockSize, 16)
	setInt(&o.Blocks, 2048)
	o.groupDefaults()
	setInt(&o.MaxModelLen, min(32768, (o.Blocks-1)*o.BlockSize))
	setInt(&o.DataParallel, 1)
	setInt(&o.MaxRunning, 256)
	setInt(&o.MaxBatchedTokens, 2048)
	setInt(&o.OutputTokens, 32)
	setInt(&o.ImageTokens, 64)
	if o.PrefillRate == 0 {
		o.PrefillRate = 8000
	}
	if o.DecodeRate == 0 {
		o.DecodeRate = 50
	}
	setString(&o.LoadFailure, Fail)
	if o.Lease == 0 {
		o.Lease = 30 * time.Second
	}
	if o.Handover == 0 {
		o.Handover = 5 * time.Millisecond
	}
	if o.TransferRate == 0 {
		o.TransferRate = 200_000
	}
	return o
}

// validate reports every problem of o after defaults, one sentence each.
func (o Options) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("vllmsim: "+format, args...)) }
	positive := func(name string, v int) {
		if v < 1 {
			bad("%s is %d, it must be at least 1", name, v)
		}
	}
	if o.BlockSize < 1 || o.BlockSize > 4096 {
		bad("BlockSize is %d, it must be between 1 and 4096", o.BlockSize)
	}
	positive("BufferSteps", o.BufferSteps)
	positive("DataParallel", o.DataParallel)
	positive("MaxRunning", o.MaxRunning)
	positive("MaxBatchedTokens", o.MaxBatchedTokens)
	positive("OutputTokens", o.OutputTokens)
	positive("ImageTokens", o.ImageTokens)
	positive("MaxLoRAs", o.MaxLoRAs)
	if o.Blocks < 2 {
		bad("Blocks is %d, it must be at least 2: one is the null block", o.Blocks)
	} else if o.MaxModelLen < 2 || o.MaxModelLen > (o.Blocks-1)*o.BlockSize {
		bad("MaxModelLen is %d, it must be between 2 and the cache's %d tokens", o.MaxModelLen, (o.Blocks-1)*o.BlockSize)
	}
	if err := o.validateGroups(); err != nil {
		errs = append(errs, err)
	}
	if o.Version != V021 && o.Version != V032 {
		bad("Version is %q, it must be %q or %q", o.Version, V021, V032)
	}
	if !knownAlgorithm(o.HashAlgorithm) {
		bad("HashAlgorithm is %q, it must be sha256, sha256_cbor, xxhash or xxhash_cbor", o.HashAlgorithm)
	}
	if o.Faults.DropEvery < 0 || o.Faults.ErrorEvery < 0 || o.Faults.EventDelay < 0 {
		bad("Faults must not be negative")
	}
	if o.Replay != "" && o.Events == "" {
		bad("Replay is %q but Events is empty: there is nothing to replay", o.Replay)
	}
	names := map[string]bool{}
	for _, n := range o.names() {
		if n == "" || names[n] {
			bad("the model name %q is empty or given twice", n)
		}
		names[n] = true
	}
	for _, a := range []struct{ field, addr string }{{"Listen", o.Listen}, {"Events", o.Events}, {"Replay", o.Replay}} {
		if a.addr == "" {
			continue
		}
		if _, err := rankAddr(a.addr, o.DataParallel-1); err != nil {
			bad("%s is %q, it must be host:port: %v", a.field, a.addr, err)
		}
	}
	o.validateConnector(bad)
	return errors.Join(errs...)
}

func (o Options) validateConnector(bad func(format string, args ...any)) {
	switch o.Connector {
	case "", Nixl:
	default:
		bad("Connector is %q, it must be %s", o.Connector, Nixl)
	}
	if o.Connector != "" && (len(o.Groups) != 1 || !o.Groups[0].full()) {
		bad("Connector is %q, which is simulated for one group of full attention alone", o.Connector)
	}
	if o.LoadFailure != Fail && o.LoadFailure != Recompute {
		bad("LoadFailure is %q, it must be %s or %s", o.LoadFailure, Fail, Recompute)
	}
	if o.Lease < 0 {
		bad("Lease is %v, it must not be negative", o.Lease)
	}
}

// names returns all model names that the replica accepts.
func (o Options) names() []string {
	names := append([]string{o.Model}, o.Aliases...)
	for _, l := range o.LoRAs {
		names = append(names, l.Name)
	}
	return names
}

// rankAddr returns addr with its port moved by rank (vLLM's offset_endpoint_port); the
// system chooses a port in place of 0.
func rankAddr(addr string, rank int) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", fmt.Errorf("port %q: %w", port, err)
	}
	if n != 0 {
		n += uint64(rank)
	}
	if n > 65535 {
		return "", fmt.Errorf("port %d of rank %d is above 65535", n, rank)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n, 10)), nil
}
