package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/certs/certstest"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// follower is a stack whose Envoy takes everything from the router: it is started with
// the output of `extproc envoy-config`.
type follower struct {
	*stack
	xds, url, page string // addresses: the router's xDS port, Envoy's listener, its admin page
	state          string // xds.state
	more           string // further configuration
	mode           envoy.Mode
	running        sync.WaitGroup
	ctx            context.Context
	stops          []context.CancelFunc     // by simulated replica
	holds          map[string]chan struct{} // by address; see holding
	arrived        sync.Map                 // paths and bodies of POST requests, as replicas got them
}

// follow starts replicas, a router, and an Envoy that follows it.
func follow(t *testing.T, more string, sims ...vllmsim.Options) *follower {
	t.Helper()
	f := unfollowed(t, more, sims...)
	f.startEnvoy()
	return f
}

// unfollowed is the same without Envoy.
func unfollowed(t *testing.T, more string, sims ...vllmsim.Options) *follower {
	t.Helper()
	return unfollowedIn(t, envoy.Buffered, more, sims...)
}

// unfollowedIn is the same in another body mode.
func unfollowedIn(t *testing.T, mode envoy.Mode, more string, sims ...vllmsim.Options) *follower {
	t.Helper()
	f := &follower{stack: &stack{t: t, dir: t.TempDir()}, more: more, mode: mode, holds: map[string]chan struct{}{}}
	var cancel context.CancelFunc
	f.ctx, cancel = context.WithCancel(context.Background())
	t.Cleanup(f.running.Wait)
	t.Cleanup(cancel)
	local := testenv.Addresses(t, 5)
	f.listen, f.admin, f.xds, f.url, f.page = local[0], local[1], local[2], local[3], local[4]
	f.state = filepath.Join(f.dir, "state")
	for _, o := range sims {
		f.add(o)
	}
	f.write()
	f.startExtproc()
	return f
}

// add starts a simulated replica that is listed with the next write.
func (f *follower) add(o vllmsim.Options) *vllmsim.Sim {
	f.t.Helper()
	if o.PrefillRate == 0 {
		o.PrefillRate, o.DecodeRate, o.Blocks = fast().PrefillRate, fast().DecodeRate, fast().Blocks
	}
	o.Events, o.Replay, o.Seed = "127.0.0.1:0", "127.0.0.1:0", int64(len(f.sims)+1)
	sim := must.Get(vllmsim.New(o))(f.t)
	ctx, stop := context.WithCancel(f.ctx)
	f.running.Go(func() {
		if err := sim.Run(ctx); err != nil {
			f.t.Errorf("simulated replica: %v", err)
		}
	})
	front := f.holding(sim.Addr())
	f.sims, f.addrs = append(f.sims, sim), append(f.addrs, front.addr)
	f.stops = append(f.stops, func() { front.die(); stop() }) // its address no longer answers
	return sim
}

// write rewrites the configuration with the current replicas.
func (f *follower) write() {
	f.t.Helper()
	own := fmt.Sprintf("xds: {listen: %s, state: %s}\nenvoy: {listen: %s, admin: %s, mode: %s, message_timeout: %v, served_header: true, usage_share: 10, access_log: %s}\n",
		f.xds, f.state, f.url, f.page, f.mode, patience, filepath.Join(f.dir, "access.log"))
	if strings.Contains(f.more, "envoy:") {
		own = fmt.Sprintf("xds: {listen: %s, state: %s}\n", f.xds, f.state)
	}
	f.writeConfig(own + f.more)
}

// startEnvoy starts Envoy with the command's output.
func (f *follower) startEnvoy(flags ...string) {
	f.t.Helper()
	boot := f.bootstrapOf(flags...)
	f.envoy = must.Get(testenv.StartEnvoy(f.dir, "envoy", boot, f.url, f.page, "--file-flush-interval-msec", "100"))(f.t)
	f.t.Cleanup(f.envoy.Stop)
}

// bootstrapOf returns the output of `extproc envoy-config`.
func (f *follower) bootstrapOf(flags ...string) []byte {
	f.t.Helper()
	path := must.Get(binary())(f.t)
	var said strings.Builder
	cmd := exec.Command(path, append([]string{"envoy-config", "-config", f.config}, flags...)...)
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("envoy-config: %v\n%s", err, said.String())
	}
	return out
}

