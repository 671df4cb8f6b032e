package xds

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"warmroute/envoy"
	"warmroute/internal/fleet"
	"warmroute/internal/testenv"
	"warmroute/render/testkit/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// some is a fleet that a test changes.
type some struct{ atomic.Pointer[fleet.Snapshot] }

func (s *some) Snapshot() *fleet.Snapshot { return s.Load() }

// set has the fleet consist of these.
func (s *some) set(replicas ...*fleet.Replica) { s.Store(fleet.NewSnapshot(replicas...)) }

// bench is a publisher that serves, and the addresses of an Envoy.
type bench struct {
	*Publisher
	t     *testing.T
	fleet *some
	log   *bytes.Buffer
	o     envoy.Options
	at    Options
	stop  func()
}

func publish(t *testing.T, f *some, state string) *bench {
	t.Helper()
	local := testenv.Addresses(t, 4)
	b := &bench{t: t, fleet: f, log: new(bytes.Buffer)}
	b.o = envoy.Options{XDS: []string{local[0]}, Listen: local[1], Admin: local[2], ExtProc: []string{local[3]}, AccessLog: "none"}
	b.start(state)
	return b
}

func (b *bench) start(state string) {
	b.t.Helper()
	log := slog.New(slog.NewTextHandler(b.log, nil))
	b.at = Options{Listen: b.o.XDS[0], State: state}
	b.Publisher = New(Settings{At: b.at, Envoy: b.o}, b.fleet, prometheus.NewRegistry(), log)
	must.Do(b.t, b.Listen())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stopped := false
	b.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(b.stop)
}

// envoy starts a real one; change may change its bootstrap.
func (b *bench) envoy(name string, d envoy.Discovery, change func(string) string) *testenv.Envoy {
	b.t.Helper()
	var boot bytes.Buffer
	must.Do(b.t, envoy.WriteDynamic(&boot, b.o, d))
	e := must.Get(testenv.StartEnvoy(b.t.TempDir(), name, []byte(change(boot.String())), b.o.Listen, b.o.Admin))(b.t)
	b.t.Cleanup(e.Stop)
	return e
}

// following publishes a fleet of two replicas to a real Envoy, and waits until that has both; change may
// change its bootstrap.
func following(t *testing.T, change func(string) string) *bench {
	t.Helper()
	f := new(some)
	f.set(many(0, 2, 1)...)
	b := publish(t, f, "")
	b.envoy("envoy", envoy.ADS, change)
	b.until("Envoy has 2", func() bool { return b.acknowledged() == 2 })
	return b
}

func asIs(s string) string { return s }

func (b *bench) until(what string, ok func() bool) {
	b.t.Helper()
	testenv.Until(b.t, 30*time.Second, what, ok, func() any { return b.Notes() })
}

// ready is how many replicas may be named.
func (b *bench) ready() int { return b.Snapshot().Ready }

// acknowledged is how many addresses every Envoy has.
func (b *bench) acknowledged() int {
	a := b.acks.acked.Load()
	if a == nil {
		return 0
	}
	return len(*a)
}

func value(t *testing.T, c prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	must.Do(t, c.Write(&m))
	return m.GetCounter().GetValue()
}

// many are n replicas from the first on, in models of their own by turns.
func many(first, n, models int) (out []*fleet.Replica) {
	for i := first; i < first+n; i++ {
		m := "model-" + strconv.Itoa(i%models)
		out = append(out, replica(fmt.Sprintf("127.1.%d.%d:8000", i/250, 1+i%250), true, m, m))
	}
	return out
}

// kinds of stream an Envoy may have.
var streams = map[string]func(string) string{
	"incremental":        asIs,
	"state of the world": func(s string) string { return strings.Replace(s, "DELTA_GRPC", "GRPC", 1) },
}

