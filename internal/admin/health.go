package admin

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Names of grpc.health.v1 services that gateways of the endpoint-picker protocol
// request.
const (
	// Liveness is serving as long as the process answers, until it goes down: Envoy's
	// health checks ask for it.
	Liveness = "liveness"
	// Readiness follows the readiness function, as do the two below.
	Readiness = "readiness"
	// ExternalProcessor is the full name of the ext_proc service.
	ExternalProcessor = "envoy.service.ext_proc.v3.ExternalProcessor"
	// Overall is the complete server, for a probe without a name.
	Overall = ""
)

// watchEvery is the time between Watch's checks of readiness: a kubelet repeats
// its probe by itself, a gateway that watches relies on this interval.
const watchEvery = time.Second

// health is grpc.health.v1 over a gate.
type health struct {
	healthpb.UnimplementedHealthServer
	gate *Gate
	ctx  context.Context // ends watches, which would hold up a graceful stop
}

// RegisterHealth adds grpc.health.v1 over gate to a gRPC server. Watches end when
// ctx does: cancel it before a GracefulStop, which waits for them.
func RegisterHealth(ctx context.Context, to grpc.ServiceRegistrar, gate *Gate) {
	healthpb.RegisterHealthServer(to, &health{gate: gate, ctx: ctx})
}

// Check answers for the names above; any other is NOT_FOUND, as grpc.health.v1
// requires.
func (h *health) Check(_ context.Context, req *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	s := h.status(req.GetService())
	if s == healthpb.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &healthpb.HealthCheckResponse{Status: s}, nil
}

// List answers for all names.
func (h *health) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	out := map[string]*healthpb.HealthCheckResponse{}
	for _, name := range []string{Overall, Liveness, Readiness, ExternalProcessor} {
		out[name] = &healthpb.HealthCheckResponse{Status: h.status(name)}
	}
	return &healthpb.HealthListResponse{Statuses: out}, nil
}

// Watch sends the status now and after each change.
func (h *health) Watch(req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := healthpb.HealthCheckResponse_ServingStatus(-1)
	for {
		if s := h.status(req.GetService()); s != last {
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: s}); err != nil {
				return err
			}
			last = s
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-h.ctx.Done():
			return status.Error(codes.Unavailable, "shutting down")
		}
	}
}

func (h *health) status(service string) healthpb.HealthCheckResponse_ServingStatus {
	var reason error
	switch service {
	case Liveness:
		reason = h.gate.leaving()
	case Overall, Readiness, ExternalProcessor:
		reason = h.gate.Ready()
	default:
		return healthpb.HealthCheckResponse_SERVICE_UNKNOWN
	}
	if reason != nil {
		return healthpb.HealthCheckResponse_NOT_SERVING
	}
	return healthpb.HealthCheckResponse_SERVING
}
