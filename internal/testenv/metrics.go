package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Get reads a complete page.
func Get(ctx context.Context, url string) (string, error) {
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
		return "", fmt.Errorf("%s: %w", url, status(resp.StatusCode))
	}
	return string(b), nil
}

// status is the error of an answer with another status than 200.
type status int

func (s status) Error() string { return fmt.Sprintf("status %d", int(s)) }

// mostScrapes is how often a metrics page is asked for.
const mostScrapes = 10

// metricsPage returns a process's metrics page. One that was not made in time on a busy machine is
// asked for again, as by Prometheus.
func metricsPage(t testing.TB, addr string) string {
	t.Helper()
	for try := 1; ; try++ {
		page, err := Get(context.Background(), "http://"+addr+"/metrics")
		if err == nil {
			return page
		}
		if try == mostScrapes || !errors.Is(err, status(http.StatusServiceUnavailable)) {
			t.Fatal(err)
		}
		t.Logf("asked for again: %v", err)
		time.Sleep(time.Second)
	}
}

// Samples returns the values of one metric on a page of Prometheus text, by the
// value of one label ("" for a sample without it; several are added up).
func Samples(page, metric, label string) map[string]float64 {
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

// Metrics returns all samples of a process's metrics page, by name with labels.
func Metrics(t testing.TB, addr string) map[string]float64 {
	t.Helper()
	out, page := map[string]float64{}, metricsPage(t, addr)
	for line := range strings.Lines(page) {
		name, value, ok := cutLast(strings.TrimSuffix(line, "\n"))
		if !ok || strings.HasPrefix(name, "#") {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		out[name] = v
	}
	return out
}

// Reasons returns the number of a router's decisions of each reason that it has given.
func Reasons(t testing.TB, addr string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for reason, n := range Samples(metricsPage(t, addr), "warmroute_decisions_total", "reason") {
		if n > 0 {
			out[reason] = int(n)
		}
	}
	return out
}

// cutLast cuts a sample before its value.
func cutLast(line string) (name, value string, ok bool) {
	at := strings.LastIndexByte(line, ' ')
	return line[:max(at, 0)], line[at+1:], at > 0
}

// Counters are one replica's own.
type Counters struct {
	Addr          string
	Requests      int
	Queries, Hits float64 // prompt tokens looked up in the prefix cache, and found
}

// Count reads one replica's counters.
func Count(ctx context.Context, addr string) (Counters, error) {
	page, err := Get(ctx, "http://"+addr+"/metrics")
	if err != nil {
		return Counters{}, fmt.Errorf("replica %s: %w", addr, err)
	}
	sum := func(metric string) (v float64) {
		for _, x := range Samples(page, metric, "engine") {
			v += x
		}
		return v
	}
	return Counters{
		Addr: addr, Requests: int(sum("vllm:request_success_total")),
		Queries: sum("vllm:prefix_cache_queries_total"), Hits: sum("vllm:prefix_cache_hits_total"),
	}, nil
}

// HitRate returns the share of prompt tokens that the replicas found cached.
func HitRate(replicas []Counters) float64 {
	var queries, hits float64
	for _, r := range replicas {
		queries += r.Queries
		hits += r.Hits
	}
	if queries == 0 {
		return 0
	}
	return hits / queries
}

// Requests lists how many requests each replica served.
func Requests(replicas []Counters) string {
	var out []string
	for _, r := range replicas {
		out = append(out, strconv.Itoa(r.Requests))
	}
	return strings.Join(out, " ")
}
