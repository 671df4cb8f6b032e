package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"warmroute/index/indexpb"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

func read(t *testing.T, m *meter, model string, lines ...string) *indexpb.ReplicaStats {
	t.Helper()
	p := must.Get(parsePage(strings.NewReader(strings.Join(lines, "\n")+"\n"), model))(t)
	return m.read(p)
}

func TestStatsTiers(t *testing.T) {
	kv, gpu, cpu := `vllm:kv_cache_usage_perc{engine="0"} 0.3`, `vllm:gpu_cache_usage_perc 0.4`, `vllm:cpu_cache_usage_perc 0.5`
	for _, c := range []struct {
		tier  string
		lines []string
		want  float64
	}{
		{"auto", []string{cpu, gpu, kv}, 0.3}, {"auto", []string{cpu, gpu}, 0.4}, {"auto", []string{cpu}, 0.5}, {"auto", nil, 0},
		{"cpu", []string{kv, gpu, cpu}, 0.5}, {"gpu", []string{kv}, 0},
		{"kv", []string{kv, `vllm:kv_cache_usage_perc{engine="1"} 0.9`}, 0.9}, {"kv", []string{`vllm:kv_cache_usage_perc NaN`}, 0},
	} {
		if got := read(t, &meter{tier: c.tier}, "", c.lines...).GetCacheUsage(); got != c.want {
			t.Errorf("%s of %v: %v, want %v", c.tier, c.lines, got, c.want)
		}
	}
}

func TestStatsHitRate(t *testing.T) {
	m := &meter{tier: "auto"}
	at := func(queries, hits int) float64 {
		return read(t, m, "", fmt.Sprintf("vllm:prefix_cache_queries_total %d", queries), fmt.Sprintf("vllm:prefix_cache_hits_total %d", hits)).GetHitRate()
	}
	for i, c := range []struct {
		queries, hits int
		want          float64
	}{{1000, 900, 0}, {1100, 950, 0.5}, {1100, 950, 0}, {50, 10, 0}, {150, 110, 1}, {250, 110, 0}} {
		if got := at(c.queries, c.hits); got != c.want {
			t.Errorf("page %d: hit rate %v, want %v", i, got, c.want)
		}
	}
}

func TestStatsPage(t *testing.T) {
	lines := []string{"# HELP x y", "", `vllm:num_requests_running{engine="0",model_name="a,}\""} 3 1700000000`,
		`vllm:num_requests_running{engine="0",model_name="b"} 4`, `vllm:num_requests_waiting{model_name="b"} 2`,
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="128"} 1.0`}
	all := read(t, &meter{tier: "auto", ceiling: 12}, "", lines...)
	if all.GetRunning() != 7 || all.GetWaiting() != 2 || all.GetPressure() != 0.75 || all.GetCacheBlocks() != 128 {
		t.Errorf("%v", all)
	}
	lines = append(lines, `vllm:num_requests_running 100`, `vllm:num_requests_waiting{engine="0"} 100`) // no model's
	one := read(t, &meter{tier: "auto"}, `a,}"`, lines...)
	if one.GetRunning() != 3 || one.GetWaiting() != 0 || one.GetPressure() != 0 || one.GetCacheBlocks() != 128 {
		t.Errorf("%v, want one model's samples, and the cache that all share", one)
	}
	if over := read(t, &meter{tier: "auto", ceiling: 1}, "", lines...); over.GetPressure() != 1 {
		t.Errorf("%v", over)
	}
}

// TestStatsFailAlone: a scrape that fails is logged, the next one reports.
func TestStatsFailAlone(t *testing.T) {
	x := serveIndex(t, "127.0.0.1:0")
	conn := must.Get(grpc.NewClient(x.addr, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	defer conn.Close()
	var scrapes atomic.Int32
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if scrapes.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		io.WriteString(w, "vllm:num_requests_running 5\n")
	}))
	defer vllm.Close()
	client := indexpb.NewCacheIndexClient(conn)
	var said strings.Builder
	var forgotten atomic.Int32
	var counted tally
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		o := options{metrics: vllm.URL, replica: "r:1", model: "m", scheme: "tokens", tier: "auto", statsEvery: time.Millisecond, patience: 20 * time.Second, timeout: 20 * time.Second}
		(&stats{o, client, slog.New(slog.NewTextHandler(&said, nil)), func() { forgotten.Add(1) }, &counted}).run(ctx)
	}()
	testenv.Until(t, 20*time.Second, "the index has stats", func() bool {
		state := must.Get(client.GetCacheState(t.Context(), &indexpb.GetCacheStateRequest{AllTenants: true}))(t)
		return len(state.GetReplicas()) == 1 && state.GetReplicas()[0].GetStats().GetRunning() == 5 && counted.reported.Load() > 0 // the index answers after it has them
	})
	cancel()
	<-done
	if forgotten.Load() != 1 {
		t.Errorf("%d times told that the index knew nothing, want once", forgotten.Load())
	}
	if counted.failed.Load() != 1 || counted.reported.Load() == 0 {
		t.Errorf("%d failures and %d reports counted", counted.failed.Load(), counted.reported.Load())
	}
	if !strings.Contains(said.String(), "status 500") {
		t.Errorf("the failed scrape was not logged: %s", said.String())
	}
}

// deaf takes stats and answers when the caller gives up.
type deaf struct{ indexpb.CacheIndexClient }

func (deaf) ReportCacheState(ctx context.Context, _ *indexpb.ReportCacheStateRequest, _ ...grpc.CallOption) (*indexpb.ReportCacheStateResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStatsAreBounded: an index that never answers costs a report of stats the
// timeout, and the next one is tried.
func TestStatsAreBounded(t *testing.T) {
	vllm := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "vllm:num_requests_running 5\n") }))
	defer vllm.Close()
	var counted tally
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		o := options{metrics: vllm.URL, replica: "r:1", model: "m", scheme: "tokens", tier: "auto", statsEvery: time.Millisecond, patience: 20 * time.Second, timeout: 10 * time.Millisecond}
		(&stats{o, deaf{}, slog.New(slog.DiscardHandler), func() {}, &counted}).run(ctx)
	}()
	testenv.Until(t, 30*time.Second, "calls of an index that hangs end", func() bool { return counted.failed.Load() >= 3 })
	cancel()
	<-done
}
