package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"
)

const (
	// maxRank bounds data-parallel ranks; vLLM deployments have tens.
	maxRank = 1023
	// maxBlockSize bounds tokens per block; vLLM's largest is in the hundreds,
	// hybrid models use a few thousand.
	maxBlockSize = 1 << 20
	// maxCount bounds every value: a greater number no longer counts by one.
	maxCount = 1 << 53
	// maxRequests bounds the requests of a rank; vLLM runs thousands at once.
	maxRequests = 1 << 20
	// pageBuffer must hold the longest wanted line: cache_config_info is about
	// 1.5 KB, lora_requests_info grows with the adapters in flight. Longer
	// lines are skipped, not stored.
	pageBuffer = 32 << 10
)

// pageBuffers are the buffers for reading pages: few are read at a time.
var pageBuffers = sync.Pool{New: func() any { return new([pageBuffer]byte) }}

// errPageTooLarge is returned when a /metrics page exceeds its limit.
var errPageTooLarge = errors.New("the metrics page is larger than the limit")

// page holds the wanted values of one /metrics page in Prometheus text format.
// It is read as a stream of lines through a fixed buffer: a line that is not
// wanted costs a search for its newline and no memory. A page can be reused
// without allocating; it is not safe for concurrent use.
type page struct {
	ranks   int    // the most ranks that are read; 0 = every possible one
	engines []Load // by ascending rank
	labels  labels
	bucket  bucket // of the first tokens

	start     float64 // process start, seconds since the epoch; 0 when not given
	blockSize int     // 0 when not given
	blocks    int     // num_gpu_blocks, 0 when not given
	hashAlgo  []byte
	hashUnit  int // prefix_match_unit
	loras     adapters
	connector string // whose metrics the page has; "" when it has none
	asleep    bool   // an engine is not awake
	discarded bool   // it has discarded its KV cache
	prefixOff bool   // enable_prefix_caching is off
	drafts    bool   // it has metrics of speculative decoding
}

// adapters are those with requests, by the series with the latest value.
type adapters struct {
	names []byte  // "running,…" and "waiting,…" joined by a comma
	stamp float64 // the value
	most  int     // 0 when not given
}

// labels are the wanted labels of one line; the slices point into the buffer.
type labels struct {
	rank             int
	bound            []byte // le
	blockSize        []byte
	blocks           []byte
	hashAlgo         []byte
	hashUnit         []byte
	prefixCaching    []byte
	running, waiting []byte
	maxLoRA          []byte
	sleep            []byte
	reason           []byte
}

