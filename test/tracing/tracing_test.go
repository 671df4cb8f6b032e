// Package tracing holds the test of traces with the OpenTelemetry collector's own
// receiver: a module of its own, so that users of warmroute do not get the
// collector's libraries.
package tracing

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"warmroute/internal/testenv"
	"warmroute/lab/stage"
	"warmroute/render/testkit/must"

	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver/otlpreceiver"
	"go.opentelemetry.io/collector/receiver/receivertest"
)

// secret stands in the prompt and must be in no span.
const secret = "ZEBRA-LANTERN-77"

// collect runs the collector's OTLP receiver.
func collect(t *testing.T, addr string) *consumertest.TracesSink {
	t.Helper()
	sink := new(consumertest.TracesSink)
	factory := otlpreceiver.NewFactory()
	config := factory.CreateDefaultConfig().(*otlpreceiver.Config)
	grpc := config.Protocols.GRPC.GetOrInsertDefault()
	grpc.NetAddr.Endpoint = addr
	receiver := must.Get(factory.CreateTraces(t.Context(), receivertest.NewNopSettings(factory.Type()), config, sink))(t)
	must.Do(t, receiver.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { _ = receiver.Shutdown(context.Background()) })
	return sink
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	testenv.Until(t, time.Minute, what, ok)
}

// ask sends a chat with a trace context of these flags.
func ask(t *testing.T, front, trace, flags string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":%q}]}`, strings.Repeat(secret+" ", 50))
	testenv.Post(t, front+"/v1/chat/completions", []byte(body), "traceparent", "00-"+trace+"-b7ad6b7169203331-"+flags).Into(t, nil)
}

// TestSpansReachACollector: of requests whose trace is sampled and of no other,
// under the request's own span, with names and numbers and no text.
func TestSpansReachACollector(t *testing.T) {
	otlp := testenv.Addresses(t, 1)[0]
	site := stage.StartSite(t, stage.Fleet{Replicas: 1, Blocks: 2048, BlockSize: 16, Model: "sim", StepTokens: 2048}, fmt.Sprintf("tracing: {endpoint: %q}\n", otlp))
	front := site.URL
	const early, traced = "11111111111111111111111111111111", "0af7651916cd43dd8448eb211c80319c"
	ask(t, front, early, "01") // the collector is not there yet
	sink := collect(t, otlp)
	until(t, "a span of the sampled request", func() bool { // the first batches may meet the back-off of the connection
		ask(t, front, "22222222222222222222222222222222", "00")
		ask(t, front, traced, "01")
		for _, batch := range sink.AllTraces() {
			if len(spans(batch)) > 0 {
				return true
			}
		}
		return false
	})
	for _, batch := range sink.AllTraces() {
		for _, s := range spans(batch) {
			if id := s.TraceID().String(); id != traced && id != early || s.ParentSpanID().String() != "b7ad6b7169203331" {
				t.Errorf("a span of trace %s under %s", s.TraceID(), s.ParentSpanID())
			}
			for key, want := range map[string]string{"gen_ai.operation.name": "chat", "gen_ai.request.model": "sim"} {
				if v, ok := s.Attributes().Get(key); !ok || v.Str() != want {
					t.Errorf("%s is %v", key, v)
				}
			}
			if v, ok := s.Attributes().Get("gen_ai.usage.input_tokens"); !ok || v.Int() < 50 {
				t.Errorf("input tokens %v", v)
			}
			if s.Events().Len() != 4 || s.EndTimestamp() <= s.StartTimestamp() {
				t.Errorf("%d events, from %v to %v", s.Events().Len(), s.StartTimestamp(), s.EndTimestamp())
			}
		}
		all, err := new(ptrace.JSONMarshaler).MarshalTraces(batch)
		if err != nil || !json.Valid(all) {
			t.Fatal(err)
		}
		if strings.Contains(string(all), "ZEBRA") {
			t.Errorf("text of a prompt in %s", all)
		}
	}
}

func spans(batch ptrace.Traces) (out []ptrace.Span) {
	for _, resource := range batch.ResourceSpans().All() {
		for _, scope := range resource.ScopeSpans().All() {
			for _, s := range scope.Spans().All() {
				out = append(out, s)
			}
		}
	}
	return out
}
