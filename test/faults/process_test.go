package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"warmroute/index"
	"warmroute/internal/kvevents"
	"warmroute/internal/testenv"
	"warmroute/prefixhash"
)

// process is a simulated vLLM in a process of its own, always on the same ports.
type process struct {
	t       *testing.T
	dir     string
	binary  string
	args    []string
	addr    string
	source  source
	running *testenv.Process
	lives   int
	served  int // requests
}

// cacheBlocks of a process: fewer than all prompts have, so that it evicts.
const cacheBlocks = 150

// stepBatches is more batches than a request makes a process publish: one per
// engine step that stores or evicts blocks, and it takes a prefill and a token.
const stepBatches = 4

// newProcess launches a process that gets at most so many requests: its blocks
// are read from its whole history.
func newProcess(t *testing.T, binary, version string, requests int) *process {
	t.Helper()
	at := testenv.Addresses(t, 3)
	p := &process{t: t, dir: t.TempDir(), binary: binary, addr: at[0],
		source: source{holder: index.Holder{Replica: at[0]}, endpoint: "tcp://" + at[1], replay: "tcp://" + at[2]},
		args: []string{"-listen", at[0], "-events", at[1], "-replay", at[2], "-version", version, "-model", scope.Model,
			"-block-size", fmt.Sprint(blockSize), "-blocks", fmt.Sprint(cacheBlocks), "-prefill-rate", "-1", "-decode-rate", "-1",
			"-fail-drop-events", "20", "-buffer-steps", fmt.Sprint(stepBatches * requests)}}
	p.launch()
	t.Cleanup(func() { p.running.Stop() })
	return p
}

func (p *process) launch() {
	p.t.Helper()
	p.lives++
	var err error
	if p.running, err = testenv.Start(p.dir, fmt.Sprint("life-", p.lives), nil, p.binary, p.args...); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := p.running.WaitHTTP(ctx, "http://"+p.addr+"/health"); err != nil {
		p.t.Fatal(err)
	}
}

// ask sends a prompt and returns how many of its tokens the process had cached; a dead
// process gives an error.
func (p *process) ask(c *chain) (cached int, err error) {
	body, err := json.Marshal(map[string]any{"model": scope.Model, "prompt": c.tokens, "max_tokens": 1})
	if err != nil {
		return 0, err
	}
	resp, err := http.Post("http://"+p.addr+"/v1/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var v struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("completion: %s", resp.Status)
	}
	p.served++
	err = json.NewDecoder(resp.Body).Decode(&v)
	return v.Usage.Details.Cached, err
}

// history is the set of blocks that the process holds according to its whole replay.
func (p *process) history() map[prefixhash.Key]bool {
	p.t.Helper()
	x, err := index.New(index.Options{})
	if err != nil {
		p.t.Fatal(err)
	}
	defer x.Close()
	s, err := kvevents.New(kvevents.Options{Replica: p.addr, Endpoint: p.source.endpoint, ReplayEndpoint: p.source.replay, Model: scope.Model, Scheme: scope.Scheme}, x)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	defer running.Wait()
	defer cancel()
	for end := time.Now().Add(20 * time.Second); !s.Status().Complete; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("no replay of %s: %+v", p.addr, s.Status())
		}
	}
	return contents(x)[p.source.holder]
}

