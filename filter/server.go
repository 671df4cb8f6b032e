package filter

import (
	"cmp"
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
	"warmroute/internal/extprocwire"
)

// ServerOptions configures a Server.
type ServerOptions struct {
	PathPrefixes   []string      // paths before the API's routes, like "/openai"
	TenantHeader   string        // trusted request header with the tenant, lower case; "" = every request is shared
	PriorityHeader string        // trusted request header with a whole number: above 0, the request is never shed for load; lower case, "" = no request has priority
	MaxBody        int           // bytes of a body that are read; default 64 MiB
	BodyWait       time.Duration // duplex mode: longest wait for a body; in every mode: how long a request without its body counts; default 5 s
	MaxBodies      int64         // bytes of all bodies that are worked on or held at once, the others pass without a hint; at least twice MaxBody and SmallShare; default 1 GiB
	MaxStreams     int           // requests followed at once, the others pass without a hint; those that wait for their body longer than BodyWait do not count; default 8192
	ReasonHeader   bool          // answer response headers with the reason
	Picker         bool          // endpoint-picker mode: 503 when nothing is ready, 429 when everything is saturated
	AlwaysPick     bool          // name a replica even without a match to compare; Trial must be its zero value
	Trial          Trial         // which requests pass without their hint
	Split          SplitOptions  // how the prompt of one replica gets to another
	Hold           HoldOptions   // how requests wait for their turn
	Log            *slog.Logger  // nil: no log
}

func (o ServerOptions) withDefaults() ServerOptions {
	o.MaxBody, o.MaxBodies = cmp.Or(o.MaxBody, 64<<20), cmp.Or(o.MaxBodies, 1<<30)
	o.BodyWait = cmp.Or(o.BodyWait, 5*time.Second)
	o.MaxStreams = cmp.Or(o.MaxStreams, 8192) // 32 replicas with 256 sequences each
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// Server answers Envoy's external processing streams
// (envoy.service.ext_proc.v3.ExternalProcessor).
type Server struct {
	extprocv3.UnimplementedExternalProcessorServer
	router *Router
	o      atomic.Pointer[ServerOptions]
	crowd  crowd
	joined sync.Pool // *[]byte, bodies put together from chunks

	drain   sync.Once
	drained chan struct{} // closed by Drain

	least atomic.Pointer[grant] // of an Envoy that waits too short for held requests; nil: none does
}

// NewServer returns a server that decides with router.
func NewServer(router *Router, o ServerOptions) *Server {
	s := &Server{router: router, drained: make(chan struct{})}
	s.Set(o)
	return s
}

// Set replaces the options for later requests.
func (s *Server) Set(o ServerOptions) {
	o = o.withDefaults()
	s.o.Store(&o)
	s.least.Store(nil)
}

// Process follows one HTTP request. It returns nil however the stream ends: an
// aborted request has no reader for an error. Only a defect here is an error, so
// that Envoy's failure_mode_allow takes over.
func (s *Server) Process(ss extprocv3.ExternalProcessor_ProcessServer) (err error) {
	deepen(0)
	s.router.metrics.streams.Inc()
	defer s.router.metrics.streams.Dec()
	mem := memories.Get().(*memory)
	st := s.stream(modev3.ProcessingMode_BUFFERED, &mem.hint)
	st.overLimit = !s.crowd.enter(&st.place, st.o, s.router.o.Now())
	defer mem.recycle(st)
	defer st.close()
	defer s.contain(st, &err)
	for {
		if err := ss.RecvMsg(&mem.in); err != nil {
			return nil
		}
		if err := s.answer(ss, st, mem); err != nil {
			return nil
		}
		if st.leg != nil {
			if err := s.finish(ss, st); err != nil {
				return nil
			}
		}
		if st.holding != nil {
			if err := s.finishHeld(ss, st); err != nil {
				return nil
			}
		}
		if st.leaves() {
			return nil
		}
	}
}

// memory holds a stream's messages and answers; later streams reuse it.
type memory struct {
	in   extprocwire.Incoming
	hint hint
	out  []*response
}

var memories = sync.Pool{New: func() any { return new(memory) }}

// recycle gives the memory of an ended stream to a later one.
func (m *memory) recycle(st *stream) {
	st.hint = nil
	m.in.Clear()
	clear(m.out[:cap(m.out)])
	memories.Put(m)
}

// stream returns the state of a new request.
func (s *Server) stream(mode modev3.ProcessingMode_BodySendMode, h *hint) *stream {
	o := s.o.Load()
	h.metadata.withoutClient, h.metadata.splice = !o.ReasonHeader, splice{}
	h.sidecar = o.Split.Transport == TransportHeader
	return &stream{srv: s, o: o, modes: modes{mode: mode}, hint: h}
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

// answer runs one step of the stream on the received message, and sends the
// answers.
func (s *Server) answer(ss extprocv3.ExternalProcessor_ProcessServer, st *stream, mem *memory) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	start := s.router.o.Now()
	mem.out = st.step(ss.Context(), &mem.in.ProcessingRequest, mem.out[:0])
	err := sendAll(ss, mem.out)
	st.spent += s.router.o.Now().Sub(start)
	if st.duplex() && !st.decided && st.late == nil {
		st.late = time.AfterFunc(st.o.BodyWait, func() { s.expire(ss, st) })
	}
	return err
}

func sendAll(ss extprocv3.ExternalProcessor_ProcessServer, out []*response) error {
	for _, r := range out {
		if err := ss.Send(r); err != nil {
			return err
		}
	}
	return nil
}

// expire ends the wait for a duplex stream's body: Envoy applies no message timeout
// in that mode, so the router bounds the wait. Process, which waits for a message,
// cannot return a defect's error then; the request ends as Envoy would end it on
// that error.
func (s *Server) expire(ss extprocv3.ExternalProcessor_ProcessServer, st *stream) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.closed {
		return
	}
	var defect error
	defer func() {
		if defect != nil {
			_ = ss.Send(immediate(typev3.StatusCode_InternalServerError, decision.ReasonPanic))
		}
	}()
	defer s.contain(st, &defect)
	_ = sendAll(ss, st.expire(nil)) // when sending fails, Process gets the error, too
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

// refusal returns the HTTP status of a decision without a hint in picker mode.
// A request that a trial leaves to Envoy is not refused; a request that opted out is, or
// clients could escape the limit of load.
func (o *ServerOptions) refusal(reason decision.Reason, withheld decision.Withheld) (typev3.StatusCode, bool) {
	if !o.Picker || withheld.InTrial() {
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
