package firsttoken

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/filter"
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/policy"
	"warmroute/internal/feed"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/testenv"
	"warmroute/internal/tokens"
	"warmroute/lab/vllmsim"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// requests is the number of requests that are measured.
const requests = 24

// simulated starts a replica that prefills 8,000 tokens per second in steps of
// 2,048.
func simulated(t *testing.T) *fleet.Replica {
	sim := must.Get(vllmsim.New(vllmsim.Options{Events: "127.0.0.1:0", Model: "m"}))(t)
	testenv.Run(t, sim.Run)
	return server(sim.Addr(), sim.EventEndpoint(0), 16, "m")
}

func server(addr, events string, block int, model string) *fleet.Replica {
	return &fleet.Replica{
		Addr: addr, Ready: true, Reported: fleet.Reported{BlockSize: block, Models: []fleet.Model{{ID: model, Base: model}}, Events: []fleet.EventSource{{Endpoint: events}}}, Ranks: []int{0},
	}
}

func replica(t *testing.T) *fleet.Replica {
	given := os.Getenv("WARMROUTE_FIRSTTOKEN")
	if given == "" {
		return simulated(t)
	}
	parts := strings.Split(given, ",")
	if len(parts) != 4 {
		t.Fatalf("WARMROUTE_FIRSTTOKEN: %q is not address,events,block size,model", given)
	}
	block := must.Get(strconv.Atoi(parts[2]))(t)
	return server(parts[0], parts[1], block, parts[3])
}

type alone struct{ snap *fleet.Snapshot }

func (a alone) Snapshot() *fleet.Snapshot { return a.snap }

// TestEventsTellFirstTokens compares when the ledger takes a request's prefill
// off with when its client got the first token.
func TestEventsTellFirstTokens(t *testing.T) {
	rep := replica(t)
	x := index.New(index.Options{})
	defer x.Close()
	ledger := load.NewLedger(nil)
	applied := make(chan struct{}, 1)
	f := feed.New(x, feed.Options{Applied: func(b *index.Batch) {
		ledger.Applied(b)
		select {
		case applied <- struct{}{}:
		default:
		}
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = f.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	f.Join(rep)
	book := must.Get(policy.NewBook(policy.Config{}))(t)
	d := decision.New(alone{fleet.NewSnapshot(rep)}, x, ledger, book, decision.Options{})
	router := filter.NewRouter(d, tokens.Body{}, decision.NewRing(1), filter.NewMetrics(prometheus.NewRegistry()), filter.RouterOptions{TokenBudget: time.Minute})
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	warmUp(t, rep, router, applied, rng)

	var off []time.Duration
	for range requests {
		body := prompt(rep.Models[0].ID, 100+rng.IntN(1400), rng)
		decision := router.Route(ctx, &filter.Query{Route: openai.Completions, Body: body})
		if decision.Reservation == nil {
			t.Fatal(decision.Reason)
		}
		for len(applied) > 0 {
			<-applied
		}
		known := make(chan time.Time, 1)
		go func() {
			load := ledger.Of(index.Holder{Replica: rep.Addr})
			for range applied {
				if load.Awaiting() == 0 {
					known <- time.Now()
					return
				}
			}
		}()
		seen := firstToken(t, rep.Addr, body)
		select {
		case at := <-known:
			off = append(off, at.Sub(seen))
		case <-time.After(time.Minute):
			t.Fatal("no event told of the first token")
		}
		decision.Reservation.Release()
	}
	slices.SortFunc(off, func(a, b time.Duration) int { return int(a.Abs() - b.Abs()) })
	median, worst := off[len(off)/2], off[len(off)-1]
	t.Logf("news against the client's first token: median %v, worst %v of %d", median, worst, len(off))
	if median.Abs() > 100*time.Millisecond {
		t.Errorf("half of the news are off by %v or more", median)
	}
}

// warmUp sends requests until an event arrives: the subscription is up then.
func warmUp(t *testing.T, rep *fleet.Replica, router *filter.Router, applied chan struct{}, rng *rand.Rand) {
	for range 50 {
		body := prompt(rep.Models[0].ID, 200, rng)
		router.Route(context.Background(), &filter.Query{Route: openai.Completions, Body: body}).Reservation.Release()
		firstToken(t, rep.Addr, body)
		select {
		case <-applied:
			return
		case <-time.After(200 * time.Millisecond):
		}
	}
	t.Fatal("no events")
}

// prompt is a streamed completion of n random tokens.
func prompt(model string, n int, rng *rand.Rand) []byte {
	ids := make([]int, n)
	for i := range ids {
		ids[i] = 100 + rng.IntN(900)
	}
	body, _ := json.Marshal(map[string]any{"model": model, "prompt": ids, "max_tokens": 2, "stream": true, "ignore_eos": true})
	return body
}

// firstToken sends a request and returns when its first token arrived.
func firstToken(t *testing.T, addr string, body []byte) time.Time {
	t.Helper()
	resp := must.Get(http.Post(fmt.Sprintf("http://%s/v1/completions", addr), "application/json", bytes.NewReader(body)))(t)
	defer resp.Body.Close()
	var first time.Time
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "data: {") && first.IsZero() {
			first = time.Now()
		}
	}
	if resp.StatusCode != http.StatusOK || first.IsZero() {
		t.Fatalf("status %d and no token", resp.StatusCode)
	}
	return first
}
