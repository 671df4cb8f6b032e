package xds

import (
	"fmt"
	"log/slog"
	"testing"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	resourcev3 "github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// TestAnEnvoyThatNeverAnswers: the responses that are kept for its answers are bounded.
func TestAnEnvoyThatNeverAnswers(t *testing.T) {
	a := newAcks(newMetrics(prometheus.NewRegistry(), nil), slog.New(slog.DiscardHandler))
	a.open(t.Context(), 1)
	for i := range 100_000 {
		a.send(1, fmt.Sprint(i), sent{typeURL: resourcev3.EndpointType})
	}
	if n := len(a.envoys[1].sent); n > maxUnanswered {
		t.Errorf("%d responses are kept", n)
	}
}

// TestAnEnvoyTakesWhatItAcknowledges: its endpoints are those of the updates that it has
// acknowledged, without the clusters that one of them removed.
func TestAnEnvoyTakesWhatItAcknowledges(t *testing.T) {
	a := newAcks(newMetrics(prometheus.NewRegistry(), nil), slog.New(slog.DiscardHandler))
	a.open(t.Context(), 1)
	took := func(nonce string, s sent) map[string]bool {
		t.Helper()
		s.typeURL = resourcev3.EndpointType
		a.send(1, nonce, s)
		a.answered(1, nil, nonce, false, "")
		return (*a.acked.Load())
	}
	if got := took("1", sent{endpoints: map[string][]string{"x": {"1:1"}, "y": {"2:1"}}}); len(got) != 2 {
		t.Errorf("two clusters: %v", got)
	}
	if got := took("2", sent{endpoints: map[string][]string{"x": {"3:1"}}, removed: []string{"y"}}); len(got) != 1 || !got["3:1"] {
		t.Errorf("one changed, one removed: %v", got)
	}
}

// TestWhatEveryEnvoyHas: of several Envoys, those endpoints count that each has acknowledged; one that has
// acknowledged none serves no request.
func TestWhatEveryEnvoyHas(t *testing.T) {
	a := newAcks(newMetrics(prometheus.NewRegistry(), nil), slog.New(slog.DiscardHandler))
	for id, addrs := range [][]string{{"1:1", "2:1"}, {"2:1", "3:1"}, nil} {
		id := int64(id)
		a.open(t.Context(), id)
		if addrs != nil {
			a.send(id, "n", sent{typeURL: resourcev3.EndpointType, endpoints: map[string][]string{"x": addrs, "y": addrs[:1]}})
			a.answered(id, nil, "n", false, "")
		}
	}
	if got := (*a.acked.Load()); len(got) != 1 || !got["2:1"] {
		t.Errorf("all have %v", got)
	}
	for id := range int64(2) {
		a.close(id)
	}
	if a.acked.Load() != nil {
		t.Error("endpoints count though no Envoy has any")
	}
}

// TestEndpointsOfBeforeAreSentAgain: what an Envoy has from an earlier stream is no reason to send it
// nothing, of endpoints alone; what it has from this one is.
func TestEndpointsOfBeforeAreSentAgain(t *testing.T) {
	a := newAcks(newMetrics(prometheus.NewRegistry(), nil), slog.New(slog.DiscardHandler))
	calls := a.callbacks()
	for _, c := range []struct{ kind, nonce, want string }{
		{resourcev3.EndpointType, "", ""},
		{resourcev3.EndpointType, "1", "v"},
		{resourcev3.ClusterType, "", "v"},
	} {
		r := &discoveryv3.DiscoveryRequest{TypeUrl: c.kind, ResponseNonce: c.nonce, VersionInfo: "v"}
		if err := calls.OnStreamRequest(1, r); err != nil || r.VersionInfo != c.want {
			t.Errorf("%s, nonce %q: version %q (%v), want %q", c.kind, c.nonce, r.VersionInfo, err, c.want)
		}
	}
}
