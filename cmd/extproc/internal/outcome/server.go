package outcome

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	alsv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"warmroute/envoy"
)

// The outcome of a hint: the closed set used as a metric label.
const (
	first     = "first"     // the replica named first has served it
	later     = "later"     // another named replica has served it: the first could not be reached
	elsewhere = "elsewhere" // a replica that was not named has served it: Envoy knew none of the named ones, or could reach none
	nobody    = "nobody"    // the client left, or no replica could be reached
)

// Server counts outcomes. Make it with New.
type Server struct {
	alsv3.UnimplementedAccessLogServiceServer
	ctx      context.Context
	outcomes *prometheus.CounterVec
	missed   func()
}

// New returns a server. missed is called for each request that the replica named
// first did not serve.
func New(reg prometheus.Registerer, missed func()) *Server {
	s := &Server{missed: missed, outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "warmroute_hint_outcomes_total",
		Help: "Hinted requests by the serving replica, from Envoy's access log: first or later of the named replicas, elsewhere, nobody."}, []string{"served_by"})}
	for _, outcome := range []string{first, later, elsewhere, nobody} {
		s.outcomes.WithLabelValues(outcome) // there from the start: requests make no series
	}
	reg.MustRegister(s.outcomes)
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
				s.count(e)
			}
		}
	}()
	select {
	case <-ended:
	case <-s.ctx.Done(): // returning ends Recv
	}
	return nil
}

func (s *Server) count(e *logv3.HTTPAccessLogEntry) {
	common := e.GetCommonProperties()
	hint := common.GetMetadata().GetFilterMetadata()[envoy.MetadataLB].GetFields()[envoy.HeaderDestination].GetStringValue()
	if hint == "" { // a gateway that does not take the metadata logs the header
		hint = e.GetRequest().GetRequestHeaders()[envoy.HeaderDestination]
	}
	if hint == "" {
		return
	}
	served := address(common.GetUpstreamRemoteAddress())
	outcome := classify(hint, served)
	s.outcomes.WithLabelValues(outcome).Inc()
	if outcome == later || outcome == elsewhere {
		s.missed()
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

func address(a *corev3.Address) string {
	s := a.GetSocketAddress()
	if s == nil {
		return ""
	}
	return net.JoinHostPort(s.GetAddress(), strconv.FormatUint(uint64(s.GetPortValue()), 10))
}
