package e2e

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/lab/cli/agents"
	"warmroute/lab/cli/replay"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// crammed is a stack of one replica, whose cache a session at work fills by three quarters.
type crammed struct {
	*stack
	prompts atomic.Uint64
	finish  context.CancelFunc // ends the session's answer
	busy    sync.WaitGroup
	order   atomic.Value // the x-vllm-priority of the last request that reached the replica
}

// before puts a front before a replica, which notes the order of the requests.
func (c *crammed) before(replica string) string {
	return inFront(c.t, replica, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path == completionsPath {
			c.order.Store(r.Header.Get(envoy.HeaderPriority))
		}
		pass.ServeHTTP(w, r)
	}).addr
}

const (
	crammedTokens = 16_000 // of the cache
	heldTokens    = 6_000  // of a prompt that does not fit beside the session
)

// body returns a request with a prompt that no replica has.
func (c *crammed) body(tokens, answer int) []byte {
	return fmt.Appendf(nil, `{"model":"sim","max_tokens":%d,"prompt":[%s]}`, answer, testenv.Tokens(c.prompts.Add(1), tokens))
}

// ask sends a request through Envoy, and returns the answer; nil: ctx ended before.
func (c *crammed) ask(ctx context.Context, body []byte) *http.Response {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.envoy.URL+completionsPath, bytes.NewReader(body))
	if err != nil {
		c.t.Error(err)
		return nil
	}
	req.Header.Set("content-type", "application/json")
	req.Header.Set(envoy.HeaderPriority, "-9") // a client may not jump the queue
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		if ctx.Err() == nil {
			c.t.Error(err)
		}
		return nil
	}
	resp.Body.Close()
	return resp
}

// startCrammed starts it. timeout is message_timeout, 0 = one that no machine reaches. Then Envoy takes a
// router for frozen after 20 s, not 1 s.
func startCrammed(t *testing.T, mode envoy.Mode, timeout time.Duration) *crammed {
	t.Helper()
	c := &crammed{stack: &stack{t: t}}
	c.stack = start(t, setup{
		replicas: 1, sim: vllmsim.Options{PrefillRate: 60_000, DecodeRate: 20, Blocks: crammedTokens/16 + 1},
		front:  c.before,
		config: "sessions: {share: 0.000001}\n",
		envoy:  envoy.Options{Mode: mode, Hold: 10 * time.Minute, MessageTimeout: timeout},
		bootstrap: func(boot string) string {
			if timeout > 0 {
				return boot
			}
			return testenv.Patient(t, boot, 20*time.Second, testenv.Keepalive)
		},
	})
	for range 8 { // the router learns the replica's speed
		c.ask(t.Context(), c.body(crammedTokens*3/4, 1))
		c.settled()
	}
	var ctx context.Context
	ctx, c.finish = context.WithCancel(t.Context())
	t.Cleanup(c.busy.Wait)
	t.Cleanup(c.finish)
	long := c.body(crammedTokens*3/4, 3000)
	c.busy.Go(func() { c.ask(ctx, long) })
	c.until("the session is at work", func() bool { return c.running() == 1 })
	return c
}

// running returns how many requests the replica computes.
func (c *crammed) running() float64 {
	for name, v := range testenv.Metrics(c.t, c.addrs[0]) {
		if strings.HasPrefix(name, "vllm:num_requests_running") {
			return v
		}
	}
	return 0
}

// hold sends n requests that are held, and returns their statuses.
func (c *crammed) hold(ctx context.Context, n int) <-chan int {
	c.t.Helper()
	out := make(chan int, n)
	defer func() {
		if c.t.Failed() {
			c.t.Log(c.reasons())
		}
	}()
	for range n {
		body := c.body(heldTokens, 1)
		c.busy.Go(func() {
			if resp := c.ask(ctx, body); resp != nil {
				out <- resp.StatusCode
			}
		})
	}
	c.until(fmt.Sprint(n, " requests are held"), func() bool { return c.held() == n })
	return out
}

func (c *crammed) held() int { c.t.Helper(); return int(c.metrics()["warmroute_held_requests"]) }

func (c *crammed) ends(how string) int {
	c.t.Helper()
	return int(c.metrics()[fmt.Sprintf("warmroute_held_seconds_count{end=%q}", how)])
}

// answered waits for n answers with a status.
func (c *crammed) answered(answers <-chan int, n, status int) {
	c.t.Helper()
	for i := range n {
		select {
		case got := <-answers:
			if got != status {
				c.t.Errorf("status %d, want %d", got, status)
			}
		case <-time.After(patience):
			c.t.Fatalf("%d of %d requests were not answered", n-i, n)
		}
	}
}

