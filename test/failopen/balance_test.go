package failopen

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/internal/testenv"
)

// balance is a way in which Envoys share requests between routers.
type balance struct {
	name    string
	routers int
	least   bool // requests in flight decide, not turns
	sides   []*testenv.Envoy

	requests  int
	p50, p99  []time.Duration
	decisions []float64 // of each router

	waited, frozen int     // requests that waited for a frozen router, of all
	back, all      float64 // decisions of a router in the second after it is back, of all
}

var balanced = flag.Bool("balance", false, "measure how Envoys had better share requests between routers")

// TestRoutersBalance, where it is enabled, compares three routers with one, and
// Envoy's distribution in turn with that by how many requests each has.
func TestRoutersBalance(t *testing.T) {
	if !*balanced {
		return // a measurement
	}
	f := startRouters(t, "")
	ways := []*balance{{name: "one router", routers: 1}, {name: "three, in turn", routers: 3}, {name: "three, least request", routers: 3, least: true}}
	for _, w := range ways {
		f.stand(w)
	}
	const rounds, span = 4, 4 * time.Second
	for round := range rounds + 1 { // the first warms up
		for _, w := range ways {
			f.measure(w, span, round > 0)
		}
	}
	for range rounds {
		for _, w := range ways[1:] {
			f.freeze(w)
			f.restarted(w)
		}
	}
	table := "| | requests/s | of one router's | p50 | p99 | most of a router's decisions over their mean | frozen router: requests that waited | restarted router: its part of the next second's decisions |\n|---|---|---|---|---|---|---|---|\n"
	for _, w := range ways {
		table += fmt.Sprintf("| %s | %.1f | %.3f | %v | %v | %.2f | %d of %d | %.0f of %.0f |\n", w.name, float64(w.requests)/rounds/span.Seconds(), float64(w.requests)/float64(ways[0].requests),
			median(w.p50).Round(time.Millisecond), median(w.p99).Round(time.Millisecond), slices.Max(w.decisions)*float64(w.routers)/total(w.decisions), w.waited, w.frozen, w.back, w.all)
	}
	t.Logf("\n%s", table)
	f.empty()
}

func total(n []float64) (sum float64) {
	for _, v := range n {
		sum += v
	}
	return sum
}

func median(d []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(d))[len(d)/2]
}

// stand starts the Envoys of a way.
func (f *routers) stand(w *balance) {
	f.t.Helper()
	for i := range fleetEnvoys {
		w.sides = append(w.sides, f.startEnvoy(fmt.Sprint(strings.ReplaceAll(w.name, " ", "-"), "-", i), f.lists[:w.routers], func(text string) string {
			if w.least {
				return strings.Replace(text, "  - name: warmroute\n", "  - name: warmroute\n    lb_policy: LEAST_REQUEST\n", 1)
			}
			return text
		}))
	}
}

// decided is how many requests each router has named a replica for.
func (f *routers) decided() (n []float64) {
	for _, r := range f.all {
		n = append(n, float64(r.hints()))
	}
	return n
}

func (f *routers) measure(w *balance, span time.Duration, counts bool) {
	f.t.Helper()
	before := f.decided()
	for _, r := range f.through(w.sides, span, func() {}) {
		if counts {
			w.requests += r.requests
			w.p50, w.p99 = append(w.p50, r.p50), append(w.p99, r.p99)
		}
	}
	if w.decisions == nil {
		w.decisions = make([]float64, len(f.all))
	}
	for i, n := range f.decided() {
		w.decisions[i] += n - before[i]
	}
}

// freeze counts requests that wait for a frozen router until message_timeout.
func (f *routers) freeze(w *balance) {
	f.t.Helper()
	waits := func() (n int) {
		for _, e := range w.sides {
			s := stack{t: f.t, envoy: e}
			n += s.stat(messageTimeouts)
		}
		return n
	}
	before := waits()
	for _, r := range f.through(w.sides, 4*time.Second, func() { _ = f.all[2].Signal(syscall.SIGSTOP) }) {
		w.frozen += r.requests
	}
	w.waited += waits() - before
	_ = f.all[2].Signal(syscall.SIGCONT)
	f.used(w)
}

// restarted counts the decisions that a router takes in the second after it is back.
func (f *routers) restarted(w *balance) {
	f.t.Helper()
	f.all[2].Kill()
	f.through(w.sides, 8*time.Second, func() {
		f.all[2].launch("")
		wait(f.t, f.all[2].Process, "http://"+f.all[2].admin+"/readyz")
		for end := time.Now().Add(5 * time.Second); f.all[2].hints() == 0 && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond)
		}
		before := f.decided()
		time.Sleep(time.Second) // the measured time
		after := f.decided()
		w.back += after[2] - before[2]
		w.all += total(after) - total(before)
	})
	f.used(w)
}

// used waits until a way's Envoys use all routers.
func (f *routers) used(w *balance) {
	f.t.Helper()
	for _, e := range w.sides {
		until(f.t, "Envoy uses every router", func() bool {
			return strings.Count(get(f.t, e.Admin+"/clusters?filter=^warmroute$"), "::health_flags::healthy") == w.routers
		})
	}
}