// TestStormProcesses: replicas of both versions are killed and started again under load;
// the index ends equal to their caches, and its predictions of a prompt equal the
// replica's counts.
func TestStormProcesses(t *testing.T) {
	limits, first := limitsOf(t), seeded(t)
	binary, err := testenv.Build(t.TempDir(), "warmroute/lab/cmd/vllmsim")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	processes := []*process{newProcess(t, binary, "0.32.0", limits.steps()), newProcess(t, binary, "0.21.0", limits.steps())}
	paths := []*path{inProcess(t, nil), throughSidecars(t, nil)}
	for _, p := range paths {
		for _, r := range processes {
			p.join(r.source)
			defer p.leave(r.source.holder)
		}
	}
	all, rng := newPrompts(), rand.New(rand.NewPCG(first, 2000))
	hits, start := 0, time.Now()
	t.Logf("%d rounds, %v of load and a kill in each", limits.rounds, limits.round)
	for round := range limits.rounds {
		killed(processes, all, rng, limits)
		recent := make(map[*process]*chain)
		for _, r := range processes {
			recent[r] = &all.chains[rng.IntN(chains)]
			if _, err := r.ask(recent[r]); err != nil { // its life must show
				t.Fatal(err)
			}
		}
		last := time.Now()
		for _, r := range processes {
			holds := r.holds(recent[r])
			for _, p := range paths {
				agree(t, p, r, holds, last, limits.settled)
				t.Logf("round %d of %d, %s, %s: exact after %v", round+1, limits.rounds, p.name, r.addr, time.Since(last).Round(time.Millisecond))
			}
		}
		for _, r := range processes {
			hits += predicted(t, paths, r, &all.chains[rng.IntN(chains)])
		}
	}
	for _, r := range processes {
		t.Logf("%s: %d requests served in %d lives", r.addr, r.served, r.lives)
	}
	t.Logf("%d rounds in %v: %d cached tokens predicted and counted", limits.rounds, time.Since(start).Round(time.Second), hits)
	if hits == 0 {
		t.Error("no prompt was ever cached: nothing was predicted")
	}
}

// killed drives every process for a round and kills one half-way.
func killed(processes []*process, all *prompts, rng *rand.Rand, limits limits) {
	end := time.Now().Add(limits.round)
	var driving sync.WaitGroup
	for i, r := range processes {
		own := rand.New(rand.NewPCG(rng.Uint64(), uint64(i)))
		driving.Go(func() {
			for time.Now().Before(end) {
				_, _ = r.ask(&all.chains[own.IntN(chains)]) // fails while it is dead
				time.Sleep(limits.pace)
			}
		})
	}
	time.Sleep(limits.round / 2)
	victim := processes[rng.IntN(len(processes))]
	victim.running.Kill()
	time.Sleep(limits.round / 10)
	victim.launch()
	driving.Wait()
}

// holds returns the blocks of the process once it has published its recent prompt, which
// it does within a step. It gets no request meanwhile.
func (p *process) holds(recent *chain) map[prefixhash.Key]bool {
	p.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; {
		if holds := p.history(); holds[recent.keys[chainLen-1]] {
			return holds
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s does not publish its last prompt", p.addr)
		}
	}
}

// agree waits until the index holds the process's blocks. Reading a long history may take
// longer than the index is given: then it must agree at once.
func agree(t *testing.T, p *path, r *process, want map[prefixhash.Key]bool, last time.Time, within time.Duration) {
	t.Helper()
	for {
		got := contents(p.index.Load())[r.source.holder]
		if maps.Equal(got, want) {
			return
		}
		if time.Since(last) > within {
			t.Fatalf("%s: %s: %d blocks in the index, the process holds %d; %v after the last request", p.name, r.addr, len(got), len(want), time.Since(last))
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// predicted compares both paths' predictions with the process's own count, and returns
// that count.
func predicted(t *testing.T, paths []*path, r *process, c *chain) (cached int) {
	t.Helper()
	const usable = chainLen - 1 // the last token is always computed
	want := make([]int, len(paths))
	for i, p := range paths {
		x := p.index.Load()
		for _, m := range x.Lookup(nil, scope, c.keys[:usable]) {
			if m.ID == x.ID(r.source.holder) {
				want[i] = int(m.Reported) * blockSize
			}
		}
	}
	cached, err := r.ask(c)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range paths {
		if want[i] != cached {
			t.Errorf("%s: %s: %d tokens predicted, the replica counted %d", p.name, r.addr, want[i], cached)
		}
	}
	return cached
}