// TestHeldRequests: a request waits longer than message_timeout in both modes that fail open, goes
// when there is room, with the order that it had in the queue and not the client's, leaves with its
// client, and is explained.
func TestHeldRequests(t *testing.T) {
	t.Parallel()
	for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			c := startCrammed(t, mode, 2*time.Second) // so that only Envoy's longer wait explains a late answer
			ctx, abort := context.WithCancel(t.Context())
			c.hold(ctx, 2)
			abort()
			c.until("both have left", func() bool { return c.held() == 0 && c.ends("left") == 2 })
			begun, sent := time.Now(), c.ends("sent")
			answers := c.hold(t.Context(), 2)
			c.until("they wait longer than message_timeout", func() bool { return time.Since(begun) > 3*time.Second })
			if n := c.held(); n != 2 {
				t.Fatalf("%d are held", n)
			}
			held := time.Now()
			c.finish()
			c.answered(answers, 2, http.StatusOK)
			if order, err := strconv.ParseInt(c.order.Load().(string), 10, 64); err != nil || order < begun.UnixMilli() || order > held.UnixMilli() {
				t.Errorf("a request that began to wait at %d to %d has the order %d, %v", begun.UnixMilli(), held.UnixMilli(), order, err)
			}
			if n := c.ends("sent") - sent; n != 2 {
				t.Errorf("%d were sent in their turn", n)
			}
			if page, err := testenv.Get(t.Context(), "http://"+c.admin+"/debug/explain?n=9"); err != nil || !strings.Contains(page, "did not fit beside 1 live sessions") {
				t.Errorf("not explained: %s", page)
			}
		})
	}
}

// TestImpatientEnvoyIsTold: /readyz names the limit of an Envoy that waits shorter than the router.
func TestImpatientEnvoyIsTold(t *testing.T) {
	t.Parallel()
	for hold, want := range map[time.Duration]string{0: "does not announce x-warmroute-hold-ms", time.Minute: "waits 1m0s for held requests"} {
		st := start(t, setup{replicas: 1, config: "sessions: {share: 0.1}\n", envoy: envoy.Options{Hold: hold}})
		st.post(completionsPath, []byte(`{"model":"sim","max_tokens":1,"prompt":[1,2,3]}`))
		if page, err := testenv.Get(t.Context(), "http://"+st.admin+"/readyz"); err != nil || strings.Count(page, want) != 1 {
			t.Errorf("with %v: %v %s", hold, err, page)
		}
	}
}

// TestHeldRequestsGoOn: whatever becomes of the router, no held request fails, in both modes that hold.
func TestHeldRequestsGoOn(t *testing.T) {
	t.Parallel()
	const n = 30
	for name, fault := range map[string]func(c *crammed){
		"killed":    func(c *crammed) { c.extproc.Kill() },
		"frozen":    func(c *crammed) { _ = c.extproc.Signal(syscall.SIGSTOP) },
		"restarted": func(c *crammed) { c.extproc.Kill(); c.startExtproc() },
		"stopped":   func(c *crammed) { _ = c.extproc.Signal(syscall.SIGTERM) },
		"no longer configured": func(c *crammed) {
			config := must.Get(os.ReadFile(c.config))(c.t)
			must.Do(c.t, os.WriteFile(c.config, bytes.Replace(config, []byte("share: 0.000001"), []byte("share: 0"), 1), 0o644))
			_ = c.extproc.Signal(syscall.SIGHUP)
		},
	} {
		for _, mode := range []envoy.Mode{envoy.Buffered, envoy.BufferedPartial} {
			t.Run(name+" "+string(mode), func(t *testing.T) {
				t.Parallel()
				c := startCrammed(t, mode, 0)
				answers := c.hold(t.Context(), n)
				fault(c)
				c.until("the replica has them", func() bool {
					waiting := 0.0
					for name, v := range testenv.Metrics(t, c.addrs[0]) {
						if strings.HasPrefix(name, "vllm:num_requests_running") || strings.HasPrefix(name, "vllm:num_requests_waiting{") {
							waiting += v
						}
					}
					return waiting+float64(len(answers)) >= n
				})
				broken := testenv.EnvoyStat(t, strings.TrimPrefix(c.envoy.Admin, "http://"), "ext_proc.failure_mode_allowed")
				if alive := name == "stopped" || name == "no longer configured"; alive == (broken > 0) {
					t.Errorf("Envoy sent %d on by itself", broken)
				}
				c.finish()
				c.answered(answers, n, http.StatusOK)
			})
		}
	}
}

// Sessions of agents: so many of them are at work in a closed loop, each with turns that continue its
// last one. Together they need four times the cache.
const (
	agentSessions = 14
	agentTurns    = 12
	agentHead     = 3200 // tokens of a session's first prompt
	agentStep     = 160  // tokens more in each turn
	agentAnswer   = 4    // tokens
	agentPause    = 100 * time.Millisecond
	agentRate     = 8000 // tokens of prefill in a second
	agentBlocks   = 1024 // of the cache
)

