package fleet

import (
	"bytes"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// lockedLog is a log that a test reads while the fleet writes it.
type lockedLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lockedLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// warnings counts the lines that say that a replica has no KV events.
func (l *lockedLog) warnings() int { return l.count("level=WARN msg=\"replica has no KV events") }

func (l *lockedLog) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestAReplicaWithoutEventsIsWarnedOfOnce: the log has one warning of a replica that
// publishes nothing, however often it is asked, and none if that is configured, if a
// sidecar reports it, or as long as the replica has not answered the question.
func TestAReplicaWithoutEventsIsWarnedOfOnce(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func(*fakeReplica)
		options ReplicaOptions
		want    int
		unknown bool
	}{
		"no such path":         {answer: func(f *fakeReplica) { delete(f.answer, "/kv_event_sources") }, want: 1},
		"no sources":           {answer: func(f *fakeReplica) { f.answer["/kv_event_sources"] = "{}" }, want: 1},
		"another publisher":    {answer: func(f *fakeReplica) { f.answer["/kv_event_sources"] = `{"0":{"publisher":"null"}}` }, want: 1},
		"sources":              {answer: func(*fakeReplica) {}},
		"refused sources":      {answer: func(f *fakeReplica) { f.answer["/kv_event_sources"] = `{"0":{"endpoint":"tcp://10.9.9.9:1"}}` }},
		"configured as none":   {answer: func(f *fakeReplica) { delete(f.answer, "/kv_event_sources") }, options: ReplicaOptions{NoEvents: true}},
		"a sidecar":            {answer: func(f *fakeReplica) { delete(f.answer, "/kv_event_sources") }, options: ReplicaOptions{Sidecar: true}},
		"configured endpoints": {answer: func(f *fakeReplica) { delete(f.answer, "/kv_event_sources") }, options: ReplicaOptions{Events: []EventSource{{Endpoint: "tcp://*:5557"}}}},
		"no answer":            {answer: func(f *fakeReplica) { f.status["/kv_event_sources"] = http.StatusServiceUnavailable }, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log, f := new(lockedLog), fake(1, 0)
				c.answer(f)
				c.options.Address = a
				w := start(t, Options{Replicas: []ReplicaOptions{c.options}, Logger: slog.New(slog.NewTextHandler(log, nil))}, map[string]*fakeReplica{a: f})
				time.Sleep(10 * time.Minute)
				r := w.fleet.Snapshot().Replicas[0]
				if got := log.warnings(); got != c.want || !r.Ready || r.EventsUnknown != c.unknown || r.NoEvents != c.options.NoEvents {
					t.Errorf("%d warnings, want %d; %+v", got, c.want, r)
				}
			})
		})
	}
}
