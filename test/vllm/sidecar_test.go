//go:build vllm

package vllm

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"warmroute/index"
	"warmroute/index/indexpb"
	"warmroute/internal/indexrpc"
	"warmroute/internal/kvevents"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// reported is an index that only sidecars feed, one for each replica.
type reported struct {
	scheme  string
	client  indexpb.CacheIndexClient
	metrics *prometheus.Registry
}

// sidecar: vLLM → kvsub → index. The index holds as many blocks as each replica
// by its own events, under either scheme; a second turn's prefix is looked up on
// the replica that has it, and vLLM then hits exactly as many tokens.
func (f *fixture) sidecar(t *testing.T) {
	kvsub := must.Get(sidecar())(t)
	tokens := f.reportedTo(t, kvsub, index.SchemeTokens)
	engine := f.reportedTo(t, kvsub, kvevents.SchemeEngine)
	caches := f.caches(t)

	first := f.send(t, "/v1/chat/completions", completion(user(story(700))))
	first.exact(t, "first turn")
	f.equal(t, caches, tokens, engine)
	second := completion(user(story(700)), assistant(first.text), user("And what did the next one do?"))
	prompt := f.tokenize(t, second)
	usable := (len(prompt) - 1) / f.blockSize // the last token is always computed
	q := &indexpb.LookupRouteRequest{Model: served, HashScheme: index.SchemeTokens, BlockSize: uint32(f.blockSize)}
	for _, k := range prefixhash.AppendTokens(nil, prefixhash.TokenRoot(served, prefixhash.LoRA{}), prompt[:usable*f.blockSize], prefixhash.Blocks{Size: f.blockSize}, nil) {
		q.BlockHashes = append(q.BlockHashes, binary.BigEndian.AppendUint64(nil, uint64(k)))
	}
	own := must.Get(tokens.client.LookupRoute(t.Context(), q))(t)
	routers := must.Get(dial(t, f.service).LookupRoute(t.Context(), q))(t)
	for name, out := range map[string]*indexpb.LookupRouteResponse{"through kvsub": own, "the router's": routers} {
		if out.GetHint() != indexpb.Hint_USE_HINT || len(out.GetRoutes()) == 0 || out.GetRoutes()[0].GetReplicaId() != first.replica {
			t.Errorf("%s: %v, want a hint to %s first", name, out, first.replica)
		}
	}
	o := f.send(t, "/v1/chat/completions", second)
	o.exact(t, "second turn")
	if got := own.GetRoutes(); len(got) > 0 && (int(got[0].GetMatchedTokens()) != o.hits || o.hits == 0 || o.replica != first.replica) {
		t.Errorf("%d tokens matched on %s, vLLM hit %d on %s", got[0].GetMatchedTokens(), got[0].GetReplicaId(), o.hits, o.replica)
	}
	f.equal(t, caches, tokens, engine)
}

// reportedTo serves a new index and starts a sidecar for each replica.
func (f *fixture) reportedTo(t *testing.T, kvsub, scheme string) *reported {
	t.Helper()
	x := index.New(index.Options{})
	t.Cleanup(x.Close)
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	s := indexrpc.New(x, indexrpc.Options{})
	testenv.Run(t, func(ctx context.Context) error { return s.Serve(ctx, l) })
	for i, r := range f.replicas {
		p := must.Get(testenv.Start(f.dir, fmt.Sprintf("kvsub-%s-%d", scheme, i), nil, kvsub, "-replica", r.Addr, "-model", served, "-hash-scheme", scheme,
			"-endpoint", r.Events, "-replay", r.Replay, "-index", l.Addr().String(), "-metrics", "http://"+r.Addr+"/metrics"))(t)
		t.Cleanup(p.Stop)
	}
	out := &reported{scheme, dial(t, l.Addr().String()), prometheus.NewRegistry()}
	out.metrics.MustRegister(s.Collectors()...)
	return out
}

func dial(t *testing.T, addr string) indexpb.CacheIndexClient {
	t.Helper()
	conn := must.Get(grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials())))(t)
	t.Cleanup(func() { _ = conn.Close() })
	return indexpb.NewCacheIndexClient(conn)
}

