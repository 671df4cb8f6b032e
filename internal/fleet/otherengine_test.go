package fleet

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnyOpenAIServer: a server that has /v1/models and nothing else is a replica. It is asked
// for a page of metrics only as often as for its models, the log has one line of it, and it
// leaves when it no longer answers.
func TestAnyOpenAIServer(t *testing.T) {
	for name, c := range map[string]struct {
		health, metrics int
	}{"nothing else": {404, 404}, "llama.cpp": {200, 501}, "no route is implemented": {501, 501}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := new(lockedLog)
				r := &fakeReplica{slow: map[string]bool{}, answer: map[string]string{"/v1/models": `{"data":[{"id":"m","owned_by":"llamacpp"}]}`},
					status: map[string]int{"/health": c.health, "/metrics": c.metrics}}
				w := start(t, Options{Replicas: list(a), Logger: slog.New(slog.NewTextHandler(log, nil))}, map[string]*fakeReplica{a: r})
				w.expect("joined " + a + " 1")
				w.pass(time.Hour)
				w.expect()
				w.expectServing(a)
				rep := w.fleet.Snapshot().Replica(a)
				if !rep.OtherEngine() || rep.Engine != "llamacpp" || len(rep.Load) != 0 || len(rep.Ranks) != 1 {
					t.Errorf("%+v", rep)
				}
				if n := w.net.count("/metrics"); n > 2+int(time.Hour/learnEvery) {
					t.Errorf("/metrics was asked for %d times in an hour", n)
				}
				if n := log.count("replica runs neither vLLM nor SGLang"); n != 1 || log.count("level=WARN") != 0 {
					t.Errorf("%d lines, and %d warnings", n, log.count("level=WARN"))
				}
				w.net.change(func() { r.hang = true })
				w.pass(4 * time.Second)
				w.expect("left " + a + " 1")
				w.net.change(func() { r.hang = false; r.status["/health"] = http.StatusServiceUnavailable })
				w.pass(time.Minute)
				w.expect() // it loads
			})
		})
	}
}

// TestTensorRT: events that are configured of a TensorRT-LLM are not used, and the replica and
// the log say so, once.
func TestTensorRT(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lockedLog)
		r := &fakeReplica{status: map[string]int{}, slow: map[string]bool{}, answer: map[string]string{
			"/v1/models": `{"data":[{"id":"m","owned_by":"tensorrt_llm"}]}`, "/health": "", "/version": `{"version":"1.3.0"}`, "/metrics": "[]",
		}}
		o := ReplicaOptions{Address: a, Events: []EventSource{{Endpoint: "tcp://*:5557", Topic: "kv"}}}
		w := start(t, Options{Replicas: []ReplicaOptions{o}, Logger: slog.New(slog.NewTextHandler(log, nil))}, map[string]*fakeReplica{a: r})
		w.expectServing(a)
		w.pass(time.Hour)
		const why = "the events of TensorRT-LLM are not read"
		if r := w.fleet.Snapshot().Replica(a); !r.OtherEngine() || len(r.Events) != 0 || !strings.Contains(r.EventsRefused, why) {
			t.Errorf("%+v", r)
		}
		if n := log.count("level=WARN"); n != 1 || log.count(why) != 1 {
			t.Errorf("%d warnings, %d of them name the reason", n, log.count(why))
		}
	})
}

// TestARestartThatNoPageShows: a server without a page that answers again has restarted, if
// meanwhile nothing listened there or it was loading. One that was only silent has not, nor
// one whose page says that it is the same process.
func TestARestartThatNoPageShows(t *testing.T) {
	for name, c := range map[string]struct {
		page      bool
		away      func(*fakeReplica)
		restarted bool
	}{
		"refused":              {false, func(r *fakeReplica) { r.refuse = true }, true},
		"loading":              {false, func(r *fakeReplica) { r.status["/health"] = http.StatusServiceUnavailable }, true},
		"silent":               {false, func(r *fakeReplica) { r.hang = true }, false},
		"refused, with a page": {true, func(r *fakeReplica) { r.refuse = true }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := fake(1, 0)
				if !c.page {
					delete(r.answer, "/metrics")
				}
				w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
				w.pass(time.Minute)
				w.expect("joined " + a + " 1")
				w.net.change(func() { c.away(r) })
				w.pass(1500 * time.Millisecond)
				w.net.change(func() { r.refuse, r.hang = false, false; delete(r.status, "/health") })
				w.pass(5 * time.Second)
				if c.restarted {
					w.expect("left "+a+" 1", "joined "+a+" 2")
				} else {
					w.expect()
				}
			})
		})
	}
}

// TestAPageThatAppears is read: a server that is started with metrics has them from the next
// look on.
func TestAPageThatAppears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := fake(1, 3)
		page := r.answer["/metrics"]
		delete(r.answer, "/metrics")
		w := start(t, Options{Replicas: list(a)}, map[string]*fakeReplica{a: r})
		w.pass(time.Minute)
		w.net.change(func() { r.answer["/metrics"] = page })
		w.pass(time.Minute)
		if l, ok := w.fleet.Snapshot().Replica(a).LoadOf(0); !ok || l.Running != 3 || time.Since(l.At) > 2*time.Second {
			t.Errorf("%+v", l)
		}
	})
}

// TestModelsThatNobodyLists must be configured, and then suffice.
func TestModelsThatNobodyLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &fakeReplica{slow: map[string]bool{}, answer: map[string]string{}, status: map[string]int{}}
		w := start(t, Options{Replicas: []ReplicaOptions{{Address: a}, {Address: b, Models: []ModelOptions{{ID: "m"}}}}}, map[string]*fakeReplica{a: r, b: r})
		w.expect("joined " + b + " 1")
		w.expectServing(b)
		if why := w.fleet.Snapshot().Replica(a).Why; !strings.Contains(why, "bad answer: /v1/models: HTTP status 404; if it has none, name its models under fleet.replicas[].models") {
			t.Errorf("it is not ready because of %q", why)
		}
	})
}
