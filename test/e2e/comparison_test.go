package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// figures are one group's figures of the comparison.
type figures struct {
	Requests, Failed, Timed int
	Read                    int     `json:"usage_read"`
	Prompt                  int     `json:"prompt_tokens"`
	Cached                  int     `json:"cached_tokens"`
	FirstByte               seconds `json:"first_byte_seconds"`
	Duration                seconds `json:"answer_seconds"`
}

type seconds struct{ Sum, P50, P99 float64 }

// compared returns the groups of the page's JSON.
func (tr *trial) compared() map[string]figures {
	tr.t.Helper()
	var answer struct {
		Groups []struct {
			Group, Model string
			figures
		}
	}
	if err := json.Unmarshal([]byte(page(tr.t, "http://"+tr.admin+"/debug/trial")), &answer); err != nil {
		tr.t.Fatal(err)
	}
	out := map[string]figures{}
	for _, g := range answer.Groups {
		out[g.Group] = g.figures
	}
	return out
}

// counted sums up the lines of Envoy's log as the router should.
func (f *figures) counted(e *entry) {
	f.Requests++
	if e.Status == 0 || e.Status >= 500 {
		f.Failed++
		return
	}
	if e.Prompt != nil && e.Cached != nil {
		f.Read, f.Prompt, f.Cached = f.Read+1, f.Prompt+*e.Prompt, f.Cached+*e.Cached
	}
	if e.Status == http.StatusOK {
		f.Timed++
		f.FirstByte.Sum += e.FirstByte / 1e6
		f.Duration.Sum += e.Duration / 1e3
	}
}

// TestComparison: of 400 requests, plain ones and streams, a tenth gets hints. The two
// groups on the page and in the metrics have the requests, tokens and times of Envoy's
// own log.
func TestComparison(t *testing.T) {
	t.Parallel()
	const requests, families, share = 400, 25, 10
	tr := startTrial(t, fmt.Sprint("share: ", share))
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := worker; i < requests; i += 8 {
				words := strings.Repeat(fmt.Sprintf("family%d ", i%families), 300) + fmt.Sprint("question ", i)
				body := map[string]any{"model": "sim", "messages": []message{{"user", words}}, "max_tokens": 3}
				if i%3 == 0 {
					body["stream"], body["stream_options"] = true, map[string]any{"include_usage": true}
				}
				text, err := json.Marshal(body)
				if err != nil {
					t.Error(err)
				}
				tr.send(text)
			}
		})
	}
	wg.Wait()
	want := map[string]figures{}
	streams := 0 // whose headers came before their first byte
	for _, e := range tr.entries(requests) {
		group := "unhinted"
		if inShare(e.ID, share) {
			group = "hinted"
		}
		if (e.Hinted != "") != (group == "hinted") || (e.Withheld == "share") != (group == "unhinted") {
			t.Errorf("%+v is in the group %s", e, group)
		}
		if e.FirstByte > 1000*(e.Headers+5) {
			streams++
		}
		f := want[group]
		f.counted(&e)
		want[group] = f
	}
	tr.until("the router has heard of all", func() bool {
		c := tr.compared()
		return c["hinted"].Requests+c["unhinted"].Requests >= requests
	})
	got, metrics := tr.compared(), tr.metrics()
	if len(got) != 2 || want["hinted"].Requests == 0 || tr.hinted() != want["hinted"].Requests || streams == 0 {
		t.Fatalf("%d groups, %d hints arrived, %d streams, Envoy's log has %+v", len(got), tr.hinted(), streams, want)
	}
	for group, w := range want {
		g := got[group]
		if g.FirstByte.P50 <= 0 || g.FirstByte.P50 > g.FirstByte.P99 || g.Duration.P50 < g.FirstByte.P50 {
			t.Errorf("%s: quantiles %+v", group, g)
		}
		near := func(what string, a, b, off float64) {
			if math.Abs(a-b) > off {
				t.Errorf("%s: %s is %v, by Envoy's log %v", group, what, a, b)
			}
		}
		near("first bytes", g.FirstByte.Sum, w.FirstByte.Sum, 1e-6)
		near("durations", g.Duration.Sum, w.Duration.Sum, 1e-3*float64(w.Timed)) // the log has whole milliseconds
		series := func(name, more string) float64 { return metrics[name+`{group="`+group+`",model="sim"`+more+`}`] }
		near("first bytes in the metrics", series("warmroute_compared_seconds_sum", `,until="first_byte"`), w.FirstByte.Sum, 1e-6)
		near("durations in the metrics", series("warmroute_compared_seconds_sum", `,until="end"`), g.Duration.Sum, 1e-6)
		for label, n := range map[string]float64{"first_byte": float64(w.Timed), "end": float64(w.Timed)} {
			near(label, series("warmroute_compared_seconds_count", `,until="`+label+`"`), n, 0)
		}
		for label, n := range map[string]float64{"prompt": float64(w.Prompt), "cached": float64(w.Cached)} {
			near(label, metrics[`warmroute_compared_tokens_total{group="`+group+`",model="sim",tokens="`+label+`"}`], n, 0)
		}
		near("requests", series("warmroute_compared_requests_total", `,result="answered"`), float64(w.Requests-w.Failed), 0)
		g.FirstByte, g.Duration, w.FirstByte, w.Duration = seconds{}, seconds{}, seconds{}, seconds{}
		if g != w || w.Read != w.Requests || w.Failed != 0 {
			t.Errorf("%s: %+v, by Envoy's log %+v", group, g, w)
		}
		t.Logf("%s: %d requests, %d of %d tokens cached", group, w.Requests, w.Cached, w.Prompt)
	}
	tr.set("share: 20")
	if c := tr.compared(); len(c) != 0 {
		t.Errorf("other settings, and the page still has %+v", c)
	}
}