// cache has a replica's blocks by its events, folded with nothing but a set. vLLM has no
// other count of its cached blocks.
type cache struct {
	mu   sync.Mutex
	held map[uint64]bool
}

// Begin implements kvevents.Sink.
func (c *cache) Begin(index.Holder) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = make(map[uint64]bool)
	return 1
}

// Apply implements kvevents.Sink; observe has taken the batch.
func (c *cache) Apply(*index.Batch) (index.Result, error) { return index.Result{}, nil }

func (c *cache) observe(_ uint64, b *kvevents.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range b.Events {
		if e.Kind == index.Cleared {
			clear(c.held)
		}
		for _, h := range e.Hashes {
			if e.Kind == index.Stored {
				c.held[h] = true
			} else {
				delete(c.held, h)
			}
		}
	}
}

// caches follows both replicas.
func (f *fixture) caches(t *testing.T) map[string]*cache {
	t.Helper()
	out := make(map[string]*cache)
	for _, r := range f.replicas {
		c := new(cache)
		c.Begin(index.Holder{})
		s := must.Get(kvevents.New(kvevents.Options{Replica: r.Addr, Endpoint: r.Events, ReplayEndpoint: r.Replay, Model: served, Scheme: kvevents.SchemeEngine, Observe: c.observe}, c))(t)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = s.Run(ctx) })
		t.Cleanup(running.Wait)
		t.Cleanup(cancel)
		testenv.Until(t, 20*time.Second, "the whole history of "+r.Addr, func() bool { return s.Status().Complete }, func() any { return s.Status() })
		out[r.Addr] = c
	}
	return out
}

// equal waits until each index has as many blocks of every replica as it holds,
// and until its gauge counts the distinct ones.
func (f *fixture) equal(t *testing.T, caches map[string]*cache, indexes ...*reported) {
	t.Helper()
	f.quiet(t)
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		var wrong error
		for _, x := range indexes {
			if err := x.differs(t, caches); err != nil {
				wrong = err
			}
		}
		if wrong == nil {
			return
		}
		if time.Now().After(end) {
			t.Errorf("20 s after the last event: %v", wrong)
			return
		}
	}
}

func (x *reported) differs(t *testing.T, caches map[string]*cache) error {
	t.Helper()
	state := must.Get(x.client.GetCacheState(t.Context(), &indexpb.GetCacheStateRequest{AllTenants: true}))(t)
	held := make(map[string]uint64)
	for _, r := range state.GetReplicas() {
		held[r.GetReplicaId()] = r.GetBlocks()
	}
	distinct, total := make(map[uint64]bool), 0
	for addr, c := range caches {
		c.mu.Lock()
		n := len(c.held)
		for h := range c.held {
			distinct[h] = true
		}
		c.mu.Unlock()
		if total += n; held[addr] != uint64(n) || n == 0 {
			return fmt.Errorf("scheme %s: the index holds %d blocks of %s, vLLM %d", x.scheme, held[addr], addr, n)
		}
	}
	families := must.Get(x.metrics.Gather())(t)
	entries := -1.0
	for _, m := range families {
		if m.GetName() == "warmroute_index_entries" && len(m.GetMetric()) == 1 {
			entries = m.GetMetric()[0].GetGauge().GetValue()
		}
	}
	if x.scheme == kvevents.SchemeEngine && entries != float64(len(distinct)) {
		return fmt.Errorf("scheme %s: warmroute_index_entries is %v, vLLM holds %d distinct blocks", x.scheme, entries, len(distinct))
	}
	// Our keys do not depend on a replica's hash seed, so that equal blocks meet.
	if entries < 1 || entries > float64(total) {
		return fmt.Errorf("scheme %s: warmroute_index_entries is %v of %d blocks", x.scheme, entries, total)
	}
	return nil
}

// tokenize requests the token ids of a chat request from a replica.
func (f *fixture) tokenize(t *testing.T, request object) []uint32 {
	t.Helper()
	var v struct{ Tokens []uint32 }
	testenv.Post(t, "http://"+f.replicas[0].Addr+"/tokenize", object{"model": served, "messages": request["messages"]}).Into(t, &v)
	if len(v.Tokens) == 0 {
		t.Fatal("tokenize: no tokens")
	}
	return v.Tokens
}
