package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"warmroute/filter"
	"warmroute/internal/certs"
)

// Tracer makes spans of decisions.
type Tracer struct {
	o        Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	spans    *prometheus.CounterVec
	made     prometheus.Counter
}

// New returns a Tracer that sends to o.Endpoint. It dials nothing yet, and the
// collector need not be there.
func New(o Options, version string, reg prometheus.Registerer, log *slog.Logger) (*Tracer, error) {
	o.timeout, o.queue = cmp.Or(o.timeout, sendTimeout), cmp.Or(o.queue, mostWaiting)
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(o.Endpoint), otlptracegrpc.WithTimeout(o.timeout),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}), // a late batch is of no use, and the next one waits for it
	}
	if o.TLS.Enabled {
		c, err := certs.ClientCredentials(o.TLS)
		if err != nil {
			return nil, fmt.Errorf("tracing.tls.%w", err)
		}
		options = append(options, otlptracegrpc.WithTLSCredentials(c))
	} else {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(context.Background(), options...)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := &Tracer{o: o, spans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_trace_spans_total", Help: "Spans of sampled requests: made, sent to the collector, failed."}, []string{"result"})}
	reg.MustRegister(t.spans)
	t.made = t.spans.WithLabelValues("made")
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())),
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", cmp.Or(os.Getenv("OTEL_SERVICE_NAME"), serviceName)), attribute.String("service.version", version))),
		sdktrace.WithBatcher(&counted{SpanExporter: exporter, log: log, sent: t.spans.WithLabelValues("sent"), failed: t.spans.WithLabelValues("failed")},
			sdktrace.WithMaxQueueSize(o.queue), sdktrace.WithMaxExportBatchSize(min(512, o.queue)), sdktrace.WithExportTimeout(o.timeout)),
	)
	t.tracer = t.provider.Tracer("warmroute")
	return t, nil
}

// Run waits for ctx and then sends the remaining spans, at most for the time of one
// batch.
func (t *Tracer) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.o.timeout)
	defer cancel()
	_ = t.provider.Shutdown(last) // spans that could not be sent are counted and logged
	return nil
}

// begin begins a span of a request's trace, nil if parent is no trace context, or not sampled.
func (t *Tracer) begin(name, parent string, at time.Time) trace.Span {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": parent})
	_, span := t.tracer.Start(ctx, name, trace.WithTimestamp(at))
	if !span.IsRecording() {
		return nil
	}
	t.made.Inc()
	return span
}

// Decided implements filter.Tracer.
func (t *Tracer) Decided(d *filter.Traced) {
	rec := d.Record
	span := t.begin("route", d.Parent, rec.At)
	if span == nil {
		return
	}
	span.SetAttributes(attributes(d)...)
	for _, e := range d.Phases {
		if !e.End.IsZero() {
			span.AddEvent(e.Name, trace.WithTimestamp(e.End))
		}
	}
	span.End(trace.WithTimestamp(rec.At.Add(rec.Took)))
}

// Prefilled implements filter.Tracer.
func (t *Tracer) Prefilled(l *filter.TracedLeg) {
	span := t.begin("prefill", l.Parent, l.Start)
	if span == nil {
		return
	}
	span.SetAttributes(attribute.String("warmroute.split", string(l.Reason)), attribute.String("warmroute.prefill", l.Replica),
		attribute.String("warmroute.request_id", l.ID))
	span.End(trace.WithTimestamp(l.End))
}

// operations are GenAI's names for the work of the API's routes.
var operations = map[string]string{
	"/v1/chat/completions": "chat", "/v1/responses": "chat", "/v1/messages": "chat", "/v1/completions": "text_completion",
}

// attributes returns a decision's attributes: by the GenAI semantic conventions,
// and for others by warmroute's own names.
func attributes(d *filter.Traced) []attribute.KeyValue {
	rec := d.Record
	out := make([]attribute.KeyValue, 0, 13)
	out = append(out, attribute.String("warmroute.reason", string(rec.Reason)), attribute.String("http.route", rec.Route))
	if op := operations[rec.Route]; op != "" {
		out = append(out, attribute.String("gen_ai.operation.name", op))
	}
	if rec.Model != "" {
		out = append(out, attribute.String("gen_ai.request.model", rec.Model))
	}
	if rec.Tokens > 0 {
		out = append(out, attribute.Int("gen_ai.usage.input_tokens", rec.Tokens), attribute.Int("gen_ai.usage.cache_read.input_tokens", rec.Predicted))
	}
	if rec.Source != "" {
		out = append(out, attribute.String("warmroute.token_source", rec.Source))
	}
	if rec.ID != "" {
		out = append(out, attribute.String("warmroute.request_id", rec.ID))
	}
	if rec.Chosen != "" {
		out = append(out, attribute.String("warmroute.destination", rec.Chosen))
		if rec.Withheld != "" { // Envoy balances: the server is not known
			return append(out, attribute.String("warmroute.withheld", string(rec.Withheld)))
		}
		if host, port, err := net.SplitHostPort(rec.First()); err == nil {
			n, _ := strconv.Atoi(port)
			out = append(out, attribute.String("server.address", host), attribute.Int("server.port", n))
		}
	}
	return out
}

// counted counts the results of sending spans, and logs when they change.
type counted struct {
	sdktrace.SpanExporter
	log          *slog.Logger
	sent, failed prometheus.Counter
	failing      atomic.Bool
}

// ExportSpans implements sdktrace.SpanExporter.
func (c *counted) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		c.sent.Add(float64(len(spans)))
		if c.failing.Swap(false) {
			c.log.Info("traces: the collector accepts spans again")
		}
		return nil
	}
	c.failed.Add(float64(len(spans)))
	if !c.failing.Swap(true) {
		c.log.Warn("traces: the collector does not accept spans; they are lost until it does", "error", err)
	}
	return nil
}
