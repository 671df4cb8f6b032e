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
	retention int // prefix_cache_retention_interval, -1 for None
	loras     adapters
	connector string // whose metrics the page has; "" when it has none
	sglang    bool   // it has SGLang's metrics or loads
	asleep    bool   // an engine is not awake
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
	retention        []byte
	running, waiting []byte
	maxLoRA          []byte
	sleep            []byte
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
	p.sglang = p.sglang || bytes.HasPrefix(name, []byte("sglang:")) || bytes.HasPrefix(name, []byte("sglang_"))
	switch string(name) {
	case "vllm:num_requests_running", "vllm:num_requests_waiting",
		"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc",
		"vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total",
		"vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total",
		"vllm:external_prefix_cache_queries_total", "vllm:external_prefix_cache_hits_total", "vllm:kv_offload_load_time_total", "vllm:nixl_xfer_time_seconds_sum",
		"vllm:time_to_first_token_seconds_count", "vllm:time_to_first_token_seconds_sum",
		"vllm:request_queue_time_seconds_count", "vllm:request_queue_time_seconds_sum",
		"vllm:request_prefill_time_seconds_count", "vllm:request_prefill_time_seconds_sum",
		"vllm:request_decode_time_seconds_count", "vllm:request_decode_time_seconds_sum",
		"vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count",
		"vllm:request_generation_tokens_count", "vllm:request_generation_tokens_sum",
		"sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:token_usage",
		"sglang_num_running_reqs", "sglang_num_waiting_reqs", "sglang_token_usage", // of /v1/loads
		"sglang:prompt_tokens_total", "sglang:cached_tokens_total":
		if v, ok := p.sample(rest); ok {
			p.add(name, v)
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
				p.retention, _ = atoi(p.labels.retention)
				if string(p.labels.retention) == "None" {
					p.retention = RetainAll
				}
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
		if v, ok := p.sample(rest); ok && v == 0 && string(p.labels.sleep) == "awake" {
			p.asleep = true
		}
	case "process_start_time_seconds":
		if v, ok := p.sample(rest); ok {
			p.start = v
		}
	default:
		p.drafts = p.drafts || bytes.HasPrefix(name, []byte("vllm:spec_decode_"))
		p.connector = cmp.Or(p.connector, connectorOf(name))
	}
}

// draftless reports whether the page shows that no model drafts: vLLM (0.21 to 0.33,
// v1/spec_decode/metrics.py) writes the metrics of speculative decoding from its start, if it
// is configured, beside its other ones.
func (p *page) draftless() bool { return p.blockSize > 0 && !p.drafts }

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

// add records one value of an engine. Several series of one engine (model
// names, processes) add up, except the usage: the highest counts.
func (p *page) add(name []byte, v float64) {
	if v < 0 {
		return
	}
	e := p.engine(p.labels.rank)
	if e == nil {
		return
	}
	switch string(name) {
	case "vllm:num_requests_running", "sglang:num_running_reqs", "sglang_num_running_reqs":
		e.Running += v
	case "vllm:num_requests_waiting", "sglang:num_queue_reqs", "sglang_num_waiting_reqs":
		e.Waiting += v
	case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage", "sglang_token_usage":
		e.KVUsage = max(e.KVUsage, min(v, 1))
	case "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total":
		e.PrefixQueries += v
	case "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total", "sglang:cached_tokens_total":
		e.PrefixHits += v
	case "vllm:external_prefix_cache_queries_total":
		e.AskedTokens += v
	case "vllm:external_prefix_cache_hits_total":
		e.LoadedTokens += v
	case "vllm:kv_offload_load_time_total":
		e.LoadSeconds += v
	case "vllm:nixl_xfer_time_seconds_sum":
		p.connector = cmp.Or(p.connector, Nixl)
		e.MoveSeconds += v
	case "vllm:time_to_first_token_seconds_count":
		e.TTFT.Requests += v
	case "vllm:time_to_first_token_seconds_sum":
		e.TTFT.Seconds += v
	case "vllm:request_queue_time_seconds_count":
		e.Queue.Requests += v
	case "vllm:request_queue_time_seconds_sum":
		e.Queue.Seconds += v
	case "vllm:request_prefill_time_seconds_count":
		e.Prefill.Requests += v
	case "vllm:request_prefill_time_seconds_sum":
		e.Prefill.Seconds += v
	case "vllm:request_decode_time_seconds_count":
		e.Decode.Requests += v
	case "vllm:request_decode_time_seconds_sum":
		e.Decode.Seconds += v
	case "vllm:request_generation_tokens_count":
		e.Answers.Count += v
	case "vllm:request_generation_tokens_sum":
		e.Answers.Tokens += v
	case "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count":
		e.Steps = max(e.Steps, 1) + v
	}
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
// value [time]`. It fills p.labels and returns the value, false if the line is
// malformed or the value is not a finite number.
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
	return v, true
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
	case "prefix_cache_retention_interval":
		p.labels.retention = value
	case "running_lora_adapters":
		p.labels.running = value
	case "waiting_lora_adapters":
		p.labels.waiting = value
	case "max_lora":
		p.labels.maxLoRA = value
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
