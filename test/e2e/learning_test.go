package e2e

import (
	"bytes"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/lab/vllmsim"
)

var countedQueries = regexp.MustCompile(`(?m)^(vllm:prefix_cache_queries_total\{[^}]*\}) (.*)$`)

// TestAnswersTeachDrops: the usage of its answers shows that a replica with a draft model drops
// a block of every hit, which no event does. Requests are always in flight and its counters have
// a stranger's prompts in them, so they show nothing. All this with a share of 1 %: answers
// that are telling are asked for. From then on predictions equal the hits.
func TestAnswersTeachDrops(t *testing.T) {
	t.Parallel()
	sim := fast()
	sim.Groups = []vllmsim.Group{{Kind: vllmsim.SlidingWindow, Window: 64}, {Kind: vllmsim.FullAttention}}
	sim.Eagle, sim.Draft = []int{0, 1}, 2
	strangers := 0.0
	st := start(t, setup{
		replicas: 1, sim: sim, config: "envoy: {usage_share: 1}\n", envoy: envoy.Options{UsageShare: new(1)},
		front: func(replica string) string {
			var mu sync.Mutex
			return editedAt(t, replica, "/metrics", func(b []byte) []byte {
				mu.Lock()
				defer mu.Unlock()
				strangers += 7
				return countedQueries.ReplaceAllFunc(b, func(line []byte) []byte {
					part := countedQueries.FindSubmatch(line)
					n, _ := strconv.ParseFloat(string(part[2]), 64)
					return strconv.AppendFloat(append(bytes.Clone(part[1]), ' '), n+strangers, 'f', -1, 64)
				})
			})
		},
	})
	msgs := firstTurn(0)
	st.chat(msgs, 4)
	st.settled()
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 2 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				resp, err := http.Post(st.envoy.URL+chatPath, "application/json", bytes.NewReader(chatBody(t, msgs, 4)))
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	end := sync.OnceFunc(func() { close(stop); clients.Wait() })
	defer end()
	trust := func() string {
		var page struct {
			Replicas []struct {
				Ranks []struct{ Cache *struct{ Trust, Why string } }
			}
		}
		if st.page("/debug/replicas", &page); page.Replicas[0].Ranks[0].Cache == nil {
			return ""
		}
		return page.Replicas[0].Ranks[0].Cache.Trust
	}
	st.until("the drop is learned", func() bool { time.Sleep(50 * time.Millisecond); return trust() == "exact" })
	end()
	st.settled()
	answers := map[string]counted{}
	for range 20 {
		id, u, _ := st.call(chatPath, map[string]any{"model": "sim", "messages": msgs, "max_tokens": 4})
		answers[id] = u
	}
	for id, u := range answers {
		if rec := st.record(id); rec.Predicted != u.cached || u.cached == 0 {
			t.Fatalf("the answer says %+v, the record %+v", u, rec)
		}
	}
}
