package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"warmroute/internal/listen"
)

const (
	headerTimeout   = 5 * time.Second  // for a client to finish its request header
	requestTimeout  = 20 * time.Second // and its body, and for the handler that waits for a replica
	answerTimeout   = time.Minute      // to read the answer
	idleTimeout     = time.Minute      // between two requests of a connection
	scrapeTimeout   = 10 * time.Second // Prometheus' own default
	shutdownTimeout = 5 * time.Second  // for answers in flight; a profile may be cut
	maxScrapes      = 4                // at once; more wait for nothing and get 503
	maxConnections  = 64               // at once; more wait in the kernel
	maxHeader       = 64 << 10         // bytes
)

// Options are the address and the content of the server.
type Options struct {
	Listen   string                  // "host:port"; port 0 takes a free one
	Pprof    bool                    // serve /debug/pprof/
	Ready    func() error            // why the binary cannot serve, nil when it can; nil func: always ready
	Notes    func() []string         // problems that do not prevent serving, listed next to "ready"; nil func: none
	Metrics  prometheus.Gatherer     // nil: no /metrics
	Handlers map[string]http.Handler // by pattern of http.ServeMux, e.g. "GET /explain"; they need the token
	Static   map[string]http.Handler // files that are the same in every router, by pattern; they need no token
	Query    map[string][]string     // the query parameters of a handler, by its pattern; any other is a 400
	Access   Access                  // who may use the handlers and the profiles
	Logger   *slog.Logger            // nil: no log
}

// Server is a listening admin server; make it with Listen.
type Server struct {
	listener net.Listener
	http     *http.Server
}

// Listen takes the address, so that a used port is an error at once, and prepares
// the server. Serve it with Run, or release the address with Close.
func Listen(o Options) (*Server, error) {
	mux, err := o.mux()
	if err != nil {
		return nil, err
	}
	l, err := listen.TCP(o.Listen, maxConnections)
	if err != nil {
		return nil, err
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Server{listener: l, http: &http.Server{
		Handler:           o.browsers(mux),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}}, nil
}

// Addr returns the address listened on, "ip:port".
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close releases the address without serving.
func (s *Server) Close() error { return s.listener.Close() }

// Run serves until ctx ends, then waits a few seconds for answers in flight and
// returns nil. An error means that serving failed.
func (s *Server) Run(ctx context.Context) error {
	failed := make(chan error, 1)
	go func() { failed <- s.http.Serve(s.listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(end); err != nil {
		_ = s.http.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// mux builds the routes. A pattern that conflicts is an error, not a panic.
func (o Options) mux() (mux *http.ServeMux, err error) {
	defer func() {
		if p := recover(); p != nil { // ServeMux reports it so
			err = fmt.Errorf("admin: %v", p)
		}
	}()
	mux = http.NewServeMux()
	paths := []string{"/healthz", "/readyz"}
	own := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, asks(nil, h)) }
	own("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok") })
	own("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if o.Ready != nil {
			if err := o.Ready(); err != nil {
				text(w, http.StatusServiceUnavailable, "not ready: "+err.Error())
				return
			}
		}
		said := "ready"
		if o.Notes != nil {
			for _, note := range o.Notes() {
				said += "\nnote: " + note
			}
		}
		text(w, http.StatusOK, said)
	})
	if o.Metrics != nil {
		paths = append(paths, "/metrics")
		mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
			ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout,
		}))
	}
	if o.Pprof {
		paths = append(paths, "/debug/pprof/")
		profile := func(pattern string, h http.HandlerFunc) { mux.Handle(pattern, o.Access.guard(unhurried(h))) }
		profile("GET /debug/pprof/", pprof.Index)
		profile("GET /debug/pprof/cmdline", pprof.Cmdline)
		profile("GET /debug/pprof/profile", pprof.Profile)
		profile("GET /debug/pprof/symbol", pprof.Symbol)
		profile("POST /debug/pprof/symbol", pprof.Symbol)
		profile("GET /debug/pprof/trace", pprof.Trace)
	}
	add := func(pattern string, h http.Handler) {
		paths = append(paths, pattern[strings.IndexByte(pattern, ' ')+1:])
		mux.Handle(pattern, asks(o.Query[pattern], h))
	}
	for pattern, h := range o.Handlers {
		add(pattern, o.Access.guard(h))
	}
	for pattern, h := range o.Static {
		add(pattern, h)
	}
	if slices.Contains(paths, "/") {
		return mux, nil
	}
	slices.Sort(paths)
	index := strings.Join(slices.Compact(paths), "\n")
	own("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, index) })
	return mux, nil
}

// asks passes on only requests whose query has no other parameters: otherwise a
// misspelt parameter would be ignored silently.
func asks(parameters []string, h http.Handler) http.Handler {
	if h == nil {
		return nil // the mux refuses it
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			http.Error(w, "the query cannot be read", http.StatusBadRequest)
			return
		}
		for name, values := range query {
			switch {
			case !slices.Contains(parameters, name) && len(parameters) == 0:
				http.Error(w, fmt.Sprintf("%q is not a parameter; this page has none", name), http.StatusBadRequest)
				return
			case !slices.Contains(parameters, name):
				http.Error(w, fmt.Sprintf("%q is not a parameter; this page has %s", name, strings.Join(parameters, ", ")), http.StatusBadRequest)
				return
			case len(values) > 1:
				http.Error(w, fmt.Sprintf("%s: is given %d times", name, len(values)), http.StatusBadRequest)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// unhurried lets h read longer than other handlers: a profile takes as long as its
// client says.
func unhurried(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // otherwise the body ends early
		h.ServeHTTP(w, r)
	})
}

func text(w http.ResponseWriter, code int, s string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, s+"\n")
}
