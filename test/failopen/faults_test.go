package failopen

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"warmroute/envoy"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

var long = flag.Bool("long", false, "the long form: every fault for longer, every body mode, the standby instance")

// fault is something that breaks, and how it is seen that it did.
type fault struct {
	name  string
	apply func(*stack)
	check func(*stack) // that it took hold; called after the load
	heal  func(*stack)
	cuts  bool // answers that had begun may be cut
}

const (
	// messageTimeouts counts the waits of requests that message_timeout ended.
	messageTimeouts = "ext_proc.message_timeouts"
	// streamsFailed counts requests that Envoy could not show to the router.
	streamsFailed = "ext_proc.streams_failed"
)

// faults are those of a fleet behind the shipped configuration.
func faults() []fault {
	return []fault{
		{name: "router killed", apply: kill, heal: func(s *stack) { s.router.start() },
			check: func(s *stack) { s.wantHints(false) }},
		{name: "router frozen", apply: freeze, heal: thaw,
			check: func(s *stack) {
				if s.stat(messageTimeouts) == 0 {
					s.t.Error("no request waited for the frozen router")
				}
				s.wantHints(false)
			}},
		{name: "log that cannot be written", apply: func(s *stack) { s.restart("", "/dev/full") }, heal: func(s *stack) { s.restart("", "") },
			check: func(s *stack) {
				s.wantHints(true)
				if s.router.metric(`warmroute_log_missing_lines_total{cause="unwritable"}`) == 0 {
					s.t.Error("every line of the log was written")
				}
			}},
		{name: "log that nobody reads", apply: func(s *stack) { s.restart("", fullPipe(s.t)) }, heal: func(s *stack) { s.restart("", "") },
			check: func(s *stack) { s.wantHints(true) }},
		{name: "index of one block", apply: func(s *stack) {
			s.restart("index: {max_scopes: 1, max_blocks: 1}\n", "")
		},
			heal: func(s *stack) { s.restart("", "") },
			check: func(s *stack) {
				s.wantHints(true)
				if n := s.router.metric("warmroute_index_entries"); n > 1 {
					s.t.Errorf("the index holds %v blocks", n)
				}
			}},
		{name: "every event port dead", apply: func(s *stack) { s.gates((*gate).Close) }, heal: func(s *stack) { s.gates((*gate).open) },
			check: func(s *stack) {
				until(s.t, "every event connection down", func() bool { return s.router.metric("warmroute_kv_connected") == 0 })
				s.wantHints(true)
			}},
		{name: "one replica killed", cuts: true, apply: func(s *stack) { s.replicas[0].Kill() }, heal: func(s *stack) { s.replicas[0].start(s.dir) },
			check: func(s *stack) {
				until(s.t, "one replica less", func() bool {
					return s.router.metric(`warmroute_fleet_replicas{state="ready"}`) == float64(len(s.replicas)-1)
				})
				s.wantHints(true)
			}},
		{name: "configuration garbage", apply: func(s *stack) { s.router.write("\x00{[garbage") }, heal: func(s *stack) { s.router.write(s.router.good) },
			check: func(s *stack) {
				until(s.t, "the file refused", func() bool { return strings.Contains(s.router.Tail(), "configuration refused") })
				s.wantHints(true)
			}},
		{name: "router started on garbage", apply: func(s *stack) { s.router.write("\x00{[garbage"); s.router.Stop(); s.router.launch("") },
			heal:  func(s *stack) { s.restart("", "") },
			check: func(s *stack) { until(s.t, "the router refusing to start", func() bool { return ended(s.router) }) }},
	}
}

func kill(s *stack) { s.router.Kill() }

func freeze(s *stack) { _ = s.router.Signal(syscall.SIGSTOP) }

func thaw(s *stack) { _ = s.router.Signal(syscall.SIGCONT) }

// restart ends the router and starts it with more configuration and another
// place for its log.
func (s *stack) restart(more, log string) {
	s.t.Helper()
	s.router.Stop()
	s.router.write(s.router.good + more)
	s.router.startTo(log)
}

func ended(r *router) bool {
	select {
	case <-r.Done():
		return true
	default:
		return false
	}
}

func (s *stack) gates(do func(*gate)) {
	for _, r := range s.replicas {
		do(r.events)
		do(r.replay)
	}
}