// agents have sessions at work until the time is over. It returns the turns that were answered
// after the first quarter, in which sessions start one by one, and their hit rate.
func (c *crammed) agents(span time.Duration) (turns int, hits float64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	prompt, cached, from := 0, 0, time.Now().Add(span/4)
	end := from.Add(span - span/4)
	for i := range agentSessions {
		all.Go(func() {
			time.Sleep(time.Duration(i) * span / 4 / agentSessions)
			for time.Now().Before(end) {
				ids := testenv.Tokens(c.prompts.Add(1), agentHead)
				for range agentTurns {
					a := c.post(completionsPath, fmt.Appendf(nil, `{"model":"sim","max_tokens":%d,"prompt":[%s]}`, agentAnswer, ids))
					if a.status != http.StatusOK {
						c.t.Errorf("status %d", a.status)
					}
					now := time.Now()
					if now.After(end) {
						return
					}
					if now.After(from) {
						mu.Lock()
						turns, prompt, cached = turns+1, prompt+a.prompt, cached+a.cached
						mu.Unlock()
					}
					ids += "," + testenv.Tokens(c.prompts.Add(1), agentStep)
					time.Sleep(agentPause)
				}
			}
		})
	}
	all.Wait()
	return turns, float64(cached) / float64(max(1, prompt))
}

// simulatedGain returns the turns of the same sessions that lab's simulator completes with holding,
// over those without.
func simulatedGain(t *testing.T) float64 {
	var session []agents.Turn
	for i := range agentTurns {
		turn := agents.Turn{Input: agentHead + i*agentStep, Output: agentAnswer}
		if i > 0 {
			turn.Same, turn.After = session[i-1].Input, agentPause.Seconds()
		}
		session = append(session, turn)
	}
	done := map[string]float64{}
	for _, name := range []string{"today", "hold"} {
		cell := must.Get(agents.Run(t.Context(), name, agents.Options{
			All: [][]agents.Turn{session}, Tokens: 16 * agentBlocks, Rate: agentRate,
			Clients: agentSessions, Replicas: 1, Hours: 0.1, Seed: 1, Share: 0.1,
		}))(t)
		done[name] = float64(cell.Completed)
	}
	return done["hold"] / done["today"]
}

// holdSpan is how long TestHoldingPastTheCliff has agents at work.
var holdSpan = flag.Duration("hold-span", 12*time.Second, "how long agents are at work past the cliff; from a minute on, which needs a quiet machine, the gain must be the simulator's within 15 %")

// TestHoldingPastTheCliff: with more sessions than the replica's cache has room for, holding cold
// prompts completes more turns, of which more is cached. A replay of the trace without it says so.
func TestHoldingPastTheCliff(t *testing.T) {
	t.Parallel()
	begin := func(config string) *crammed {
		c := new(crammed)
		c.stack = start(t, setup{
			replicas: 1, sim: vllmsim.Options{PrefillRate: agentRate, DecodeRate: 40, Blocks: agentBlocks}, config: config,
			envoy: envoy.Options{Hold: 10 * time.Minute},
		})
		for range 3 { // the router learns the replica's speed
			c.ask(t.Context(), c.body(3000, 1))
			c.settled()
		}
		return c
	}
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	first, holding := begin("filter: {"+patient+", trace_file: "+trace+"}\n"), begin("sessions: {share: 0.1}\n")
	var turns, held int
	var hits, heldHits float64
	var both sync.WaitGroup // side by side, so that a busy machine is as busy for the one as for the other
	both.Go(func() { turns, hits = first.agents(*holdSpan) })
	both.Go(func() { held, heldHits = holding.agents(*holdSpan) })
	both.Wait()
	t.Logf("first come: %d turns, hit rate %.2f; %v", turns, hits, first.reasons())
	t.Logf("holding: %d turns, hit rate %.2f; %v", held, heldHits, holding.reasons())
	if float64(held) < 1.15*float64(turns) || heldHits < hits+0.1 {
		t.Errorf("%d turns with a hit rate of %.2f, first come %d with %.2f", held, heldHits, turns, hits)
	}
	gain, simulated := float64(held)/float64(max(1, turns)), simulatedGain(t)
	t.Logf("× %.2f, simulated × %.2f", gain, simulated)
	if apart := gain / simulated; *holdSpan >= time.Minute && (apart < 1/1.15 || apart > 1.15) {
		t.Errorf("the gain is %.2f of the simulator's", apart)
	}
	file := must.Get(os.Open(trace))(t)
	defer file.Close()
	var said bytes.Buffer
	must.Do(t, replay.Run(t.Context(), []io.Reader{file}, &said, replay.Options{Hold: 0.1}))
	t.Log(said.String())
	verdict := regexp.MustCompile(`(?m)^past the cliff at .* holding would complete × ([0-9.]+)$`).FindStringSubmatch(said.String())
	if verdict == nil {
		t.Fatal("the replay says nothing of that")
	}
	if gain, err := strconv.ParseFloat(verdict[1], 64); err != nil || gain < 1.15 {
		t.Errorf("the replay says: %s", verdict[0])
	}
}