// TestManyReplicas: 50 of 500 leave and 50 join at once, which is one version,
// and one update of the endpoints to Envoy, of a fleet of 20 models. None is
// named before Envoy has it.
func TestManyReplicas(t *testing.T) {
	for name, change := range streams {
		t.Run(name, func(t *testing.T) {
			f := new(some)
			f.set(many(0, 500, 20)...)
			b := publish(t, f, "")
			e := b.envoy("envoy", envoy.ADS, change)
			b.until("Envoy has 500", func() bool { return b.acknowledged() == 500 })
			b.until("the version is counted", func() bool { return value(t, b.metrics.versions) > 0 }) // which can be after Envoy's answer
			versions, updates := value(t, b.metrics.versions), value(t, b.metrics.sent.WithLabelValues("endpoints"))
			used := cpu(t, e.PID())
			own := cpu(t, os.Getpid())
			f.set(many(50, 500, 20)...)
			if n := b.ready(); n != 450 {
				t.Errorf("%d may be named, Envoy has 450 of them", n)
			}
			b.until("Envoy has the new ones", func() bool { return b.acknowledged() == 500 && b.ready() == 500 })
			b.until("the next version is counted", func() bool { return value(t, b.metrics.versions) > versions })
			if n := value(t, b.metrics.versions) - versions; n != 1 {
				t.Errorf("%v versions", n)
			}
			if n := value(t, b.metrics.sent.WithLabelValues("endpoints")) - updates; n != 1 {
				t.Errorf("%v updates of the endpoints", n)
			}
			for _, kind := range []string{"listener", "routes", "clusters"} {
				if n := value(t, b.metrics.sent.WithLabelValues(kind)); n > 1 {
					t.Errorf("%v updates of %s", n, kind)
				}
			}
			t.Logf("CPU of the change: router and test %v, Envoy %v", cpu(t, os.Getpid())-own, cpu(t, e.PID())-used)
		})
	}
}

// cpu is the time a process has used.
func cpu(t *testing.T, pid int) time.Duration {
	t.Helper()
	text := must.Get(os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)))(t)
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+2:]))
	ticks := 0
	for _, i := range []int{11, 12} {
		n := must.Get(strconv.Atoi(fields[i]))(t)
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// TestARefusedUpdate is reported with Envoy's own message, and the report ends
// when Envoy accepts a later update; the state that Envoy has stays.
func TestARefusedUpdate(t *testing.T) {
	for name, change := range streams {
		t.Run(name, func(t *testing.T) {
			b := following(t, change)
			taken := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
			defer taken.Close()
			o := b.o
			o.Listen = taken.Addr().String()
			b.Set(Settings{At: b.at, Envoy: o})
			b.until("a note", func() bool { return len(b.Notes()) == 1 })
			if note := b.Notes()[0]; !strings.Contains(note, "Address already in use") || !strings.Contains(note, "listener") {
				t.Errorf("the note is %q", note)
			}
			if value(t, b.metrics.refused.WithLabelValues("listener")) == 0 {
				t.Error("it is not counted")
			}
			if conn, err := net.Dial("tcp", b.o.Listen); err != nil {
				t.Errorf("Envoy has lost what it had: %v", err)
			} else {
				conn.Close()
			}
			b.Set(Settings{At: b.at, Envoy: b.o})
			b.until("no note", func() bool { return len(b.Notes()) == 0 })
		})
	}
}

// TestAChangedCluster: Envoy takes a cluster that has changed at once, although its endpoints have not:
// until these come it keeps the old one, for 15 s where they are not sent again.
func TestAChangedCluster(t *testing.T) {
	for name, change := range streams {
		t.Run(name, func(t *testing.T) {
			b := following(t, change)
			o := b.o
			o.ReplicaTLS = envoy.ReplicaTLS{Enabled: true}
			b.Set(Settings{At: b.at, Envoy: o})
			stat := func(name string) int { return testenv.EnvoyStat(t, b.o.Admin, name) }
			b.until("the changed cluster", func() bool {
				return stat("cluster_manager.cluster_modified") > 0 && stat("cluster_manager.warming_clusters") == 0
			})
			if n := stat(".init_fetch_timeout"); n != 0 {
				t.Errorf("%d waits for endpoints have ended without any", n)
			}
		})
	}
}

// TestARestartedRouter publishes the last state before it has learned its fleet, and Envoy, which
// has that, says so again.
func TestARestartedRouter(t *testing.T) {
	for name, change := range streams {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			f := new(some)
			f.set(many(0, 6, 2)...)
			b := publish(t, f, state)
			e := b.envoy("envoy", envoy.ADS, change)
			b.until("Envoy has 6", func() bool { return b.acknowledged() == 6 })
			b.stop()
			unsettled := *fleet.NewSnapshot()
			unsettled.Settled = false
			f.Store(&unsettled)
			b.start(state)
			b.until("Envoy is back, and is known to have 6", func() bool { return b.acknowledged() == 6 })
			f.set(many(2, 6, 2)...)
			b.until("the learned fleet", func() bool { return b.acknowledged() == 6 && b.ready() == 6 })
			e.Stop()
			b.until("nobody is held back where no Envoy follows", func() bool { return b.acks.connected() == 0 && b.acks.acked.Load() == nil })
		})
	}
}

