package filter

import (
	"errors"
	"sync"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
)

// ServerOptions configures a Server.
type ServerOptions struct {
	TenantHeader string        // trusted request header with the tenant, lower case; "" = every request is shared
	MaxBody      int           // bytes of a body that are looked at; default 64 MiB
	BodyWait     time.Duration // duplex mode: longest wait for a body; default 5 s
	ReasonHeader bool          // answer response headers with the reason
	Picker       bool          // endpoint-picker mode: 503 when nothing is ready
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	if o.BodyWait == 0 {
		o.BodyWait = 5 * time.Second
	}
	return o
}

// Server answers Envoy's external processing streams
// (envoy.service.ext_proc.v3.ExternalProcessor).
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	router *Router
	o      ServerOptions
	joined sync.Pool // *[]byte, bodies put together from chunks
}

// NewServer returns a server that asks router.
func NewServer(router *Router, o ServerOptions) *Server {
	return &Server{router: router, o: o.withDefaults()}
}

// Process follows one HTTP request. It returns nil however the stream ends:
// there is nobody to report an aborted request to.
func (s *Server) Process(ss extprocv3.ExternalProcessor_ProcessServer) error {
	s.router.metrics.streams.Inc()
	defer s.router.metrics.streams.Dec()
	st := &stream{srv: s, mode: modev3.ProcessingMode_BUFFERED}
	defer st.close()
	var out []*response
	for {
		m, err := ss.Recv()
		if err != nil {
			return nil
		}
		out = st.step(ss.Context(), m, out[:0])
		if err := sendAll(ss, out); err != nil {
			return nil
		}
		if st.duplex() && !st.decided {
			if err := s.await(ss, st); err != nil {
				return nil
			}
		}
	}
}

func sendAll(ss extprocv3.ExternalProcessor_ProcessServer, out []*response) error {
	for _, r := range out {
		if err := ss.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// errStream says that the stream is over.
var errStream = errors.New("filter: stream ended")

// await receives a duplex stream's messages until its decision is made, at most
// BodyWait: Envoy applies no message timeout in that mode, so the bound is ours.
func (s *Server) await(ss extprocv3.ExternalProcessor_ProcessServer, st *stream) error {
	messages := make(chan *request)
	go func() {
		defer close(messages)
		for {
			m, err := ss.Recv()
			if err != nil {
				return
			}
			select {
			case messages <- m:
			case <-ss.Context().Done():
				return
			}
		}
	}()
	timer := time.NewTimer(s.o.BodyWait)
	defer timer.Stop()
	var out []*response
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return errStream
			}
			out = st.step(ss.Context(), m, out[:0])
		case <-timer.C:
			out = st.expire(out[:0])
		}
		if err := sendAll(ss, out); err != nil {
			return errStream
		}
	}
}

// join puts chunks together in pooled memory; done gives it back.
func (s *Server) join(chunks [][]byte, size int) (body []byte, done func()) {
	if len(chunks) == 1 {
		return chunks[0], func() {}
	}
	buf, _ := s.joined.Get().(*[]byte)
	if buf == nil {
		buf = new([]byte)
	}
	*buf = (*buf)[:0]
	for _, c := range chunks {
		*buf = append(*buf, c...)
	}
	return *buf, func() { s.joined.Put(buf) }
}

// status is the HTTP status a decision without a hint means in picker mode.
func (s *Server) status(reason Reason) (typev3.StatusCode, bool) {
	if !s.o.Picker {
		return 0, false
	}
	switch reason {
	case ReasonNotReady, ReasonEmptySubset:
		return typev3.StatusCode_ServiceUnavailable, true
	case ReasonSaturated:
		return typev3.StatusCode_TooManyRequests, true
	}
	return 0, false
}

// Skip records a request that is not judged, and why.
func (r *Router) Skip(q *Query, reason Reason) Decision {
	s := r.scratch.Get().(*scratch)
	defer r.scratch.Put(s)
	s.rec.reset()
	s.rec.ID, s.rec.At, s.rec.Tenant, s.rec.Reason = q.ID, r.o.Now(), q.Tenant, reason
	if reason != ReasonNotOurs {
		s.rec.Route = q.Route.String()
		r.ring.Put(&s.rec)
	}
	r.metrics.decided(&s.rec)
	return Decision{Reason: reason}
}

// Served takes notice of the endpoint that really served a request.
func (r *Router) Served(d *Decision, addr string) {
	r.metrics.served(d, addr)
}
