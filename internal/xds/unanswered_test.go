package xds

import (
	"fmt"
	"log/slog"
	"testing"

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
