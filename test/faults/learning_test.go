package faults

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/lab/vllmsim"
)

// learners are replicas whose draft models are not configured: none, one that drops a
// block in every group, one in full attention alone.
var learners = []vllmsim.Options{
	{Groups: []vllmsim.Group{{Kind: vllmsim.SlidingWindow, Window: 24}, {Kind: vllmsim.SlidingWindow, Window: 24}, {Kind: vllmsim.FullAttention}}},
	{Groups: []vllmsim.Group{{Kind: vllmsim.SlidingWindow, Window: 40}, {Kind: vllmsim.FullAttention}}, Eagle: []int{0, 1}, Draft: 2},
	{Groups: []vllmsim.Group{{Kind: vllmsim.Mamba}, {Kind: vllmsim.FullAttention}}, Eagle: []int{1}, Draft: 2},
}

// TestLearnsInABusyFleet: replicas that are never idle, each with several clients at
// once, and counters that are read meanwhile: the index ends with the right assumption
// about each draft model, predicts the replica's hits, and assumes nothing about the
// replica's next process.
func TestLearnsInABusyFleet(t *testing.T) {
	first := seeded(t)
	x, err := index.New(index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var all sync.WaitGroup
	for i, o := range learners {
		o.BlockSize, o.Model, o.PrefillRate, o.DecodeRate = hybridBlock, scope.Model, -1, 2000
		o.Blocks, o.MaxModelLen, o.MaxBatchedTokens = 2000, 640, 64
		o.Listen, o.Events, o.Replay = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		h := &hybrid{t: t, o: o, holder: index.Holder{Replica: fmt.Sprintf("learner-%d", i)}, rng: rand.New(rand.NewPCG(first, uint64(i)))}
		x.SetGroups(h.holder.Replica, &index.GroupSettings{Rule: index.GroupRule032, ReplayKnown: true})
		h.start()
		h.join(x)
		defer func() { h.leave(); h.end() }()
		all.Go(func() { h.learn(x) })
	}
	all.Wait()
}

// clients are those of one replica at a time.
const clients = 4

// learn keeps the replica busy until it is learned, and then checks the learned
// assumption.
func (h *hybrid) learn(x *index.Index) {
	var busy sync.WaitGroup
	stop := make(chan struct{})
	served := make([]*hybrid, clients)
	for i := range served {
		c := &hybrid{t: h.t, o: h.o, holder: h.holder, sim: h.sim, rng: rand.New(rand.NewPCG(h.rng.Uint64(), uint64(i)))}
		served[i] = c
		busy.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				p := c.prompt()
				c.expect(x, p)
				c.serve(p)
			}
		})
	}
	known := func() bool {
		h.scrape(x)
		trust, ok := x.Trust(x.ID(h.holder), "", scope.Model)
		return ok && trust.Exact
	}
	learned := until(known)
	close(stop)
	busy.Wait()
	asked := 0
	for _, c := range served {
		asked += c.asked
		h.served = append(h.served, c.served[max(0, len(c.served)-15):]...)
	}
	if !learned {
		h.t.Errorf("%s: not learned from %d requests", h.holder.Replica, asked)
		return
	}
	h.serve(h.prompt())
	hits, checked := h.agree(x, time.Now(), 10*time.Second)
	h.t.Logf("%s: learned from %d requests; %d prompts equal, %d found something cached", h.holder.Replica, asked, checked, hits)
	if hits == 0 {
		h.t.Errorf("%s: nothing is cached: nothing was tested", h.holder.Replica)
	}
	h.end()
	h.start()
	h.served = nil
	anew := until(func() bool {
		h.serve(h.prompt())
		trust, ok := x.Trust(x.ID(h.holder), "", scope.Model)
		return ok && trust.Unconfirmed
	})
	if !anew {
		h.t.Errorf("%s: what was learned of one process is believed of the next", h.holder.Replica)
	}
}

// until calls done every few milliseconds, for at most a minute.
func until(done func() bool) bool {
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(3 * time.Millisecond) {
		if done() {
			return true
		}
	}
	return false
}

// expect records that a prompt is sent to the replica, as a decision does.
func (h *hybrid) expect(x *index.Index, tokens []uint32) {
	s := scope
	s.BlockSize, s.Group = hybridBlock, len(h.o.Groups)-1
	p := tokenPrompt(slices.Clone(tokens))
	x.Expect(new(index.Guess), x.ID(h.holder), s, p.AppendChain(nil, index.Keying{Unit: s.BlockSize}), p)
}

// scrape reads the replica's counters.
func (h *hybrid) scrape(x *index.Index) {
	resp, err := http.Get("http://" + h.sim.Addr() + "/metrics")
	if err != nil {
		h.t.Error(err)
		return
	}
	defer resp.Body.Close()
	var queries, hits float64
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), "} ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name, _, _ = strings.Cut(name, "{"); name {
		case "vllm:prefix_cache_queries_total":
			queries = n
		case "vllm:prefix_cache_hits_total":
			hits = n
		}
	}
	x.Hits(h.holder, queries, hits)
}
