package filter

import (
	"errors"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	modev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"warmroute/internal/decision"
)

// ServerOptions configures a Server.
type ServerOptions struct {
	PathPrefixes   []string      // that may stand before the routes of the API, like "/openai"
	TenantHeader   string        // trusted request header with the tenant, lower case; "" = every request is shared
	PriorityHeader string        // trusted request header with a whole number: above 0, the request is never shed for load; lower case, "" = nobody has priority
	MaxBody        int           // bytes of a body that are looked at; default 64 MiB
	BodyWait       time.Duration // duplex mode: longest wait for a body; default 5 s
	MaxStreams     int           // requests followed at once, the others pass without a hint; default 8192
	ReasonHeader   bool          // answer response headers with the reason
	Picker         bool          // endpoint-picker mode: 503 when nothing is ready, 429 when everything is saturated
	AlwaysPick     bool          // name a replica even where there is nothing to judge by
	Log            *slog.Logger  // nil: no log
}

func (o ServerOptions) withDefaults() ServerOptions {
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	if o.BodyWait == 0 {
		o.BodyWait = 5 * time.Second
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 8192 // 32 replicas with 256 sequences each
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Server answers Envoy's external processing streams
// (envoy.service.ext_proc.v3.ExternalProcessor).
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	router *Router
	o      atomic.Pointer[ServerOptions]
	open   atomic.Int64 // streams
	joined sync.Pool    // *[]byte, bodies put together from chunks
}

// NewServer returns a server that asks router.
func NewServer(router *Router, o ServerOptions) *Server {
	s := &Server{router: router}
	s.Set(o)
	return s
}

// Set replaces the options, for requests that come from now on.
func (s *Server) Set(o ServerOptions) {
	o = o.withDefaults()
	s.o.Store(&o)
}

// Process follows one HTTP request. It returns nil however the stream ends:
// there is nobody to report an aborted request to. Only a defect of ours is an
// error, so that Envoy's failure_mode_allow takes over.
func (s *Server) Process(ss extprocv3.ExternalProcessor_ProcessServer) (err error) {
	s.router.metrics.streams.Inc()
	defer s.router.metrics.streams.Dec()
	st := s.stream(modev3.ProcessingMode_BUFFERED)
	st.crowded = s.open.Add(1) > int64(st.o.MaxStreams)
	defer s.open.Add(-1)
	defer st.close()
	defer s.contain(st, &err)
	var out []*response
	for {
		m, err := ss.Recv()
		if err != nil {
			return nil
		}
		if out, err = s.answer(ss, st, m, out); err != nil {
			return nil
		}
		if st.crowded && !st.duplex() {
			return nil // Envoy goes on by itself, without the body's way through here
		}
		if st.duplex() && !st.decided {
			if err := s.await(ss, st); err != nil {
				return nil
			}
		}
	}
}

// stream is the state of a new request.
func (s *Server) stream(mode modev3.ProcessingMode_BodySendMode) *stream {
	return &stream{srv: s, o: s.o.Load(), mode: mode}
}

// contain turns a panic into the end of its stream: a defect in following one
// request must not end the process that follows all others.
func (s *Server) contain(st *stream, err *error) {
	p := recover()
	if p == nil {
		return
	}
	if st.ours && !st.decided {
		st.d, st.decided = s.router.Skip(&st.q, decision.ReasonPanic), true
	}
	s.router.metrics.panics.Inc()
	st.o.Log.Error("filter: stream panicked", "panic", panicKind(p), "stack", string(debug.Stack())) // a stack holds addresses, no text
	*err = status.Error(codes.Internal, "contained defect")
}

// answer lets the stream take a step and sends what comes of it, in the memory
// of out.
func (s *Server) answer(ss extprocv3.ExternalProcessor_ProcessServer, st *stream, m *request, out []*response) ([]*response, error) {
	start := s.router.o.Now()
	out = st.step(ss.Context(), m, out[:0])
	err := sendAll(ss, out)
	st.spent += s.router.o.Now().Sub(start)
	return out, err
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
	timer := time.NewTimer(st.o.BodyWait)
	defer timer.Stop()
	var out []*response
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return errStream
			}
			var err error
			if out, err = s.answer(ss, st, m, out); err != nil {
				return errStream
			}
		case <-timer.C:
			out = st.expire(out[:0])
			if err := sendAll(ss, out); err != nil {
				return errStream
			}
		}
	}
}

// join puts chunks together in pooled memory; done gives it back.
func (s *Server) join(chunks [][]byte) (body []byte, done func()) {
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

// refusal is the HTTP status a decision without a hint means in picker mode.
func (o *ServerOptions) refusal(reason decision.Reason) (typev3.StatusCode, bool) {
	if !o.Picker {
		return 0, false
	}
	switch reason {
	case decision.ReasonNotReady, decision.ReasonEmptySubset:
		return typev3.StatusCode_ServiceUnavailable, true
	case decision.ReasonSaturated:
		return typev3.StatusCode_TooManyRequests, true
	}
	return 0, false
}
