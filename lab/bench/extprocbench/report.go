package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"
)

// report computes a summary of exchanges.
type report struct {
	cfg                   *clientConfig
	results               []exchange
	elapsed               time.Duration
	before, after         procSample
	loadBefore, loadAfter float64
}

type latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

type summary struct {
	Mode        string         `json:"mode"`
	Workers     int            `json:"c"`
	RespChunks  int            `json:"response_chunks"`
	Requests    int            `json:"requests"` // that got a destination; rates and costs are theirs
	Failed      int            `json:"failed"`   // that got none
	Seconds     float64        `json:"seconds"`
	RPS         float64        `json:"rps"`
	PickMS      latency        `json:"pick_ms"`
	StreamMS    latency        `json:"stream_ms"`
	Picks       map[string]int `json:"picks"`
	Errors      map[string]int `json:"errors,omitempty"`
	BodyChanged int            `json:"body_changed"`
	CPUPerReq   float64        `json:"cpu_ms_per_request,omitempty"`
	RSSBeforeMB float64        `json:"rss_before_mb,omitempty"`
	RSSAfterMB  float64        `json:"rss_after_mb,omitempty"`
	RSSPeakMB   float64        `json:"rss_peak_mb,omitempty"`
	Load        [2]float64     `json:"load_average"`
}

func (r *report) summary() summary {
	s := summary{
		Mode: r.cfg.mode, Workers: r.cfg.workers, RespChunks: r.cfg.respChunks, Seconds: r.elapsed.Seconds(),
		Picks: map[string]int{}, Errors: map[string]int{}, Load: [2]float64{r.loadBefore, r.loadAfter},
	}
	var pick, total []time.Duration
	for _, x := range r.results {
		switch {
		case x.err != nil:
			s.Errors[x.err.Error()]++
		case x.status != 0:
			s.Errors["immediate response "+strconv.Itoa(x.status)]++
		case x.dest == "":
			s.Errors["no destination"]++
		default:
			s.Picks[x.dest]++
			pick = append(pick, x.pick)
			total = append(total, x.total)
		}
		if x.metaDest != "" && x.metaDest != x.dest {
			s.Errors["header and metadata differ"]++
		}
		if x.changed {
			s.BodyChanged++
		}
	}
	s.PickMS, s.StreamMS = percentiles(pick), percentiles(total)
	s.Requests, s.Failed = len(pick), len(r.results)-len(pick)
	s.RPS = float64(s.Requests) / s.Seconds
	if r.cfg.pid != 0 && s.Requests > 0 {
		s.CPUPerReq = ms(r.after.cpu-r.before.cpu) / float64(s.Requests)
		s.RSSBeforeMB = float64(r.before.rssKB) / 1024
		s.RSSAfterMB = float64(r.after.rssKB) / 1024
		s.RSSPeakMB = float64(r.after.hwmKB) / 1024
	}
	return s
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func percentiles(d []time.Duration) latency {
	if len(d) == 0 {
		return latency{}
	}
	slices.Sort(d)
	at := func(q float64) float64 { return ms(d[min(int(q*float64(len(d))), len(d)-1)]) }
	return latency{at(.50), at(.90), at(.99), ms(d[len(d)-1])}
}

// print writes the summary as a line of JSON, and unless jsonOnly as text for people.
func (r *report) print(w io.Writer, jsonOnly bool) error {
	s := r.summary()
	if err := json.NewEncoder(w).Encode(s); err != nil || jsonOnly {
		return err
	}
	fmt.Fprintf(w, "%d requests and %d failed ones in %.2f s, %.0f rps, mode %s, c=%d, load %.2f -> %.2f\n",
		s.Requests, s.Failed, s.Seconds, s.RPS, s.Mode, s.Workers, s.Load[0], s.Load[1])
	fmt.Fprintf(w, "pick   ms: p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n", s.PickMS.P50, s.PickMS.P90, s.PickMS.P99, s.PickMS.Max)
	fmt.Fprintf(w, "stream ms: p50 %.3f  p90 %.3f  p99 %.3f  max %.3f\n", s.StreamMS.P50, s.StreamMS.P90, s.StreamMS.P99, s.StreamMS.Max)
	if r.cfg.pid != 0 {
		fmt.Fprintf(w, "server: %.3f CPU-ms/request, RSS %.1f -> %.1f MB (peak %.1f)\n", s.CPUPerReq, s.RSSBeforeMB, s.RSSAfterMB, s.RSSPeakMB)
	}
	for _, k := range slices.Sorted(maps.Keys(s.Picks)) {
		fmt.Fprintf(w, "pick  %-24s %d\n", k, s.Picks[k])
	}
	for _, k := range slices.Sorted(maps.Keys(s.Errors)) {
		fmt.Fprintf(w, "error %-24s %d\n", k, s.Errors[k])
	}
	if s.BodyChanged > 0 {
		fmt.Fprintf(w, "bodies the server changed: %d\n", s.BodyChanged)
	}
	return nil
}
