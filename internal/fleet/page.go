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

// sample is the rest of a line behind the metric's name. The slice points into the buffer.
type sample struct {
	labels []byte // behind the opening brace
	rank   int
	value  float64 // finite, at most maxCount
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
	*p = page{ranks: p.ranks, engines: p.engines[:0], hashAlgo: p.hashAlgo[:0], loras: adapters{names: p.loras.names[:0]}}
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
		if e, one := p.value(rest); e != nil {
			e.KVUsage = max(e.KVUsage, min(one.value, 1))
		}
	case "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:iteration_tokens_total_count":
		if e, one := p.value(rest); e != nil {
			e.Steps = max(e.Steps, 1) + one.value
		}
	case "vllm:num_requests_waiting_by_reason":
		if e, one := p.value(rest); e != nil && string(one.label("reason")) == "deferred" {
			e.Deferred = min(e.Deferred+one.value, maxRequests)
		}
	case "vllm:time_to_first_token_seconds_bucket":
		if one, ok := read(rest); ok {
			p.firstTokens(one)
		}
	case "vllm:cache_config_info":
		if one, ok := read(rest); ok && p.blockSize == 0 {
			if n, ok := atoi(one.label("block_size")); ok && n > 0 && n <= maxBlockSize {
				p.blockSize = n
				p.blocks, _ = atoi(one.label("num_gpu_blocks"))
				p.hashAlgo = append(p.hashAlgo[:0], one.label("prefix_caching_hash_algo")...)
				p.hashUnit, _ = atoi(one.label("prefix_match_unit"))
				p.prefixOff = string(one.label("enable_prefix_caching")) == "False"
			}
		}
	case "vllm:lora_requests_info":
		if one, ok := read(rest); ok && one.value >= p.loras.stamp {
			p.loras.stamp = one.value
			p.loras.names = append(p.loras.names[:0], one.label("running_lora_adapters")...)
			p.loras.names = append(p.loras.names, ',')
			p.loras.names = append(p.loras.names, one.label("waiting_lora_adapters")...)
			p.loras.most, _ = atoi(one.label("max_lora"))
		}
	case "vllm:engine_sleep_state":
		if one, ok := read(rest); ok {
			awake := string(one.label("sleep_state")) == "awake"
			p.asleep = p.asleep || awake && one.value == 0
			p.discarded = p.discarded || !awake && one.value > 0
		}
	case "process_start_time_seconds":
		if one, ok := read(rest); ok {
			p.start = one.value
		}
	default:
		p.drafts = p.drafts || bytes.HasPrefix(name, []byte("vllm:spec_decode_"))
		p.connector = cmp.Or(p.connector, connectorOf(name))
		if sum := sums[string(name)]; sum != nil {
			if e, one := p.value(rest); e != nil {
				*sum(e) += one.value
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

// value reads a line of an engine, and returns nil for one that does not count.
func (p *page) value(rest []byte) (*Load, sample) {
	one, ok := read(rest)
	if !ok || one.value < 0 {
		return nil, one
	}
	return p.engine(one.rank), one
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

// read reads the rest of a line: `{label="value",…} value [time]`. It returns false if that is
// malformed, the rank makes no sense, or the value is not a finite number.
func read(s []byte) (one sample, ok bool) {
	if len(s) > 0 && s[0] == '{' {
		one.labels = s[1:]
		for s = s[1:]; ; {
			name, value, rest := nextLabel(s)
			if s = rest; name == nil {
				break
			}
			if string(name) != "engine" && string(name) != "dp_rank" || len(value) == 0 { // empty in info metrics of some versions: the whole process
				continue
			}
			if one.rank, ok = atoi(value); !ok || one.rank > maxRank {
				return one, false
			}
		}
	}
	s = bytes.TrimLeft(s, " \t")
	if i := bytes.IndexAny(s, " \t\r"); i >= 0 {
		s = s[:i]
	}
	one.value, ok = number(s)
	if !ok || one.value-one.value != 0 { // infinite or not a number
		return one, false
	}
	one.value = min(one.value, maxCount)
	return one, true
}

// label returns the value of a label as it is written: wanted values have nothing to unescape.
func (one sample) label(wanted string) []byte {
	for s := one.labels; ; {
		name, value, rest := nextLabel(s)
		if name == nil || string(name) == wanted {
			return value
		}
		s = rest
	}
}

// nextLabel reads a label, and returns what is behind it. Behind the last one it has no name, and what
// is behind the closing brace; nothing if the labels are malformed.
func nextLabel(s []byte) (name, value, rest []byte) {
	s = bytes.TrimLeft(s, ", \t")
	if len(s) > 0 && s[0] == '}' {
		return nil, nil, s[1:]
	}
	i := bytes.IndexByte(s, '=')
	if i < 0 || i+1 >= len(s) || s[i+1] != '"' {
		return nil, nil, nil
	}
	name, s = bytes.TrimRight(s[:i], " \t"), s[i+2:]
	for end := 0; ; end++ {
		j := bytes.IndexByte(s[end:], '"')
		if j < 0 {
			return nil, nil, nil
		}
		if end += j; !escaped(s[:end]) {
			return name, s[:end], s[end+1:]
		}
	}
}

// escaped reports whether the byte behind s is escaped: s ends in an odd number
// of backslashes.
func escaped(s []byte) bool {
	return (len(s)-len(bytes.TrimRight(s, `\`)))%2 == 1
}

// atoi reads digits. Unlike strconv it makes no error, of which a page of many ranks would have many.
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

func number(b []byte) (float64, bool) {
	if len(b) > 64 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(b), 64)
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
	}
	return out
}

func (a *adapters) list() []string {
	if len(a.names) <= 1 {
		return nil
	}
	names := strings.FieldsFunc(string(a.names), func(r rune) bool { return r == ',' })
	slices.Sort(names)
	return slices.Compact(names)
}
