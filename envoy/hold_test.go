package envoy

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// TestEnvoyOutlastsHeldRequests: none of Envoy's limits is below the longest hold, and nothing
// changes without one.
func TestEnvoyOutlastsHeldRequests(t *testing.T) {
	render := func(o Options) string {
		o.Replicas = []string{"10.0.0.1:8000"}
		var b bytes.Buffer
		must.Do(t, WriteBootstrap(&b, o))
		return b.String()
	}
	has := func(boot string, all ...string) {
		t.Helper()
		for _, want := range all {
			if !strings.Contains(boot, want) {
				t.Errorf("no %q", want)
			}
		}
	}
	const order = `{key: x-vllm-priority, value: "%DYNAMIC_METADATA(warmroute:priority)%"}`
	const keepalive = "connection_keepalive: {interval: 1s, timeout: 1s}"
	has(render(Options{Hold: 20 * time.Minute}), order, "max_message_timeout: 1201s", "stream_idle_timeout: 1201s", "request_timeout: 1800s",
		`initial_metadata: [{key: x-warmroute-hold-ms, value: "1200000"}]`, keepalive)
	has(render(Options{Hold: time.Minute}), "max_message_timeout: 61s", "stream_idle_timeout: 600s")
	has(render(Options{}), "request_timeout: 600s", "request_headers_timeout: 60s") // a request that never comes ends
	has(render(Options{Hold: time.Minute, Split: Split{On: true, Wait: 2 * time.Minute}}), "max_message_timeout: 121s",
		`{key: x-warmroute-wait-ms, value: "120000"}`, `{key: x-warmroute-hold-ms, value: "60000"}`)
	if strings.Contains(render(Options{Hold: time.Minute, EngineHeaders: true}), order) {
		t.Error("the header that a trusted gateway has set is overwritten")
	}
	if boot := render(Options{}); strings.Contains(boot, order) || strings.Contains(boot, KeyHold) || strings.Contains(boot, "max_message_timeout") || strings.Contains(boot, keepalive) {
		t.Error("something waits without a hold")
	}
	if err := (Options{Hold: time.Minute, Mode: FullDuplex}).Validate(); err == nil {
		t.Error("FULL_DUPLEX_STREAMED holds requests")
	}
}
