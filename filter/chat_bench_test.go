package filter

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/fleet"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// BenchmarkChat is a whole stream of a chat of 16 KB without gRPC: Qwen3's files, a real index, 8
// replicas, of which each has the beginnings of some sessions.
func BenchmarkChat(b *testing.B) {
	const sessions, turns = 256, 4
	m := must.Get(tokens.LoadFolder(b.Context(), "../.cache/models/qwen3", tokens.Flags{Transformers: "5.19.0"}))(b)
	local := tokens.NewLocal(tokens.LocalOptions{TrustUnverified: openai.FeatureChat, SampleEvery: -1,
		Endpoints: func(string) []tokens.Endpoint { return []tokens.Endpoint{{Version: "0.32.0", MaxLen: 131_072}} }})
	must.Do(b, local.Load("m", m))
	local.CheckAll(b.Context())
	x := index.New(index.Options{})
	defer x.Close()
	var replicas []*fleet.Replica
	for n := range 8 {
		r := replica(n + 1)
		r.Blocks = 65536
		replicas = append(replicas, r)
	}
	ledger := load.NewLedger(nil)
	d := decision.New(decisiontest.NewFleet(replicas...), x, ledger, newBook(b, policy.Config{}), decision.Options{})
	router := NewRouter(d, &tokens.Chooser{Local: local}, decision.NewRing(1024), NewMetrics(prometheus.NewRegistry()),
		RouterOptions{TokenBudget: time.Minute, DropTexts: true, Usage: func(uint64, string, bool) bool { return false }})
	s := NewServer(router, ServerOptions{})
	first := must.Get(proto.Marshal(headers(buffered, "POST", chatPath, false)))(b)
	var bodies [][]byte
	for i := range sessions * turns {
		one := chatOf(i%sessions, i)
		bodies = append(bodies, must.Get(proto.Marshal(body(one, true)))(b))
		if i < sessions {
			req := must.Get(openai.Parse(openai.Chat, []byte(one)))(b)
			res := must.Get(local.Tokens(b.Context(), req, tokens.Served{Model: "m"}))(b)
			hold(b, x, replicas[i%len(replicas)].Addr, res.Prompts[0].Tokens)
			res.Release()
		}
	}
	f := inFlight{s: s, first: first}
	for i := range 2 * len(bodies) {
		f.one(b, bodies[i%len(bodies)])
	}
	b.ReportAllocs()
	b.ResetTimer()
	const window = 25 // requests
	var windows []int64
	before, began := processorTime(), processorTime()
	for i := 0; b.Loop(); i++ {
		f.one(b, bodies[i*31%len(bodies)])
		if i%window == window-1 {
			now := processorTime()
			windows, before = append(windows, (now-before)/window), now
		}
	}
	b.ReportMetric(float64(processorTime()-began)/float64(b.N), "cpu-ns/op")
	if slices.Sort(windows); len(windows) > 0 { // of a machine that others use, too
		b.ReportMetric(float64(windows[0]), "least-cpu-ns/op")
	}
}

// inFlight has the latest streams, which are still open.
type inFlight struct {
	s       *Server
	first   []byte // the message with the headers
	wire    wire
	streams [16]*stream
	memory  [16]*memory
	next    int
}

// one opens a stream with that body, and ends the oldest.
func (f *inFlight) one(b *testing.B, body []byte) {
	at := f.next % len(f.streams)
	if st := f.streams[at]; st != nil {
		st.close()
		f.memory[at].recycle(st)
	}
	f.next++
	f.wire.next, f.wire.messages = 0, append(f.wire.messages[:0], f.first, body)
	w, m := &f.wire, memories.Get().(*memory)
	st := f.s.stream(modev3.ProcessingMode_BUFFERED, &m.hint)
	st.overLimit = !f.s.crowd.enter(&st.place, st.o, f.s.router.o.Now())
	for range w.messages {
		if w.RecvMsg(&m.in) != nil || f.s.answer(w, st, m) != nil {
			b.Fatal("a message was not answered")
		}
	}
	if st.d.Chosen == "" {
		b.Fatalf("decision %+v", st.d)
	}
	f.streams[at], f.memory[at] = st, m
}

// processorTime returns the processors' time that this process has taken, in ns.
func processorTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// chatOf is a chat of 16 KB: three quarters are of all sessions of a kind, the next part of the
// session alone, the last of no other chat.
func chatOf(session, n int) string {
	return fmt.Sprintf(`{"model":"m","messages":[{"role":"system","content":%q},{"role":"user","content":%q},{"role":"assistant","content":"Understood."},{"role":"user","content":%q}],"max_tokens":128,"temperature":0.7,"seed":%d,"user":"session-%d","stream":true}`,
		madeUp(int64(session%32), 12_000), madeUp(int64(1000+session), 2_600), madeUp(int64(10_000+n), 1_400), n, session)
}

// madeUp is text of n bytes.
func madeUp(seed int64, n int) string {
	const consonants, vowels = "bcdfghjklmnprstvw", "aeiou"
	rng := rand.New(rand.NewSource(seed))
	var b strings.Builder
	for b.Len() < n {
		for range 1 + rng.Intn(3) {
			b.WriteByte(consonants[rng.Intn(len(consonants))])
			b.WriteByte(vowels[rng.Intn(len(vowels))])
		}
		b.WriteByte(' ')
	}
	return b.String()[:n]
}
