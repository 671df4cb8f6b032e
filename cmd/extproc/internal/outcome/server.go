package outcome

import (
	"context"
	"net/http"
	"slices"
	"strings"

	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"warmroute/internal/telemetry"
)

// The outcome of a hint: the closed set used as a metric label.
const (
	first     = "first"     // the replica named first has served it
	later     = "later"     // another named replica has served it: the first could not be reached
	elsewhere = "elsewhere" // a replica that was not named has served it: Envoy knew none of the named ones, or could reach none
	nobody    = "nobody"    // the client left, or no replica could be reached
)

// Server counts outcomes and gives answers to consumers. Make it with New.
type Server struct {
	alsv3.UnimplementedAccessLogServiceServer
	ctx       context.Context
	base      func(model string) string
	outcomes  *prometheus.CounterVec
	byModel   *telemetry.ByModel[outcomes]
	usages    *prometheus.CounterVec
	missed    func()
	consumers []func(*Answer)
}

// outcomes are the counters of a model.
type outcomes struct{ by map[string]prometheus.Counter }

// New returns a server. base returns the base model of a served model's name, "" for a
// name that no replica serves. missed is called for each request that the replica named
// first did not serve, unless the router has counted it; each consumer is called for
// each answer, which is its own until it returns.
func New(reg prometheus.Registerer, base func(model string) string, missed func(), consumers ...func(*Answer)) *Server {
	s := &Server{base: base, missed: missed, consumers: consumers, outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_hint_outcomes_total",
		Help: "Hinted requests by serving replica: first or later of the named ones, elsewhere, nobody."}, []string{"model", "served_by"}),
		usages: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "warmroute_answer_usage_total",
			Help: "Answers whose usage Envoy was asked to read: complete, partial (without cached tokens), failed, none."}, []string{"state"})}
	s.byModel = telemetry.NewByModel(func(model string) *outcomes {
		o := &outcomes{by: map[string]prometheus.Counter{}}
		for _, outcome := range []string{first, later, elsewhere, nobody} {
			o.by[outcome] = s.outcomes.WithLabelValues(model, outcome)
		}
		return o
	})
	for _, state := range UsageStates {
		s.usages.WithLabelValues(string(state))
	}
	reg.MustRegister(s.outcomes, s.usages)
	return s
}

// Register adds s to a gRPC server. Its streams, which would hold up a graceful
// stop, end with ctx.
func (s *Server) Register(ctx context.Context, to grpc.ServiceRegistrar) {
	s.ctx = ctx
	alsv3.RegisterAccessLogServiceServer(to, s)
}

// StreamAccessLogs takes entries until Envoy or the router ends.
func (s *Server) StreamAccessLogs(stream alsv3.AccessLogService_StreamAccessLogsServer) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			for _, e := range m.GetHttpLogs().GetLogEntry() {
				a := answerOf(e)
				s.take(&a)
			}
		}
	}()
	select {
	case <-ended:
	case <-s.ctx.Done(): // returning ends Recv
	}
	return nil
}

// take counts an answer and hands it on.
func (s *Server) take(a *Answer) {
	if a.Usage.State != UsageUnread {
		s.usages.WithLabelValues(string(a.Usage.State)).Inc()
	}
	if a.Hint != "" {
		outcome := classify(a.Hint, a.Replica)
		s.byModel.Of(s.base(a.Model)).by[outcome].Inc()
		if (outcome == later || outcome == elsewhere) && (!a.Told || a.Status >= http.StatusInternalServerError) {
			s.missed()
		}
		a.PassedOver = outcome == later && a.Retried
	}
	for _, consume := range s.consumers {
		consume(a)
	}
}

// classify returns the outcome of a hint.
func classify(hint, served string) string {
	if served == "" {
		return nobody
	}
	switch slices.Index(strings.Split(hint, ","), served) {
	case 0:
		return first
	case -1:
		return elsewhere
	}
	return later
}
