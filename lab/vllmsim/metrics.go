package vllmsim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page writes Prometheus text as vLLM's Python client does: labels in
// alphabetical order, values with a decimal point.
type page struct {
	b     []byte
	model string
}

func (p *page) family(name, kind, help string) {
	p.b = fmt.Appendf(p.b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one line. labels alternate names and values, in alphabetical order; sample
// adds the model's name in its place.
func (p *page) sample(name string, v float64, labels ...string) {
	p.b = append(p.b, name...)
	p.b = append(p.b, '{')
	labels = append(labels, "model_name", p.model)
	pairs := make([]string, 0, len(labels)/2)
	for i := 0; i < len(labels); i += 2 {
		pairs = append(pairs, fmt.Sprintf("%s=%q", labels[i], labels[i+1]))
	}
	slices.Sort(pairs)
	p.b = append(p.b, strings.Join(pairs, ",")...)
	p.b = append(p.b, "} "...)
	p.b = append(p.b, pythonFloat(v)...)
	p.b = append(p.b, '\n')
}

func pythonFloat(v float64) string {
	s := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

func (p *page) histogram(name string, h *histogram, engine string) {
	var total uint64
	for i, n := range h.counts {
		total += n
		le := "+Inf"
		if i < len(h.bounds) {
			le = pythonFloat(h.bounds[i])
		}
		p.sample(name+"_bucket", float64(total), "engine", engine, "le", le)
	}
	p.sample(name+"_count", float64(h.n), "engine", engine)
	p.sample(name+"_sum", h.sum, "engine", engine)
}

// reading is one rank's state at one moment.
type reading struct {
	running, waiting  int
	pulling           int // of waiting
	usage             float64
	runLoRA, waitLoRA []string
	stats             stats
	histograms        map[string]*histogram
	finished          map[string]int
}

// histograms returns a rank's histograms by vLLM's names.
func (t *stats) histograms() map[string]*histogram {
	return map[string]*histogram{
		"vllm:time_to_first_token_seconds":    t.ttft,
		"vllm:inter_token_latency_seconds":    t.itl,
		"vllm:e2e_request_latency_seconds":    t.e2e,
		"vllm:request_queue_time_seconds":     t.queue,
		"vllm:request_inference_time_seconds": t.inference,
		"vllm:request_prefill_time_seconds":   t.prefill,
		"vllm:request_decode_time_seconds":    t.decode,
		"vllm:iteration_tokens_total":         t.iteration,
		"vllm:request_prompt_tokens":          t.prompts,
		"vllm:request_generation_tokens":      t.answers,
	}
}

// nixlHistograms returns the histograms of a rank with the connector Nixl.
func (t *stats) nixlHistograms() map[string]*histogram {
	return map[string]*histogram{"vllm:nixl_xfer_time_seconds": t.nixl.seconds, "vllm:nixl_bytes_transferred": t.nixl.bytes}
}

func (e *engine) read() reading {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := reading{
		running: len(e.running), waiting: len(e.waiting) + len(e.pulling), pulling: len(e.pulling), usage: e.pool.usage(), stats: e.stats,
		runLoRA: loraNames(e.running), waitLoRA: loraNames(e.waiting),
		histograms: map[string]*histogram{}, finished: map[string]int{},
	}
	all := e.stats.histograms()
	if e.o.Connector == Nixl {
		maps.Copy(all, e.stats.nixlHistograms())
	}
	for name, h := range all {
		c := *h
		c.counts = slices.Clone(h.counts)
		r.histograms[name] = &c
	}
	for k, v := range e.stats.finished {
		r.finished[k] = v
	}
	return r
}

func loraNames(seqs []*sequence) (names []string) {
	for _, s := range seqs {
		if s.lora != nil {
			names = union(names, []string{s.lora.Name})
		}
	}
	return names
}

// metrics answers GET /metrics with vLLM's names, labels and units.
func (s *Sim) metrics(w http.ResponseWriter, _ *http.Request) {
	p := &page{model: s.o.Model}
	readings := make([]reading, len(s.ranks))
	for i, k := range s.ranks {
		readings[i] = k.read()
	}
	each := func(name, kind, help string, value func(r *reading) float64) {
		p.family(name, kind, help)
		for i := range readings {
			p.sample(name, value(&readings[i]), "engine", strconv.Itoa(i))
		}
	}
	count := func(name, help string, value func(t *stats) int) {
		each(name, "counter", help, func(r *reading) float64 { return float64(value(&r.stats)) })
	}
	each("vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", func(r *reading) float64 { return float64(r.running) })
	each("vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", func(r *reading) float64 { return float64(r.waiting) })
	each("vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", func(r *reading) float64 { return r.usage })
	count("vllm:prefix_cache_queries_total", "Prefix cache queries, in terms of number of queried tokens.", func(t *stats) int { return t.queries })
	count("vllm:prefix_cache_hits_total", "Prefix cache hits, in terms of number of cached tokens.", func(t *stats) int { return t.hits })
	count("vllm:num_preemptions_total", "Cumulative number of preemption from the engine.", func(t *stats) int { return t.preemptions })
	count("vllm:prompt_tokens_total", "Number of prefill tokens processed.", func(t *stats) int { return t.promptTokens })
	count("vllm:prompt_tokens_cached_total", "Number of cached prompt tokens (local + external).", func(t *stats) int { return t.promptHits })
	count("vllm:generation_tokens_total", "Number of generation tokens processed.", func(t *stats) int { return t.outputs })
	count("vllm:external_prefix_cache_queries_total", "Tokens looked up through the KV connector.", func(t *stats) int { return t.external.queries })
	count("vllm:external_prefix_cache_hits_total", "Of these, tokens found.", func(t *stats) int { return t.external.hits })
	if s.o.Connector == Nixl {
		p.family("vllm:num_requests_kv_fetch_by_stage", "gauge", "Number of waiting requests by async KV load stage.")
		for i, r := range readings {
			p.sample("vllm:num_requests_kv_fetch_by_stage", float64(r.pulling), "engine", strconv.Itoa(i), "stage", "in_progress")
		}
		count("vllm:nixl_num_failed_transfers_total", "Pulls that failed.", func(t *stats) int { return t.nixl.failed })
		count("vllm:nixl_num_kv_expired_reqs_total", "Prompts that were handed out, and not pulled in time.", func(t *stats) int { return t.nixl.expired })
		count("vllm:nixl_num_notifications_after_expiry_total", "Pulls that ended when the prompt was no longer kept.", func(t *stats) int { return t.nixl.afterExpiry })
		s.refusedMetric(p)
	}
	p.family("vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by where their KV came from.")
	for i, r := range readings {
		t := &r.stats
		source := func(name string, n int) {
			p.sample("vllm:prompt_tokens_by_source_total", float64(n), "engine", strconv.Itoa(i), "source", name)
		}
		source("local_compute", t.promptTokens-t.promptHits)
		source("local_cache_hit", t.promptHits-t.transferred)
		source("external_kv_transfer", t.transferred)
	}
	p.family("vllm:request_success_total", "counter", "Count of successfully processed requests.")
	for i, r := range readings {
		for _, reason := range []string{"stop", "length", "abort", "error"} {
			p.sample("vllm:request_success_total", float64(r.finished[reason]), "engine", strconv.Itoa(i), "finished_reason", reason)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(readings[0].histograms)) {
		p.family(name, "histogram", "As in vLLM.")
		for i := range readings {
			p.histogram(name, readings[i].histograms[name], strconv.Itoa(i))
		}
	}
	s.infoMetrics(p, readings)
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(p.b)
}

// refusedMetric writes the one counter that vLLM does not have.
func (s *Sim) refusedMetric(p *page) {
	const name = "vllmsim_transfer_refused_total"
	p.family(name, "counter", "Requests whose kv_transfer_params another replica refused.")
	s.refusedMu.Lock()
	defer s.refusedMu.Unlock()
	for _, why := range []string{refusedUnknown, refusedChanged, refusedForeign, refusedUsed, refusedLate} {
		p.sample(name, float64(s.refused[why]), "why", why)
	}
}

// infoMetrics writes the gauges whose labels have the information. They have no model name.
func (s *Sim) infoMetrics(p *page, readings []reading) {
	const name = "vllm:cache_config_info"
	p.family(name, "gauge", "Information of the LLMEngine CacheConfig")
	for i := range readings {
		p.b = fmt.Appendf(p.b, "%s{block_size=\"%d\",cache_dtype=\"auto\",enable_prefix_caching=\"True\",engine=\"%d\",num_gpu_blocks=\"%d\",prefix_caching_hash_algo=%q} 1.0\n",
			name, s.o.BlockSize, i, s.o.Blocks, s.o.HashAlgorithm)
	}
	if len(s.o.LoRAs) > 0 {
		s.loraMetrics(p, readings)
	}
}

// loraMetrics writes vLLM's adapters. vLLM reports every earlier combination of adapters
// again; the value is the last time at which it was true, and readers take the newest.
func (s *Sim) loraMetrics(p *page, readings []reading) {
	var running, waiting []string
	for _, r := range readings {
		running, waiting = union(running, r.runLoRA), union(waiting, r.waitLoRA)
	}
	const name = "vllm:lora_requests_info"
	line := fmt.Sprintf("%s{max_lora=\"%d\",running_lora_adapters=%q,waiting_lora_adapters=%q}",
		name, s.o.MaxLoRAs, strings.Join(running, ","), strings.Join(waiting, ","))
	s.loraMu.Lock()
	defer s.loraMu.Unlock()
	s.loraSeen[line] = time.Now()
	p.family(name, "gauge", "Running stats on lora requests.")
	for _, line := range slices.Sorted(maps.Keys(s.loraSeen)) {
		p.b = fmt.Appendf(p.b, "%s %s\n", line, pythonFloat(float64(s.loraSeen[line].UnixNano())/1e9))
	}
}

// union appends the elements of more that names lacks.
func union(names, more []string) []string {
	for _, n := range more {
		if !slices.Contains(names, n) {
			names = append(names, n)
		}
	}
	return names
}