// fullPipe is a full named pipe whose other end is never read.
func fullPipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	must.Do(t, syscall.Mkfifo(path, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fd := int(f.Fd())
	must.Do(t, syscall.SetNonblock(fd, true))
	for err == nil {
		_, err = syscall.Write(fd, make([]byte, 512))
	}
	return path
}

// wantHints waits until requests get hints, or, for false, until Envoy continues
// without calling the router.
func (s *stack) wantHints(want bool) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("requests judged: %v", want), func() bool {
		failed := s.stat(streamsFailed)
		s.send(s.t, s.envoy.URL, 100*time.Millisecond, func() {})
		return want != (s.stat(streamsFailed) > failed)
	})
	if want && s.router.hints() == 0 {
		s.t.Error("no request was given a replica")
	}
}

// hints is how many requests the router has named a replica for.
func (r *router) hints() int {
	r.t.Helper()
	reasons, sum := testenv.Reasons(r.t, r.admin), 0
	for _, reason := range []string{"warm", "cold", "moved", "guarded", "learned"} {
		sum += reasons[reason]
	}
	return sum
}

// TestNothingFails: in the shipped body mode nothing that breaks costs a request.
func TestNothingFails(t *testing.T) {
	span := 1500 * time.Millisecond
	if *long {
		span = 6 * time.Second
	}
	nothingFails(t, options{mode: envoy.Buffered}, span, faults())
}

// TestNothingFailsBehindXDS: the same where Envoy takes everything from the
// router, with one model and with three, whose requests go by name, hinted or
// not. An answer of another model would be a 404.
func TestNothingFailsBehindXDS(t *testing.T) {
	for name, o := range map[string]options{
		"one model": {mode: envoy.Buffered, xds: true}, "three models": {mode: envoy.Buffered, xds: true, models: 3},
	} {
		t.Run(name, func(t *testing.T) {
			if !*long {
				if o.models == 0 {
					return // the long form's
				}
				nothingFails(t, o, 1200*time.Millisecond, named(faults(), "router killed", "router frozen"))
				return
			}
			nothingFails(t, o, 6*time.Second, faults())
		})
	}
}

// named are the faults of these names.
func named(all []fault, names ...string) (out []fault) {
	for _, f := range all {
		if slices.Contains(names, f.name) {
			out = append(out, f)
		}
	}
	return out
}

// nothingFails sends the stack's load while each of faults comes and goes.
func nothingFails(t *testing.T, o options, span time.Duration, faults []fault) {
	t.Helper()
	s := start(t, o)
	steady := s.send(t, s.envoy.URL, span, func() {})
	t.Logf("steady: %v", steady)
	if steady.failed+steady.cut > 0 {
		t.Fatal("requests fail with nothing broken")
	}
	s.wantHints(true)
	if n := s.router.metric("warmroute_index_entries"); n < groups {
		t.Fatalf("the index holds %v blocks with nothing broken", n)
	}
	table := "| What breaks | requests | failed | cut | p50 | p99 | p99 over the steady run's | waited for the router |\n|---|---|---|---|---|---|---|---|\n"
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			at := *s
			at.t = t
			waits := at.stat(messageTimeouts)
			broken := s.send(t, s.envoy.URL, span, func() { f.apply(&at) })
			waits = at.stat(messageTimeouts) - waits
			f.check(&at)
			healed := s.send(t, s.envoy.URL, span/2, func() { f.heal(&at) })
			at.found()
			t.Logf("broken: %v", broken)
			t.Logf("healed: %v", healed)
			table += fmt.Sprintf("| %s | %d | %d | %d | %d ms | %d ms | %+d ms | %d |\n", f.name, broken.requests, broken.failed, broken.cut,
				broken.p50.Milliseconds(), broken.p99.Milliseconds(), (broken.p99 - steady.p99).Milliseconds(), waits)
			at.wantHints(true)
			for name, r := range map[string]result{"broken": broken, "healed": healed} {
				if r.failed > 0 || r.cut > 0 && !f.cuts {
					t.Errorf("%s: %v", name, r)
				}
			}
			// Nobody waits twice, so a wait is message_timeout at most; patience is the bound on the clock.
			if waits > broken.requests+clients {
				t.Errorf("%d requests waited %d times for the router", broken.requests, waits)
			}
		})
	}
	t.Logf("\n%s", table)
}
