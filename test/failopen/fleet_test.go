package failopen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

const (
	fleetRouters  = 3
	fleetEnvoys   = 2
	fleetReplicas = 8
)

// routers are several routers that share their requests in flight, behind two Envoys that
// share them, before eight replicas.
type routers struct {
	stack            // of the first Envoy
	test  *testing.T // the whole one, at whose end all started programs are stopped
	all   []*router
	gates []*gate // before each router's embedded NATS server, or before the one that runs elsewhere
	sides []*testenv.Envoy
}

// startRouters starts a fleet. external is the address of a NATS server that runs
// elsewhere, "" for embedded ones.
func startRouters(t *testing.T, external string) *routers {
	t.Helper()
	f := &routers{test: t, stack: stack{t: t, dir: t.TempDir(), send: closedLoop}}
	for i := range fleetReplicas {
		a := testenv.Addresses(t, 3)
		r := &replica{t: t, name: fmt.Sprint("replica-", i), addr: a[0], events: &gate{Gate: &testenv.Gate{Addr: a[1]}}, replay: &gate{Gate: &testenv.Gate{Addr: a[2]}}} // nothing cuts these
		r.args = []string{"-listen", a[0], "-events", a[1], "-replay", a[2], "-blocks", "8192", "-prefill-rate", "1000", "-decode-rate", "100"}
		r.launch(f.dir)
		f.replicas = append(f.replicas, r)
	}
	listen := testenv.Addresses(t, fleetRouters)
	if external != "" {
		f.gates = []*gate{newGate(t, external)}
	}
	var index []string
	for i := range fleetRouters {
		r := newRouter(t, f.dir, fmt.Sprint("router-", i), f.replicas)
		index = append(index, testenv.Addresses(t, 1)[0])
		f.all = append(f.all, r)
		if external == "" {
			f.gates = append(f.gates, newGate(t, listen[i]))
		}
	}
	for i, r := range f.all {
		var sharing string
		if external != "" {
			sharing = fmt.Sprintf("peers: {id: %s, url: \"nats://%s\"}\n", r.name, f.gates[0].Addr)
		} else {
			var others []string
			for j, g := range f.gates {
				if j != i {
					others = append(others, g.Addr)
				}
			}
			sharing = fmt.Sprintf("peers: {id: %s, listen: %s, advertise: %s, routes: [%s]}\n", r.name, listen[i], f.gates[i].Addr, strings.Join(others, ", "))
		}
		var warm []string
		for j, a := range index {
			if j != i {
				warm = append(warm, a)
			}
		}
		r.good = strings.Replace(r.good, "index_service: {listen: \"\"}", fmt.Sprintf("index_service: {listen: %s}\nwarm_up: {peers: [%s]}\n%s", index[i], strings.Join(warm, ", "), sharing), 1)
		r.write(r.good)
		r.launch("")
	}
	f.router = f.all[0]
	for i := range fleetEnvoys {
		f.sides = append(f.sides, f.startEnvoy(fmt.Sprint("envoy-", i)))
	}
	f.envoy = f.sides[0]
	for _, r := range f.replicas {
		r.wait()
	}
	for _, r := range f.all {
		wait(t, r.Process, "http://"+r.admin+"/readyz")
	}
	f.whole()
	return f
}

// startEnvoy starts an Envoy that calls all routers.
func (f *routers) startEnvoy(name string) *testenv.Envoy {
	f.t.Helper()
	a := testenv.Addresses(f.t, 2)
	o := envoy.Options{Listen: a[0], Admin: a[1], Mode: envoy.Buffered, UsageShare: new(100)}
	for _, r := range f.all {
		o.ExtProc = append(o.ExtProc, r.listen)
	}
	for _, r := range f.replicas {
		o.Replicas = append(o.Replicas, r.addr)
	}
	var boot bytes.Buffer
	must.Do(f.t, envoy.WriteBootstrap(&boot, o))
	e := must.Get(testenv.StartEnvoy(f.dir, name, boot.Bytes(), a[0], a[1]))(f.t)
	f.test.Cleanup(e.Stop)
	return e
}

// page is the answer of GET /debug/peers.
type page struct {
	Link struct {
		Connected bool
		Peers     []struct {
			ID   string
			Load struct {
				InFlight int `json:"in_flight"`
			}
		}
	}
	Notes []string
}

// peers is a router's view of the others, nil where it does not answer.
func (f *routers) peers(r *router) *page {
	f.t.Helper()
	client := http.Client{Timeout: 2 * time.Second}
	resp, err := client.Get("http://" + r.admin + "/debug/peers")
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	p := new(page)
	if json.NewDecoder(resp.Body).Decode(p) != nil {
		return nil
	}
	return p
}

// of is how many requests the router named id has in flight according to p, -1
// where it is not known.
func (p *page) of(id string) int {
	for _, one := range p.Link.Peers {
		if one.ID == id {
			return one.Load.InFlight
		}
	}
	return -1
}

