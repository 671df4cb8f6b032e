package hostile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/lab/vllmsim"
	"warmroute/render/testkit/must"
)

// binary is the router, built once for all tests, as it is shipped.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "warmroute-hostile-")
	if err != nil {
		return "", err
	}
	return testenv.Build(dir, "warmroute/cmd/extproc")
})

// site is simulated replicas, the router and Envoy, until the test ends.
type site struct {
	t      *testing.T
	dir    string
	sims   []*vllmsim.Sim
	router *testenv.Process
	envoy  *testenv.Envoy
	admin  string // address of the router's admin port
	config string // the router's configuration file
	// gateway is common to every Envoy of the site.
	gateway envoy.Options
	copies  atomic.Int64 // of bodies that were sent again and again (site.again)
}

// setup describes a site.
type setup struct {
	replicas  int             // simulated ones
	sim       vllmsim.Options // of each of them
	addresses []string        // of further replicas, which the test itself serves
	config    string          // more sections of the router's configuration, or instead of the site's own
	env       []string        // more environment of the router, NAME=value
	envoy     envoy.Options   // more of Envoy's options; the addresses are the site's
}

// open starts a site and waits until the router is ready. Answers carry the reason of their
// decision (site.post).
func open(t *testing.T, s setup) *site {
	t.Helper()
	st := &site{t: t, dir: t.TempDir()}
	addrs := append(st.simulate(s.replicas, s.sim), s.addresses...)
	local := testenv.Addresses(t, 2)
	st.admin = local[1]
	st.writeConfig(local[0], addrs, s.config)
	st.start(s.env)
	st.gateway = s.envoy
	st.gateway.ExtProc = []string{local[0]}
	st.gateway.Replicas, st.gateway.ReasonHeader = append(st.gateway.Replicas, addrs...), true
	st.gateway.UsageShare = new(envoy.TrialUsageShare)
	if st.gateway.MessageTimeout == 0 {
		st.gateway.MessageTimeout = time.Minute // this tests the router's cost, not that Envoy goes on without it
	}
	st.envoy = st.startEnvoy("envoy")
	return st
}

// startEnvoy starts an Envoy before the router and the replicas, until the test ends.
func (s *site) startEnvoy(name string) *testenv.Envoy {
	s.t.Helper()
	o, local := s.gateway, testenv.Addresses(s.t, 2)
	o.Listen, o.Admin = local[0], local[1]
	var boot bytes.Buffer
	must.Do(s.t, envoy.WriteBootstrap(&boot, o))
	e := must.Get(testenv.StartEnvoy(s.dir, name, boot.Bytes(), o.Listen, o.Admin))(s.t)
	s.t.Cleanup(e.Stop)
	return e
}

// simulate runs replicas in the test's process and returns their addresses.
func (s *site) simulate(n int, o vllmsim.Options) (addrs []string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	s.t.Cleanup(func() { cancel(); wg.Wait() })
	for i := range n {
		o.Events, o.Replay, o.Seed = "127.0.0.1:0", "127.0.0.1:0", int64(i+1)
		sim := must.Get(vllmsim.New(o))(s.t)
		wg.Go(func() {
			if err := sim.Run(ctx); err != nil {
				s.t.Errorf("simulated replica %d: %v", i, err)
			}
		})
		s.sims, addrs = append(s.sims, sim), append(addrs, sim.Addr())
	}
	return addrs
}

// writeConfig writes the router's configuration: its addresses, the replicas, and sections,
// each of which replaces the site's own section of that name.
func (s *site) writeConfig(listen string, addrs []string, sections string) {
	s.t.Helper()
	own := []string{
		fmt.Sprintf("listen: %s\n", listen), fmt.Sprintf("admin: {listen: %q}\n", s.admin),
		"index_service: {listen: \"\"}\n", "xds: {listen: \"\"}\n", "filter: {reason_header: true}\n",
		fmt.Sprintf("envoy: {usage_share: %d}\n", envoy.TrialUsageShare),
	}
	var fleet strings.Builder
	fleet.WriteString("fleet:\n  replicas:\n")
	for _, addr := range addrs {
		fmt.Fprintf(&fleet, "  - address: %q\n", addr)
	}
	text := sections
	for _, section := range append(own, fleet.String()) {
		if name, _, _ := strings.Cut(section, ":"); !strings.HasPrefix(sections, name+":") && !strings.Contains(sections, "\n"+name+":") {
			text += section
		}
	}
	s.config = filepath.Join(s.dir, "warmroute.yaml")
	must.Do(s.t, os.WriteFile(s.config, []byte(text), 0o600))
}

// start starts the router and waits until it is ready.
func (s *site) start(env []string) {
	s.t.Helper()
	path := must.Get(binary())(s.t)
	s.router = must.Get(testenv.Start(s.dir, "router", env, path, "serve", "-config", s.config))(s.t)
	s.router.StopAfter(s.t)
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	must.Do(s.t, s.router.WaitHTTP(ctx, "http://"+s.admin+"/readyz"))
}

// answer is a client's view of one request.
type answer struct {
	status int
	reason string // of the router's decision; "": Envoy did not get one
}

// post sends a body through Envoy and reads the answer whole. An error is the client's own:
// its context ended.
func (s *site) post(ctx context.Context, path string, body []byte) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.envoy.URL+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return answer{resp.StatusCode, resp.Header.Get(envoy.HeaderReason)}, err
}

// metrics are the samples of the router's metrics page, by name with labels.
func (s *site) metrics() map[string]float64 {
	s.t.Helper()
	return testenv.Metrics(s.t, s.admin)
}

// reasons returns the number of decisions of each reason.
func (s *site) reasons() map[string]int {
	s.t.Helper()
	return testenv.Reasons(s.t, s.admin)
}

// await waits until ok, and ends the test where that takes longer than any busy machine: a
// test that hangs.
func (s *site) await(what string, ok func() bool) {
	s.t.Helper()
	testenv.Until(s.t, 3*time.Minute, what, ok, func() any { return s.router.Tail() })
}