// TestNothingIsPublishedUnlearned: an Envoy that connects before the fleet is
// known is sent nothing rather than too little.
func TestNothingIsPublishedUnlearned(t *testing.T) {
	f := new(some)
	first := fleet.NewSnapshot(many(0, 1, 1)...)
	first.Settled = false
	f.Store(first)
	p := New(Settings{At: Options{Listen: "127.0.0.1:0"}}, f, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	clock := time.Now()
	p.now = func() time.Time { clock = clock.Add(lookEvery); return clock }
	turn := func(n int) {
		for range n {
			p.look()
			p.step()
		}
	}
	turn(100)
	if p.previous != nil {
		t.Fatal("half a fleet was published")
	}
	f.set(many(0, 3, 1)...)
	turn(100)
	if p.previous == nil || len(p.target.fleet.Replicas) != 3 {
		t.Fatalf("the fleet was not published: %+v", p.target)
	}
	f.set() // everything is gone from the lists at once
	turn(100)
	if len(p.target.fleet.Replicas) != 3 {
		t.Error("Envoys were told of nobody")
	}
}

// TestChangesOfClustersKeepTheOldUntilNothingLeadsThere.
func TestChangesOfClustersKeepTheOldUntilNothingLeadsThere(t *testing.T) {
	f := new(some)
	f.set(many(0, 4, 2)...)
	p := New(Settings{At: Options{Listen: "127.0.0.1:0"}}, f, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	clock := time.Now()
	p.now = func() time.Time { return clock }
	var seen []string
	turn := func(n int) {
		for range n {
			clock = clock.Add(lookEvery)
			p.look()
			was := p.previous
			p.step()
			if p.previous != was {
				seen = append(seen, describe(p.previous.live))
			}
		}
	}
	turn(50)
	f.set(many(0, 6, 3)...) // model-0 and model-1 are others now, model-2 is new
	seen = nil
	turn(50)
	f.set(many(0, 2, 1)...)
	turn(50)
	want := []string{
		"clusters model:model-0 model:model-1 model:model-2; routes model:model-0 model:model-1",
		"clusters model:model-0 model:model-1 model:model-2; routes model:model-0 model:model-1 model:model-2",
		"clusters model:model-0 model:model-1 model:model-2; routes model:model-0 model:model-1 model:model-2",
		"clusters model:model-0 model:model-1 model:model-2; routes model:model-0 model:model-1 model:model-2",
		"clusters model:model-0 model:model-1 model:model-2; routes",
		"clusters; routes",
	}
	if strings.Join(seen, "\n") != strings.Join(want, "\n") {
		t.Errorf("published:\n%s\nwant\n%s", strings.Join(seen, "\n"), strings.Join(want, "\n"))
	}
}

// TestAnUnreadReplica: a model that no replica is known to serve may be one of a replica that has
// never said what it serves, so Envoy asks that one. A replica that comes later to a fleet of one
// model is no reason for another listener.
func TestAnUnreadReplica(t *testing.T) {
	named := func(name string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }))
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	known, unread := replica(named("known"), true, "m", "m"), replica(named("unread"), false, "m")
	f := new(some)
	f.set(known, unread)
	b := publish(t, f, "")
	b.envoy("envoy", envoy.ADS, asIs)
	ask := func(model string) string {
		resp, err := http.Post("http://"+b.o.Listen+"/v1/completions", "application/json", strings.NewReader(`{"model":`+strconv.Quote(model)+`}`))
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body)
	}
	b.until("the replica that is known", func() bool { return ask("m") == "known" })
	for range 8 {
		if m, other := ask("m"), ask("other"); m != "known" || other != "unread" {
			t.Fatalf("requests for m go to %q, for another model to %q", m, other)
		}
	}
	b.stop()

	f.set(known)
	p := New(Settings{At: Options{Listen: "127.0.0.1:0"}}, f, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	p.look()
	f.set(known, unread)
	p.look()
	if w := p.wanted.fleet; w.ReadsModel || len(w.Unread.Replicas) > 0 || len(w.Replicas) != 2 {
		t.Errorf("a second replica that comes later: %+v", w)
	}
}

