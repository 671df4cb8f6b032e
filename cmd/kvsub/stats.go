package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/common/expfmt"
	names "github.com/prometheus/common/model"

	"warmroute/index/indexpb"
)

// pageLimit bounds a metrics page; vLLM's is about 65 KB for each engine.
const pageLimit = 4 << 20

var errPageTooLarge = fmt.Errorf("the metrics page is larger than %d MiB", pageLimit>>20)

// page has the values of one vLLM metrics page that stats need, summed over engines.
type page struct {
	usage            map[string]float64 // by tier: kv, gpu, cpu; the fullest engine's
	running, waiting float64
	queries, hits    float64 // tokens, ever
	counted          bool    // the page has queries
	blocks           float64 // 0 = unknown
}

// cacheConfig is the info metric whose labels are vLLM's CacheConfig.
const cacheConfig = "vllm:cache_config_info"

// usageNames are the gauges of cache usage, by tier. vLLM renamed
// gpu_cache_usage_perc to kv_cache_usage_perc.
var usageNames = map[string]string{
	"vllm:kv_cache_usage_perc": "kv", "vllm:gpu_cache_usage_perc": "gpu", "vllm:cpu_cache_usage_perc": "cpu",
}

// parsePage reads Prometheus text. When model is not empty, only samples with that
// model_name count, besides the cache's configuration, which has no such label: it
// is one cache for all models of a server.
func parsePage(in io.Reader, model string) (page, error) {
	p := page{usage: make(map[string]float64)}
	bounded := &io.LimitedReader{R: in, N: pageLimit + 1}
	parser := expfmt.NewTextParser(names.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bounded)
	if bounded.N == 0 {
		return page{}, errPageTooLarge
	}
	if err != nil {
		return page{}, err
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			value := m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue() // it is one of them
			if (model == "" || labels["model_name"] == model || name == cacheConfig) && !math.IsNaN(value) && !math.IsInf(value, 0) {
				p.take(name, labels, value)
			}
		}
	}
	return p, nil
}

func (p *page) take(name string, labels map[string]string, value float64) {
	switch name {
	case "vllm:num_requests_running":
		p.running += value
	case "vllm:num_requests_waiting":
		p.waiting += value
	case "vllm:prefix_cache_queries_total":
		p.queries, p.counted = p.queries+value, true
	case "vllm:prefix_cache_hits_total":
		p.hits += value
	case cacheConfig:
		if n, err := strconv.ParseFloat(labels["num_gpu_blocks"], 64); err == nil && n > 0 {
			p.blocks += n
		}
	default:
		if tier, ok := usageNames[name]; ok {
			p.usage[tier] = max(p.usage[tier], value)
		}
	}
}

// cacheUsage returns a tier's usage; auto is the first present one of kv, gpu, cpu.
func (p page) cacheUsage(tier string) float64 {
	if tier != "auto" {
		return p.usage[tier]
	}
	for _, t := range []string{"kv", "gpu", "cpu"} {
		if v, ok := p.usage[t]; ok {
			return v
		}
	}
	return 0
}

// meter turns pages into stats. It keeps the counters of the previous page.
type meter struct {
	tier    string
	ceiling int
	before  *page
}

func (m *meter) read(p page) *indexpb.ReplicaStats {
	s := &indexpb.ReplicaStats{CacheUsage: unit(p.cacheUsage(m.tier)), CacheBlocks: uint64(p.blocks),
		Running: uint64(max(0, p.running)), Waiting: uint64(max(0, p.waiting))}
	if m.ceiling > 0 {
		s.Pressure = unit((p.running + p.waiting) / float64(m.ceiling))
	}
	// The first page gives no rate, nor does a page after a restart, which sets
	// counters back.
	if b := m.before; b != nil && p.queries > b.queries && p.hits >= b.hits {
		s.HitRate = unit((p.hits - b.hits) / (p.queries - b.queries))
	}
	if p.counted {
		m.before = &p
	}
	return s
}

func unit(v float64) float64 { return min(1, max(0, v)) }

// stats scrapes a replica and reports its stats.
type stats struct {
	o         options
	index     indexpb.CacheIndexClient
	log       *slog.Logger
	forgotten func() // called when the index answers that it has nothing of the replica
	counted   *tally
}

// run reports until ctx ends. It logs failures; they do not affect events.
func (s *stats) run(ctx context.Context) {
	m := meter{tier: s.o.tier, ceiling: s.o.ceiling}
	tick := time.NewTicker(s.o.statsEvery)
	defer tick.Stop()
	for {
		switch err := s.report(ctx, &m); {
		case err == nil:
			s.counted.reported.Add(1)
		case ctx.Err() == nil:
			s.counted.failed.Add(1)
			s.log.Warn("stats not reported", "error", err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// report scrapes and reports once.
func (s *stats) report(ctx context.Context, m *meter) error {
	o := s.o
	p, err := scrape(ctx, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	out, err := s.index.ReportCacheState(ctx, &indexpb.ReportCacheStateRequest{ReplicaId: o.replica, Rank: int32(o.rank), Tenant: o.tenant,
		Model: o.model, HashScheme: o.scheme, Stats: m.read(p)})
	if err == nil && out.GetFirst() {
		s.forgotten()
	}
	return err
}

// scrape reads the metrics page within the time and the size that it may take.
func scrape(ctx context.Context, o options) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, o.metrics, nil)
	if err != nil {
		return page{}, fmt.Errorf("-metrics %q: %w", o.metrics, err)
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(q)
	if err != nil {
		return page{}, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return page{}, fmt.Errorf("%s: status %d", o.metrics, answer.StatusCode)
	}
	return parsePage(answer.Body, o.modelName)
}
