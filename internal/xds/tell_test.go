package xds

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/envoy"
)

// TestTheLogCountsWhatServes: a line about a published fleet counts the replicas that are
// up and the Envoys that are there, and says that Envoys receive the fleet only if one does. A
// note says that the last one has left.
func TestTheLogCountsWhatServes(t *testing.T) {
	f, log := new(some), new(bytes.Buffer)
	o := envoy.Options{XDS: []string{"127.0.0.1:9001"}, Listen: "127.0.0.1:8080", Admin: "127.0.0.1:9901", ExtProc: []string{"127.0.0.1:9002"}, AccessLog: "none"}
	p := New(Settings{At: Options{Listen: "127.0.0.1:9001"}, Envoy: o}, f, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(log, nil)))
	now := time.Unix(1, 0)
	p.now = func() time.Time { return now }
	publish := func(says string) {
		t.Helper()
		log.Reset()
		p.look()
		for range 3 {
			now = now.Add(patience + stageMost)
			p.step()
		}
		if !strings.Contains(log.String(), says) {
			t.Errorf("the log lacks %s: %s", says, log)
		}
	}
	f.set(many(0, 3, 1)...)
	publish(`msg="the fleet is ready for Envoys, and none is connected" envoys=0 replicas=3 down=0 model_clusters=0`)
	some := many(0, 3, 1)
	some[1].Ready = false
	f.set(some...)
	p.acks.open(t.Context(), 1)
	publish(`msg="Envoys receive the fleet" envoys=1 replicas=2 down=1 model_clusters=0`)
	none := many(0, 3, 1)
	for _, r := range none {
		r.Ready = false
	}
	f.set(none...)
	publish(`msg="Envoys receive the fleet" envoys=1 replicas=0 down=3 model_clusters=0`)
	const alone = "no Envoy is connected: the last one has left, and learns of no change"
	p.acks.open(t.Context(), 2)
	for _, id := range []int64{1, 2} {
		p.acks.close(id)
		if said, last := slices.Contains(p.Notes(), alone), id == 2; said != last {
			t.Errorf("Envoy %d has left: %q", id, p.Notes())
		}
	}
}
