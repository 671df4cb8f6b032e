package failopen

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/decision"
	"warmroute/internal/testenv"
)

// apart gives the replica its part where prompts are computed on other replicas: the first two
// compute them, the others answer.
func (r *replica) apart(i int) {
	r.role = []string{"prefill", "decode"}[i/2]
	r.args = append(r.args, "-connector", "NixlConnector", "-load-failure", "recompute", "-prefill-rate", "20000")
}

// splits has the router split every request that finds a running answer, and returns Envoy's
// part in it.
func (s *stack) splits() envoy.Split {
	const wait = 3 * time.Second
	s.router.good += fmt.Sprintf("prefill_decode: {mode: pull, max_wait: %v}\npolicy: {prefill_decode: {theta: 1000000}}\n", wait)
	s.router.write(s.router.good)
	return envoy.Split{On: true, Wait: wait}
}

// legs is how many requests that were to be split have ended so.
func (s *stack) legs(reason decision.SplitReason) int {
	return int(s.router.metric(fmt.Sprintf("warmroute_split_decisions_total{reason=%q}", reason)))
}

// splitsBy sends requests until the router has had replica i compute a prompt.
func (s *stack) splitsBy(i int) {
	s.t.Helper()
	if s.replicas[i].role == "decode" {
		i = 0
	}
	computed := func() float64 {
		return testenv.Metrics(s.t, s.replicas[i].addr)["vllm:prompt_tokens_total{engine=\"0\",model_name=\"sim\"}"]
	}
	before := computed()
	until(s.t, s.replicas[i].name+" computes prompts", func() bool {
		s.send(s.t, s.envoy.URL, 200*time.Millisecond, func() {})
		return computed() > before
	})
}

// apartFaults are those of replicas that compute prompts, of replicas that answer, and of the
// router between them.
func apartFaults() []fault {
	signal := func(i int, n syscall.Signal) func(*stack) {
		return func(s *stack) { _ = s.replicas[i].Signal(n) }
	}
	fleet := func(s *stack, n int) {
		s.t.Helper()
		until(s.t, fmt.Sprintf("%d replicas ready", n), func() bool { return s.router.metric(`warmroute_fleet_replicas{state="ready"}`) == float64(n) })
	}
	thawed := func(s *stack) {
		signal(0, syscall.SIGCONT)(s)
		s.splitsBy(0)
	}
	failed := func(reason decision.SplitReason, left int) func(*stack) {
		return func(s *stack) {
			if s.legs(reason) == 0 {
				s.t.Errorf("no leg ended as %s", reason)
			}
			fleet(s, left)
			s.wantHints(true)
		}
	}
	start := func(at ...int) func(*stack) {
		return func(s *stack) {
			s.t.Helper()
			for _, i := range at {
				s.replicas[i].start(s.dir)
				s.splitsBy(i)
			}
		}
	}
	return []fault{
		{name: "router killed", apply: kill, heal: func(s *stack) { s.router.start() }, check: func(s *stack) { s.wantHints(false) }},
		{name: "router frozen", apply: freeze, heal: thaw, check: func(s *stack) { s.wantHints(false) }},
		{name: "P killed", apply: func(s *stack) { s.replicas[0].Kill() }, heal: start(0), check: failed(decision.SplitPrefillFailed, 3)},
		{name: "P frozen", apply: signal(0, syscall.SIGSTOP), heal: thawed, check: failed(decision.SplitPrefillSlow, 3)},
		{name: "every P killed", apply: func(s *stack) { s.replicas[0].Kill(); s.replicas[1].Kill() }, heal: start(0, 1), check: failed(decision.SplitPrefillFailed, 2)},
		{name: "D killed", cuts: true, apply: func(s *stack) { s.replicas[2].Kill() }, heal: start(2), check: func(s *stack) { fleet(s, 3); s.wantHints(true) }},
		// Requests on a frozen replica wait as long as it is frozen.
		{name: "D frozen, thawed once noticed", apply: func(s *stack) { signal(2, syscall.SIGSTOP)(s); fleet(s, 3); signal(2, syscall.SIGCONT)(s) },
			heal: func(*stack) {}, check: func(s *stack) { fleet(s, 4); s.wantHints(true) }},
	}
}

// TestNothingFailsApart: the same where prompts are computed on other replicas, with such
// requests under way when something breaks.
func TestNothingFailsApart(t *testing.T) {
	span, faults := 3*time.Second, apartFaults()
	if !*long {
		span, faults = 1200*time.Millisecond, named(faults, "router frozen", "P killed", "D killed")
	}
	var s *stack
	for i := range faults {
		f := &faults[i]
		apply := f.apply
		f.apply = func(at *stack) {
			s = at
			before := at.legs(decision.SplitDone)
			until(at.t, "splits under way", func() bool { return at.legs(decision.SplitDone) > before+5 })
			apply(at)
		}
	}
	nothingFails(t, options{mode: envoy.Buffered, apart: true}, span, faults)
	refused := 0.0
	for _, r := range s.replicas {
		for _, why := range []string{"used", "late", "foreign", "changed"} {
			refused += testenv.Metrics(t, r.addr)[fmt.Sprintf("vllmsim_transfer_refused_total{why=%q}", why)]
		}
	}
	if refused > 0 {
		t.Errorf("replicas were given kv_transfer_params a second time, late or for another prompt: %v times", refused)
	}
}