// read replaces p's values by the values of the page in r, reading at most
// limit bytes.
func (p *page) read(r io.Reader, limit int64) error {
	p.reset()
	buf := pageBuffers.Get().(*[pageBuffer]byte)[:]
	defer pageBuffers.Put((*[pageBuffer]byte)(buf))
	have, skipping := 0, false // bytes of a line begun; inside a line too long
	for {
		n, err := r.Read(buf[have:])
		if limit -= int64(n); limit < 0 {
			return errPageTooLarge
		}
		data := buf[:have+n]
		for {
			i := bytes.IndexByte(data, '\n')
			if i < 0 {
				break
			}
			if !skipping {
				p.line(data[:i])
			}
			skipping = false
			data = data[i+1:]
		}
		have = copy(buf, data)
		if have == len(buf) {
			skipping, have = true, 0
		}
		if err == io.EOF {
			if have > 0 && !skipping {
				p.line(buf[:have])
			}
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (p *page) reset() {
	*p = page{ranks: p.ranks, engines: p.engines[:0], labels: p.labels, hashAlgo: p.hashAlgo[:0], loras: adapters{names: p.loras.names[:0]}}
}

// line reads one line. It ignores lines that it does not understand.
func (p *page) line(line []byte) {
	const prefix = "vllm:"
	if len(line) < len(prefix) || line[0] != 'v' && line[0] != 'p' && line[0] != 's' {
		return
	}
	i := bytes.IndexByte(line, '{')
	if i < 0 {
		i = bytes.IndexAny(line, " \t")
	}
	if i < 0 {
		return
	}
	name, rest := bytes.TrimRight(line[:i], " \t"), line[i:]
	switch string(name) {
	case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "sglang_token_usage":
		if e, v := p.value(rest); e != nil {
			e.KVUsage = max(e.KVUsage, min(v, 1))
		}
	case "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count":
		if e, v := p.value(rest); e != nil {
			e.Steps = max(e.Steps, 1) + v
		}
	case "vllm:num_requests_waiting_by_reason":
		if e, v := p.value(rest); e != nil && string(p.labels.reason) == "deferred" {
			e.Deferred = min(e.Deferred+v, maxRequests)
		}
	case "vllm:time_to_first_token_seconds_bucket":
		if v, ok := p.sample(rest); ok {
			p.firstTokens(v)
		}
	case "vllm:cache_config_info":
		if _, ok := p.sample(rest); ok && p.blockSize == 0 {
			if n, ok := atoi(p.labels.blockSize); ok && n > 0 && n <= maxBlockSize {
				p.blockSize = n
				p.blocks, _ = atoi(p.labels.blocks)
				p.hashAlgo = append(p.hashAlgo[:0], p.labels.hashAlgo...)
				p.hashUnit, _ = atoi(p.labels.hashUnit)
				p.prefixOff = string(p.labels.prefixCaching) == "False"
			}
		}
	case "vllm:lora_requests_info":
		if v, ok := p.sample(rest); ok && v >= p.loras.stamp {
			p.loras.stamp = v
			p.loras.names = append(p.loras.names[:0], p.labels.running...)
			p.loras.names = append(p.loras.names, ',')
			p.loras.names = append(p.loras.names, p.labels.waiting...)
			p.loras.most, _ = atoi(p.labels.maxLoRA)
		}
	case "vllm:engine_sleep_state":
		if v, ok := p.sample(rest); ok {
			awake := string(p.labels.sleep) == "awake"
			p.asleep = p.asleep || awake && v == 0
			p.discarded = p.discarded || !awake && v > 0
		}
	case "process_start_time_seconds":
		if v, ok := p.sample(rest); ok {
			p.start = v
		}
	default:
		p.drafts = p.drafts || bytes.HasPrefix(name, []byte("vllm:spec_decode_"))
		p.connector = cmp.Or(p.connector, connectorOf(name))
		if sum := sums[string(name)]; sum != nil {
			if e, v := p.value(rest); e != nil {
				*sum(e) += v
				e.Running, e.Waiting = min(e.Running, maxRequests), min(e.Waiting, maxRequests)
			}
		}
	}
}

// draftless reports whether the page shows that no model drafts: vLLM (0.21 to 0.33,
// v1/spec_decode/metrics.py) writes the metrics of speculative decoding from its start, if it
// is configured, beside its other ones.
func (p *page) draftless() bool { return p.blockSize > 0 && !p.drafts }

// cacheOff reports whether the page shows that nothing of a prompt is kept for later ones: prefix
// caching is off, and no connector has looked a prompt up elsewhere.
func (p *page) cacheOff() bool {
	return p.prefixOff && !slices.ContainsFunc(p.engines, func(l Load) bool { return l.AskedTokens > 0 })
}

// connectorOf returns the KV connector that has a metric of this name: vLLM writes a
// connector's metrics from its start, and of its own connector alone.
func connectorOf(name []byte) string {
	switch {
	case bytes.HasPrefix(name, []byte("vllm:nixl_")):
		return Nixl
	case bytes.HasPrefix(name, []byte("vllm:mooncake_store_")):
		return "MooncakeStoreConnector"
	case bytes.HasPrefix(name, []byte("vllm:hf3fs_")):
		return "HF3FSKVConnector"
	}
	return ""
}

// sums has the values of an engine by the names of their metrics, also those of older releases.
// Several series of one engine (model names, processes) add up.
var sums = sumsByName()

func sumsByName() map[string]func(*Load) *float64 {
	out := map[string]func(*Load) *float64{}
	sum := func(of func(*Load) *float64, names ...string) {
		for _, name := range names {
			out[name] = of
		}
	}
	sum(func(l *Load) *float64 { return &l.Running }, "vllm:num_requests_running", "sglang:num_running_reqs", "sglang_num_running_reqs")
	sum(func(l *Load) *float64 { return &l.Waiting }, "vllm:num_requests_waiting", "sglang:num_queue_reqs", "sglang_num_waiting_reqs")
	sum(func(l *Load) *float64 { return &l.PrefixQueries },
		"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total")
	sum(func(l *Load) *float64 { return &l.PrefixHits },
		"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total")
	sum(func(l *Load) *float64 { return &l.AskedTokens }, "vllm:external_prefix_cache_queries_total")
	sum(func(l *Load) *float64 { return &l.LoadedTokens }, "vllm:external_prefix_cache_hits_total")
	sum(func(l *Load) *float64 { return &l.LoadSeconds }, "vllm:kv_offload_load_time_total")
	sum(func(l *Load) *float64 { return &l.MoveSeconds }, "vllm:nixl_xfer_time_seconds_sum")
	sum(func(l *Load) *float64 { return &l.Answers.Count }, "vllm:request_generation_tokens_count")
	sum(func(l *Load) *float64 { return &l.Answers.Tokens }, "vllm:request_generation_tokens_sum")
	for name, spent := range map[string]func(*Load) *Spent{
		"vllm:time_to_first_token_seconds":  func(l *Load) *Spent { return &l.TTFT },
		"vllm:request_queue_time_seconds":   func(l *Load) *Spent { return &l.Queue },
		"vllm:request_prefill_time_seconds": func(l *Load) *Spent { return &l.Prefill },
		"vllm:request_decode_time_seconds":  func(l *Load) *Spent { return &l.Decode },
	} {
		sum(func(l *Load) *float64 { return &spent(l).Requests }, name+"_count")
		sum(func(l *Load) *float64 { return &spent(l).Seconds }, name+"_sum")
	}
	return out
}

// value reads the value of a line of an engine, nil for one that does not count.
func (p *page) value(rest []byte) (*Load, float64) {
	v, ok := p.sample(rest)
	if !ok || v < 0 {
		return nil, 0
	}
	return p.engine(p.labels.rank), v
}

// engine returns the entry of a rank. It makes an absent one, and returns nil
// beyond p.ranks.
func (p *page) engine(rank int) *Load {
	i := 0
	for i < len(p.engines) && p.engines[i].Rank < rank {
		i++
	}
	if i == len(p.engines) || p.engines[i].Rank != rank {
		if p.ranks > 0 && len(p.engines) >= p.ranks {
			return nil
		}
		p.engines = slices.Insert(p.engines, i, Load{Rank: rank})
	}
	return &p.engines[i]
}

// sample reads the rest of a line behind the metric's name: `{label="value",…}
// value [time]`. It fills p.labels and returns the value, at most maxCount, false if
// the line is malformed or the value is not a finite number.
func (p *page) sample(s []byte) (float64, bool) {
	p.labels = labels{}
	if len(s) > 0 && s[0] == '{' {
		var ok bool
		if s, ok = p.readLabels(s[1:]); !ok {
			return 0, false
		}
	}
	s = bytes.TrimLeft(s, " \t")
	if i := bytes.IndexAny(s, " \t\r"); i >= 0 {
		s = s[:i]
	}
	v, ok := number(s)
	if !ok || v-v != 0 { // infinite or not a number
		return 0, false
	}
	return min(v, maxCount), true
}

// readLabels reads up to the closing brace and returns the rest.
func (p *page) readLabels(s []byte) ([]byte, bool) {
	for {
		s = bytes.TrimLeft(s, ", \t")
		if len(s) == 0 {
			return nil, false
		}
		if s[0] == '}' {
			return s[1:], true
		}
		i := bytes.IndexByte(s, '=')
		if i < 0 || i+1 >= len(s) || s[i+1] != '"' {
			return nil, false
		}
		name := bytes.TrimRight(s[:i], " \t")
		s = s[i+2:]
		end := 0
		for {
			j := bytes.IndexByte(s[end:], '"')
			if j < 0 {
				return nil, false
			}
			end += j
			if !escaped(s[:end]) {
				break
			}
			end++
		}
		if !p.label(name, s[:end]) {
			return nil, false
		}
		s = s[end+1:]
	}
}

// escaped reports whether the byte behind s is escaped: s ends in an odd number
// of backslashes.
func escaped(s []byte) bool {
	n := 0
	for n < len(s) && s[len(s)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
}

// label keeps one label if it is wanted; false when a rank makes no sense.
// Values are taken as written: wanted values have nothing to unescape.
func (p *page) label(name, value []byte) bool {
	switch string(name) {
	case "engine", "dp_rank":
		if len(value) == 0 { // info metrics of some versions: the whole process
			return true
		}
		n, ok := atoi(value)
		if !ok || n > maxRank {
			return false
		}
		p.labels.rank = n
	case "le":
		p.labels.bound = value
	case "block_size":
		p.labels.blockSize = value
	case "num_gpu_blocks":
		p.labels.blocks = value
	case "prefix_caching_hash_algo":
		p.labels.hashAlgo = value
	case "prefix_match_unit":
		p.labels.hashUnit = value
	case "enable_prefix_caching":
		p.labels.prefixCaching = value
	case "running_lora_adapters":
		p.labels.running = value
	case "waiting_lora_adapters":
		p.labels.waiting = value
	case "max_lora":
		p.labels.maxLoRA = value
	case "reason":
		p.labels.reason = value
	case "sleep_state":
		p.labels.sleep = value
	}
	return true
}

func atoi(b []byte) (int, bool) {
	if len(b) == 0 || len(b) > 9 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// boundOf returns a bucket's upper bound, which may be infinite.
func boundOf(b []byte) (float64, bool) {
	v, ok := number(b)
	return v, ok && v > 0
}

func number(b []byte) (float64, bool) {
	if len(b) == 0 || len(b) > 64 {
		return 0, false
	}
	// ParseFloat keeps no reference to its argument (its errors hold a copy).
	v, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), 64)
	return v, err == nil
}

// loads copies the engines' values out, stamped with at.
func (p *page) loads(at time.Time) []Load {
	if len(p.engines) == 0 {
		return nil
	}
	adapters, began := p.loras.list(), time.Time{}
	if p.start > 0 {
		began = time.UnixMilli(int64(1000 * p.start))
	}
	out := slices.Clone(p.engines)
	for i := range out {
		out[i].LoRAs, out[i].MaxLoRAs, out[i].Began, out[i].At = adapters, p.loras.most, began, at
		if p.connector == Nixl {
			out[i].LoadSeconds = 0 // its tokens include those that other replicas have computed
		}
	}
	return out
}

func (a *adapters) list() []string {
	if len(a.names) <= 1 {
		return nil
	}
	var names []string
	for name := range strings.SplitSeq(string(a.names), ",") {
		if name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