// has waits until Envoy has exactly the replicas of the file in a cluster.
func (f *follower) has(cluster string, addrs ...string) {
	f.t.Helper()
	f.until(fmt.Sprintf("Envoy has %v in %s", addrs, cluster), func() bool {
		found := map[string]bool{}
		for line := range strings.Lines(page(f.t, "http://"+f.page+"/clusters")) {
			rest, ok := strings.CutPrefix(line, cluster+"::")
			addr, rest, ok2 := strings.Cut(rest, "::")
			if ok && ok2 && strings.Contains(addr, ":") && strings.HasPrefix(rest, "health_flags::") {
				found[addr] = true
			}
		}
		if len(found) != len(addrs) {
			return false
		}
		for _, a := range addrs {
			if !found[a] {
				return false
			}
		}
		return true
	})
}

// TestAReplicaThatJoinsIsServed by Envoy, which is not restarted, and one that leaves is
// not; hints name only replicas that Envoy has, so that none is wasted.
func TestAReplicaThatJoinsIsServed(t *testing.T) {
	t.Parallel()
	f := follow(t, "", fast(), fast())
	f.has("replicas", f.addrs...)
	f.add(fast())
	f.write()
	written := time.Now()
	served := map[string]int{}
	for i := 0; served[f.addrs[2]] == 0; i++ {
		a := f.chat(firstTurn(i), 1)
		if a.status != 200 {
			t.Fatalf("status %d", a.status)
		}
		served[a.replica]++
		if time.Since(written) > patience {
			t.Fatalf("the new replica is served nothing: %v", served)
		}
	}
	t.Logf("served after %v", time.Since(written)) // reading the file takes up to 0.7 s of it
	f.has("replicas", f.addrs...)
	if n := f.metrics()["warmroute_served_elsewhere_total"]; n != 0 {
		t.Errorf("%v hints were not followed", n)
	}

	left := f.addrs[0]
	answers, release := f.held(left, 3)
	f.sims, f.addrs = f.sims[1:], f.addrs[1:]
	f.write()
	f.has("replicas", f.addrs...)
	for i := range 40 {
		if a := f.chat(firstTurn(1000+i), 1); a.status != 200 || a.replica == left {
			t.Errorf("status %d by %s, which has left", a.status, a.replica)
		}
	}
	release()
	for i, body := range answers {
		text, err := io.ReadAll(body)
		if err != nil || !strings.HasSuffix(string(text), "the end") {
			t.Errorf("answer %d, begun before its replica left, is %q, %v", i, text, err)
		}
		body.Close()
	}
}

// held puts n answers on their way through Envoy from the replica at addr, none of
// which ends before release is called.
func (f *follower) held(addr string, n int) (answers []io.ReadCloser, release func()) {
	f.t.Helper()
	hold := f.holds[addr]
	if hold == nil {
		f.t.Fatalf("%s cannot hold answers", addr)
	}
	for range n {
		req := must.Get(http.NewRequest(http.MethodGet, f.envoy.URL+"/hold", nil))(f.t)
		for {
			resp := must.Get(http.DefaultClient.Do(req))(f.t)
			if resp.Header.Get(envoy.HeaderServed) == addr {
				answers = append(answers, resp.Body)
				break
			}
			resp.Body.Close() // balanced to another one
		}
	}
	return answers, sync.OnceFunc(func() { close(hold) })
}

// holding stands before a simulated replica: GET /hold begins an answer that ends
// when the channel is closed. Everything else is the replica's, and bodies are
// kept as they came.
func (f *follower) holding(sim string) front {
	f.t.Helper()
	until := make(chan struct{})
	front := inFront(f.t, sim, func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		if r.URL.Path != "/hold" {
			if body, err := io.ReadAll(r.Body); err == nil {
				f.arrived.Store(r.URL.Path+" "+string(body), true)
				r.Body = io.NopCloser(bytes.NewReader(body))
			}
			pass.ServeHTTP(w, r)
			return
		}
		io.WriteString(w, "begun, ")
		http.NewResponseController(w).Flush()
		select {
		case <-until:
			io.WriteString(w, "the end")
		case <-r.Context().Done():
		}
	})
	f.holds[front.addr] = until
	return front
}

