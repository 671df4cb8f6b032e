package filter

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
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
// speculated keys and the header's text; a new allocation must be seen here first.
func TestRouteAllocates(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector drops pooled memory at random")
	}
	const most = 9
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
	r := NewRouter(d, source, decision.NewRing(64), NewMetrics(prometheus.NewRegistry()), RouterOptions{})
	hold(t, x, replicas[2].Addr, ids[:2000])
	q := query()
	one := func() {
		got := r.Route(context.Background(), q)
		if got.Reservation == nil {
			t.Fatalf("decision %+v", got)
		}
		got.Reservation.Answered(200)
		got.Reservation.Release()
	}
	for range 100 {
		one()
	}
	if n := testing.AllocsPerRun(500, one); n > most {
		t.Errorf("%v allocations a decision, at most %d are allowed", n, most)
	} else {
		t.Logf("%v allocations a decision", n)
	}
}

// hold has a replica report the blocks of ids.
func hold(t *testing.T, x *index.Index, addr string, ids []uint32) {
	t.Helper()
	h := index.Holder{Replica: addr}
	contents := prefixhash.AppendContents(nil, ids, blockSize, nil)
	engine := make([]uint64, len(contents))
	for i := range engine {
		engine[i] = uint64(i + 1)
	}
	_, err := x.Apply(&index.Batch{Holder: h, Incarnation: x.Begin(h), Events: []index.Event{{
		Kind: index.Stored, Tier: index.TierGPU, Hashes: engine, Content: contents,
		Scope: index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize},
	}}})
	if err != nil {
		t.Fatal(err)
	}
}
