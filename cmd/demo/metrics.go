package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// get reads a page whole.
func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: status %d", url, resp.StatusCode)
	}
	return string(b), nil
}

// samples are the values of one metric on a page of Prometheus text, by the
// value of one label ("" for a sample without it; several are added up).
func samples(page, metric, label string) map[string]float64 {
	out := map[string]float64{}
	for s := bufio.NewScanner(strings.NewReader(page)); s.Scan(); {
		rest, ok := strings.CutPrefix(s.Text(), metric)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		at := strings.LastIndexByte(rest, ' ')
		v, err := strconv.ParseFloat(rest[at+1:], 64)
		if err != nil {
			continue
		}
		key := ""
		if _, after, ok := strings.Cut(rest[:at], label+`="`); ok {
			key, _, _ = strings.Cut(after, `"`)
		}
		out[key] += v
	}
	return out
}

// count reads one replica's own counters.
func count(ctx context.Context, addr string) (replicaCount, error) {
	page, err := get(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return replicaCount{}, fmt.Errorf("replica %s: %w", addr, err)
	}
	sum := func(metric string) (v float64) {
		for _, x := range samples(page, metric, "engine") {
			v += x
		}
		return v
	}
	return replicaCount{
		addr: addr, requests: int(sum("vllm:request_success_total")),
		queries: sum("vllm:prefix_cache_queries_total"), hits: sum("vllm:prefix_cache_hits_total"),
	}, nil
}