// TestXDSOverTLS: where the xDS port requires certificates, an Envoy with one
// gets updates, and one with another authority's gets nothing.
func TestXDSOverTLS(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	router, client := ca.Issue("router"), ca.Issue("envoy")
	own := fmt.Sprintf("{cert_file: %s, key_file: %s, client_ca_file: %s}", router.CertFile, router.KeyFile, ca.CAFile)
	f := follow(t, "", fast())
	f.extproc.Stop()
	f.envoy.Stop()
	config := func(more string) {
		f.writeConfig(fmt.Sprintf("tls: %s\nxds: {listen: %s, tls: %s}\nenvoy: {listen: %s, admin: %s, message_timeout: %v, served_header: true, access_log: none, tls: {enabled: true, ca_file: %s, server_name: router.test%s}}\n",
			own, f.xds, own, f.url, f.page, patience, ca.CAFile, more))
	}
	config(fmt.Sprintf(", cert_file: %s, key_file: %s", client.CertFile, client.KeyFile))
	f.envoy = nil
	f.startExtproc()
	f.startEnvoy()
	f.has("replicas", f.addrs...)
	if n := f.metrics()["warmroute_xds_envoys"]; n != 1 {
		t.Errorf("%v Envoys follow", n)
	}
	f.add(fast())
	config(fmt.Sprintf(", cert_file: %s, key_file: %s", client.CertFile, client.KeyFile))
	f.has("replicas", f.addrs...)
	for i := range 4 {
		if a := f.chat(firstTurn(i), 1); a.status != 200 {
			t.Errorf("status %d", a.status)
		}
	}
	f.wantReasons(4, 1)

	f.envoy.Stop()
	f.until("the Envoy is gone", func() bool { return f.metrics()["warmroute_xds_envoys"] == 0 })
	other := certstest.New(t).Issue("envoy")
	config(fmt.Sprintf(", cert_file: %s, key_file: %s", other.CertFile, other.KeyFile))
	boot := filepath.Join(f.dir, "stranger.yaml")
	must.Do(t, os.WriteFile(boot, f.bootstrapOf(), 0o600))
	binary := must.Get(testenv.EnvoyBinary())(t)
	stranger := must.Get(testenv.Start(f.dir, "stranger", nil, binary, "-c", boot, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"))(t)
	defer stranger.Stop()
	f.until("it has tried twice", func() bool {
		resp, err := http.Get("http://" + f.page + "/stats?usedonly&filter=warmroute_xds.upstream_cx_total")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		var n int
		_, err = fmt.Fscanf(resp.Body, "cluster.warmroute_xds.upstream_cx_total: %d", &n)
		return err == nil && n >= 2
	})
	if n := f.metrics()["warmroute_xds_envoys"]; n != 0 {
		t.Errorf("%v Envoys with another certificate are told", n)
	}
	if text := page(t, "http://"+f.page+"/clusters"); strings.Contains(text, f.addrs[0]) {
		t.Errorf("it has learned a replica:\n%s", text)
	}
}

// models are three, with aliases and an adapter that one replica alone has.
func models() []vllmsim.Options {
	of := func(model string, aliases []string, loras ...vllmsim.LoRA) vllmsim.Options {
		o := fast()
		o.Model, o.Aliases, o.LoRAs = model, aliases, loras
		return o
	}
	sql := vllmsim.LoRA{Name: "sql", Path: "/lora/sql"}
	only := vllmsim.LoRA{Name: "only", Path: "/lora/only"}
	return []vllmsim.Options{
		of("org/a", []string{"a", "gpt"}), of("org/a", []string{"a", "gpt"}),
		of("b", nil, sql), of("b", nil, sql),
		of("c", nil, only), of("c", nil),
	}
}

// modelNames are all of models, with how many of the replicas serve them.
var modelNames = map[string]int{"org/a": 2, "a": 2, "gpt": 2, "b": 2, "sql": 2, "c": 2, "only": 1}

// TestEveryModelWhileTheRouterIsDead: requests for each model reach a replica
// that serves it, with hints, without, and with the router gone; their bodies
// arrive byte for byte, whichever filters read them.
func TestEveryModelWhileTheRouterIsDead(t *testing.T) {
	t.Parallel()
	f := follow(t, "", models()...)
	f.has("replicas", f.addrs...)
	f.has("model:org/a", f.addrs[:2]...)
	ask := func(when string) {
		t.Helper()
		for name := range modelNames {
			for i := range 8 {
				long := ""
				if i == 0 { // in many frames
					long = strings.Repeat("\\u00e9 ", 30_000)
				}
				// As no serializer writes it: spaces, escapes, a number's digits, a line behind.
				body := fmt.Sprintf(" {\"max_tokens\" :1,\"temperature\":1.00e0,\"user\":\"%s\\/ %s\", \"prompt\":[%d,2,3,4]\t,\"mod\\u0065l\":%q}\r\n", when, long, i, name)
				if a := f.post("/v1/completions", []byte(body)); a.status != 200 {
					t.Errorf("%s: %s: status %d by %s", when, name, a.status, a.replica)
				}
				if a := f.post("/v1/embeddings", []byte(body)); a.status == 200 {
					t.Errorf("%s: the simulated replica has no embeddings", when) // and no hint: balanced by Envoy alone
				}
				for _, path := range []string{"/v1/completions", "/v1/embeddings"} {
					if _, same := f.arrived.Load(path + " " + body); !same {
						t.Errorf("%s: %s: body %d did not arrive at %s as it was sent", when, name, i, path)
					}
				}
			}
		}
		if a := f.post("/v1/completions", []byte(`{"prompt":"x","model":"nobody's"}`)); a.status != http.StatusNotFound {
			t.Errorf("%s: a model nobody serves: status %d", when, a.status)
		}
		listed := page(t, f.envoy.URL+"/v1/models")
		for name := range modelNames {
			if !strings.Contains(listed, strconv.Quote(name)) {
				t.Errorf("%s: /v1/models has no %q: %s", when, name, listed)
			}
		}
	}
	ask("alive")
	f.wantReasons(2*8*len(modelNames)+2, 0.4)
	f.extproc.Kill()
	ask("dead")
	f.envoy.Stop()
	f.startEnvoy() // from the files that the router wrote last
	ask("dead, and Envoy restarted")
	f.startExtproc()
	ask("alive again")
	if _, err := os.Stat(filepath.Join(f.state, "fleet.json")); err != nil {
		t.Error(err)
	}
}

// TestWhatBecomesOfHints, in the shipped mode without a response phase: hints
// that were not followed are counted, the access log and the client's headers
// contain each request's replica and reason.
func TestWhatBecomesOfHints(t *testing.T) {
	t.Parallel()
	f := follow(t, "filter: {reason_header: true, "+patient+"}\n", fast(), fast())
	f.has("replicas", f.addrs...)
	first := firstTurn(1)
	a := f.chat(first, 1)
	f.settled()
	resp := must.Get(http.Post(f.envoy.URL+"/v1/completions", "application/json", strings.NewReader(`{"model":"sim","prompt":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17],"max_tokens":1}`)))(t)
	resp.Body.Close()
	id := resp.Header.Get("X-Request-Id")
	if got := resp.Header.Get("X-Warmroute-Reason"); got != "routed" || id == "" {
		t.Errorf("the client sees the reason %q and the id %q", got, id)
	}
	if explained := page(t, "http://"+f.admin+"/debug/explain?id="+id); !strings.Contains(explained, `"reason":"cold"`) || !strings.Contains(explained, `"cause":"never_stored"`) {
		t.Errorf("explained by its id: %s", explained)
	}
	resp = must.Get(http.Get(f.envoy.URL + "/v1/models"))(t)
	resp.Body.Close()
	if got := resp.Header.Get("X-Warmroute-Reason"); got != "not_ours" {
		t.Errorf("a request that is not judged: reason %q", got)
	}
	f.until("two hints were followed", func() bool { return f.metrics()[`warmroute_hint_outcomes_total{model="sim",served_by="first"}`] == 2 })
	for i := range f.sims { // the replica that is warm is gone; the router does not know yet
		if f.addrs[i] == a.replica {
			f.stops[i]()
		}
	}
	if b := f.chat(first, 1); b.status != 200 || b.replica == a.replica {
		t.Errorf("status %d by %s", b.status, b.replica)
	}
	f.until("a hint was not followed", func() bool {
		m := f.metrics()
		return m[`warmroute_hint_outcomes_total{model="sim",served_by="later"}`] == 1 && m["warmroute_served_elsewhere_total"] == 1
	})
	f.until("Envoy has written its log", func() bool {
		return strings.Count(readLog(t, filepath.Join(f.dir, "access.log")), "\n") >= 4
	})
	log := readLog(t, filepath.Join(f.dir, "access.log"))
	for _, want := range []string{`"request_id":"` + id + `"`, `"reason":"warm"`, `"reason":"not_ours"`, `"model":"sim"`, `"prompt_tokens":3`, `"hinted":"` + a.replica} {
		if !strings.Contains(log, want) {
			t.Errorf("the access log has no %s:\n%s", want, log)
		}
	}
}
