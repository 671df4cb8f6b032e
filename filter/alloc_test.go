package filter

import (
	"context"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/internal/tracefile"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
	"warmroute/render/testkit/race"
)

// readyTokens is a source whose ids are there already.
type readyTokens struct{ result tokens.Result }

func (r *readyTokens) Tokens(context.Context, *openai.Request, tokens.Served) (tokens.Result, error) {
	return r.result, nil
}

// TestRouteAllocates: a decision after warm-up, over a real index and 8 replicas,
// reading the body, hashing 4000 tokens, ranking, charging, recording and
// releasing. It still allocates the parsed request, its budget, the lease, the
// speculated keys and the header's text; a new allocation must be seen here first. A trace
// file costs none.
func TestRouteAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	w := traceWriter(t)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	const most = 9
	without, with := routeAllocations(t, nil), routeAllocations(t, w)
	if t.Logf("%v allocations a decision, %v with a trace file", without, with); without > most || with > without {
		t.Errorf("at most %d are allowed, and none for the trace file", most)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func routeAllocations(t *testing.T, trace *tracefile.Writer) float64 {
	x := index.New(index.Options{})
	defer x.Close()
	ids := make([]uint32, 4000)
	for i := range ids {
		ids[i] = uint32(i * 7)
	}
	var replicas []*fleet.Replica
	for n := range 8 {
		replicas = append(replicas, replica(n+1))
	}
	ledger := load.NewLedger(nil)
	d := decision.New(decisiontest.NewFleet(replicas...), x, ledger, newBook(t, policy.Config{}), decision.Options{})
	source := &readyTokens{tokens.Result{Source: tokens.FromBody, Prompts: []tokens.Prompt{{Tokens: ids}}}}
	r := NewRouter(d, source, decision.NewRing(64), NewMetrics(prometheus.NewRegistry()), RouterOptions{TokenBudget: time.Minute, Requests: trace, Usage: func(uint64, string, bool) bool { return true }})
	hold(t, x, replicas[2].Addr, ids[:2000])
	q := query()
	one := func() {
		got := r.Route(context.Background(), q)
		if got.Reservation == nil {
			t.Fatalf("decision %+v", got)
		}
		trace.Ended(tracefile.Ended{Number: got.Seq, First: got.Reservation.FirstTokenAt(), Status: 200})
		got.Reservation.Answered(200)
		got.Reservation.Release()
		runtime.Gosched() // to the trace file's writer: measurements use one processor
	}
	for range 100 {
		one()
	}
	return leastAllocations(one)
}

// leastAllocations returns the least of several measurements. On a busy machine one is too high: a
// garbage collection empties pools, and while the trace file's writer is behind it keeps its memory.
func leastAllocations(one func()) float64 {
	least := math.Inf(1)
	for range 10 {
		least = min(least, testing.AllocsPerRun(500, one))
	}
	return least
}

// hold has a replica report the blocks of ids.
func hold(t testing.TB, x *index.Index, addr string, ids []uint32) {
	t.Helper()
	h := index.Holder{Replica: addr}
	contents := prefixhash.AppendContents(nil, ids, prefixhash.Blocks{Size: blockSize}, nil)
	engine := make([]uint64, len(contents))
	for i := range engine {
		engine[i] = uint64(i + 1)
	}
	must.Get(x.Apply(&index.Batch{Holder: h, Incarnation: x.Begin(h), Events: []index.Event{{
		Kind: index.Stored, Tier: index.TierGPU, Hashes: engine, Content: contents,
		Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize},
	}}}))(t)
}