func (r *router) own() int { return int(r.metric("warmroute_in_flight_requests{")) }

// equal reports whether every running router receives from every other, and has
// the same counts as that one itself.
func (f *routers) equal() bool {
	for _, r := range f.all {
		p := f.peers(r)
		for _, other := range f.all {
			if other != r && (p == nil || p.of(other.name) != other.own()) {
				return false
			}
		}
	}
	return true
}

// whole waits until all routers agree.
func (f *routers) whole() {
	f.t.Helper()
	until(f.t, "every router counts what the others have in flight", f.equal)
}

// empty waits until no router counts anything in flight, its own or another's.
func (f *routers) empty() {
	f.t.Helper()
	for _, r := range f.all {
		until(f.t, r.name+" has nothing in flight", func() bool { return r.own() == 0 })
		until(f.t, r.name+" counts nothing of the others", func() bool { return r.metric("warmroute_peer_in_flight_requests{") == 0 })
	}
	f.whole()
}

// hold sends n requests, in turns through both Envoys, whose answers take longer
// than any test, and waits until the replicas have them all. end ends them.
func (f *routers) hold(n int, prompt func(i int) string) (at []float64, end func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	var wg sync.WaitGroup
	end = sync.OnceFunc(func() { cancel(); wg.Wait(); client.CloseIdleConnections() })
	f.t.Cleanup(end)
	until(f.t, "idle replicas", func() bool { return slices.Max(f.running()) == 0 }) // they may hear late that clients have left
	for i := range n {
		body := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":20000,"prompt":[%s]}`, prompt(i))
		url := f.sides[i%len(f.sides)].URL + "/v1/completions"
		wg.Go(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				return
			}
			req.Header.Set("content-type", "application/json")
			if resp, err := client.Do(req); err == nil {
				_, _ = fmt.Fscan(resp.Body, new(string)) // its beginning
				<-ctx.Done()
				resp.Body.Close()
			}
		})
	}
	until(f.t, fmt.Sprintf("%d requests on the replicas", n), func() bool {
		at = f.running()
		sum := 0.0
		for _, n := range at {
			sum += n
		}
		return int(sum) == n
	})
	return at, end
}

// running is how many requests each replica has.
func (f *routers) running() (n []float64) {
	f.t.Helper()
	for _, r := range f.replicas {
		text, sum := get(f.t, "http://"+r.addr+"/metrics"), 0.0
		for _, metric := range []string{"vllm:num_requests_running", "vllm:num_requests_waiting"} {
			for _, v := range testenv.Samples(text, metric, "engine") {
				sum += v
			}
		}
		n = append(n, sum)
	}
	return n
}

// under sends a load through both Envoys, in the middle of which the fault
// happens, and fails the test where a request does. The load may end before fault
// returns, which is not called by the test's own goroutine.
func (f *routers) under(span time.Duration, fault func()) {
	f.t.Helper()
	var wg sync.WaitGroup
	all := make([]result, len(f.sides))
	for i, e := range f.sides {
		then := fault
		if i > 0 {
			then = func() {}
		}
		wg.Go(func() { all[i] = f.send(f.t, e.URL, span, then) })
	}
	wg.Wait()
	for i, r := range all {
		f.t.Logf("Envoy %d: %v", i, r)
		if r.failed+r.cut > 0 {
			f.t.Errorf("Envoy %d: %v", i, r)
		}
	}
}

// took waits for the effect of a fault or of its end, and holds it to most in the long
// form, which has a machine to itself.
func (f *routers) took(what string, since time.Time, most time.Duration, ok func() bool) {
	f.t.Helper()
	for !ok() {
		if time.Since(since) > 10*most+20*time.Second {
			f.t.Errorf("not within %v: %s", time.Since(since), what)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	d := time.Since(since)
	f.t.Logf("%s after %v", what, d.Round(time.Millisecond))
	if *long && d > most {
		f.t.Errorf("%s after %v, wanted within %v", what, d, most)
	}
}

// gone reports whether all other routers have nothing of those.
func (f *routers) gone(away ...*router) bool {
	for _, r := range f.all {
		if slices.Contains(away, r) {
			continue
		}
		p := f.peers(r)
		if p == nil || slices.ContainsFunc(away, func(one *router) bool { return p.of(one.name) != -1 }) {
			return false
		}
	}
	return true
}

// back starts a router that was killed, and waits until it has its former state.
func (f *routers) back(r *router) {
	f.t.Helper()
	since := time.Now()
	r.launch("")
	wait(f.t, r.Process, "http://"+r.admin+"/readyz")
	f.took(r.name+" is ready and warm", since, 2*time.Second, func() bool { return r.metric("warmroute_index_entries") >= groups*prefix/16 })
	f.whole()
}
