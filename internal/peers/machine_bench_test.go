package peers

import (
	"syscall"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/load"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

// BenchmarkRequest is the cost of one request in addition to the decision: told,
// writing the three messages of it (charge and prefix, first token, release), and
// heard, reading them on another router that receives from seven. A request in
// 16 KB has 64 new blocks of 64.
func BenchmarkRequest(b *testing.B) {
	now := time.Unix(1_700_000_000, 0)
	keys := make([]prefixhash.Key, 64)
	for i := range keys {
		keys[i] = prefixhash.Key(i+1) * 0x9E3779B97F4A7C15
	}
	w := newMesh(b, 8)
	w.now = now
	w.settle()
	teller, hearer := w.nodes[0], w.nodes[1]
	var bytes int
	request := func(i int, pass func([]byte)) {
		w.now = w.now.Add(time.Microsecond)
		write := func() {
			if text := teller.m.Write(w.now); text != nil {
				bytes += len(text)
				pass(text)
			}
		}
		var c load.Charge
		teller.ledger.Lock()
		c.Put(teller.ledger.Of(replica(i%4)), load.Terms{Sent: w.now.UnixNano(), Due: w.now.Add(time.Hour).UnixNano(), Model: 1e8, Expected: 1e8, Tokens: 1000})
		teller.ledger.Unlock()
		teller.outbox.Send(decision.Prefix{Statement: decision.Observed, Model: "m", Holder: replica(i % 4), Keys: keys, Lasts: time.Second})
		write()
		c.FirstToken()
		write()
		c.Release()
		write()
	}
	b.Run("told", func(b *testing.B) {
		b.ReportAllocs()
		defer reportCPU(b)()
		bytes = 0
		for i := range b.N {
			request(i, func([]byte) {})
		}
		b.ReportMetric(float64(bytes)/float64(b.N), "B/request")
	})
	for _, n := range w.nodes { // messages without a receiver are a gap
		n.m.o.Outbox.Notify()
	}
	b.Run("told and heard", func(b *testing.B) {
		b.ReportAllocs()
		defer reportCPU(b)()
		for i := range b.N {
			request(i, func(text []byte) {
				if err := hearer.m.Read(w.now, text); err != nil {
					b.Fatal(err)
				}
			})
			hearer.fleet.prefixes = hearer.fleet.prefixes[:0]
		}
	})
}

// reportCPU has the function it returns report the process's own time, which other
// work on the machine does not lengthen.
func reportCPU(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		must.Do(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N), "cpu-ns/request") }
}