// describe names the models' clusters of r, and the targets of its routes.
func describe(r *envoy.Resources) string {
	clusters, routes := "clusters", "; routes"
	for _, c := range r.Clusters {
		if strings.HasPrefix(c.GetName(), "model:") {
			clusters += " " + c.GetName()
		}
	}
	for _, route := range r.Routes.GetVirtualHosts()[0].GetRoutes() {
		if name := route.GetRoute().GetCluster(); strings.HasPrefix(name, "model:") {
			routes += " " + name
		}
	}
	return clusters + routes
}

// TestFilesThatCannotBeWritten are a note; connected Envoys still get updates, and the files are
// written once they can be, without another change.
func TestFilesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "state")
	must.Do(t, os.WriteFile(blocked, nil, 0o600))
	f := new(some)
	f.set(many(0, 2, 1)...)
	b := publish(t, f, blocked)
	b.until("a note", func() bool { return len(b.Notes()) == 1 && strings.Contains(b.Notes()[0], "xds.state is not written") })
	if b.previous == nil {
		t.Error("nothing is published")
	}
	if Kept(blocked) {
		t.Error("there is a state to start with")
	}
	must.Do(t, os.Remove(blocked))
	b.until("the state", func() bool {
		k, err := readKept(blocked) // written last
		return err == nil && len(k.Fleet.Replicas) == 2 && Kept(blocked) && len(b.Notes()) == 0
	})
	b.stop()
	if n := strings.Count(b.log.String(), "is not stored"); n != 1 {
		t.Errorf("%d lines:\n%s", n, b.log.String())
	}
}

// TestTwoRoutersOfOneFolder: the second one has a note, until the first has ended.
func TestTwoRoutersOfOneFolder(t *testing.T) {
	dir := t.TempDir()
	f := new(some)
	f.set(many(0, 2, 1)...)
	first := publish(t, f, dir)
	first.until("the folder", func() bool {
		lock, err := os.Open(filepath.Join(dir, ".lock"))
		if err != nil {
			return false
		}
		defer lock.Close()
		return syscall.Flock(int(lock.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
	})
	second := publish(t, f, dir)
	second.until("a note", func() bool {
		return len(second.Notes()) == 1 && strings.Contains(second.Notes()[0], "another router writes to xds.state")
	})
	if notes := first.Notes(); len(notes) != 0 {
		t.Errorf("notes of the first: %q", notes)
	}
	first.stop()
	second.until("no note", func() bool { return len(second.Notes()) == 0 })
}

// TestKeptGarbage is not used, and is no reason to stop.
func TestKeptGarbage(t *testing.T) {
	for _, text := range []string{"", "{", "[]", "{}", `{"fleet":{"Replicas":[{"Addr":"nonsense"}]}}`} {
		dir := t.TempDir()
		must.Do(t, os.WriteFile(filepath.Join(dir, fleetFile), []byte(text), 0o600))
		f := new(some)
		f.set(many(0, 2, 1)...)
		b := publish(t, f, dir)
		b.until("the fleet", func() bool { return Kept(dir) })
		b.stop()
		if strings.Contains(text, "nonsense") {
			continue // Envoy is the judge of that
		}
		if !strings.Contains(b.log.String(), "is not used") {
			t.Errorf("%q: nothing is said:\n%s", text, b.log.String())
		}
	}
}

// TestAFrozenEnvoyHoldsNobodyUp: the others get updates, and replicas that it has
// not acknowledged are not named.
func TestAFrozenEnvoyHoldsNobodyUp(t *testing.T) {
	f := new(some)
	f.set(many(0, 2, 1)...)
	b := publish(t, f, "")
	e := b.envoy("envoy", envoy.ADS, asIs)
	b.until("Envoy has 2", func() bool { return b.acknowledged() == 2 })
	must.Do(t, e.Signal(syscall.SIGSTOP))
	f.set(many(0, 3, 1)...)
	b.until("the third is published", func() bool { return value(t, b.metrics.versions) == 2 })
	if n := b.ready(); n != 2 {
		t.Errorf("%d may be named, a frozen Envoy has 2", n)
	}
	must.Do(t, e.Signal(syscall.SIGCONT))
	b.until("Envoy has 3", func() bool { return b.acknowledged() == 3 && b.ready() == 3 })
}
