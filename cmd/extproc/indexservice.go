package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"warmroute/index"
	"warmroute/internal/bearer"
	"warmroute/internal/certs"
	"warmroute/internal/indexrpc"
	"warmroute/internal/listen"
)

// IndexServiceConfig is the index over gRPC, for sidecars that report to it and
// for its clients.
type IndexServiceConfig struct {
	Listen    string        `yaml:"listen"`               // gRPC address; "" = off
	TLS       certs.Options `yaml:"tls"`                  // TLS of that address
	TokenFile string        `yaml:"token_file,omitempty"` // file with the bearer token of every call, also to `warm_up.peers`
}

// indexService serves the router's index. Without an address it only counts.
type indexService struct {
	*indexrpc.Server
	c        IndexServiceConfig
	log      *slog.Logger
	listener net.Listener // nil when off
	options  []grpc.ServerOption
	certs    *certs.Source // nil without TLS
}

func newIndexService(c Config, ix *index.Index, cursors func() []index.Cursor, empty func(replica string) bool, log *slog.Logger) indexService {
	return indexService{Server: indexrpc.New(ix, indexrpc.Options{TTL: c.Index.ReplicaTTL, Cursors: cursors, Empty: empty}), c: c.IndexService, log: log}
}

// open takes the address and reads the files, so that a mistake in them
// is an error at the start.
func (s *indexService) open() (err error) {
	c := s.c
	if c.Listen == "" {
		return nil
	}
	s.options = append(lasting(), grpc.MaxRecvMsgSize(maxReport))
	if c.TLS.Enabled() {
		if s.certs, err = certs.New(c.TLS, s.log); err != nil {
			return fmt.Errorf("index_service.tls.%w", err)
		}
		s.options = append(s.options, grpc.Creds(s.certs.Credentials()))
	}
	if c.TokenFile != "" {
		token, err := bearer.File(c.TokenFile)
		if err != nil {
			return fmt.Errorf("index_service.%w", err)
		}
		s.options = append(s.options, indexrpc.Guarded(token)...)
	}
	if s.listener, err = listen.TCP(c.Listen, maxSidecars); err != nil {
		return fmt.Errorf("index_service: %w", err)
	}
	return nil
}

// Run serves until ctx ends, calls under way included. If the service breaks, the
// router is not ready, but answers requests.
func (s *indexService) Run(ctx context.Context) error {
	if s.listener == nil {
		return nil
	}
	s.log.Info("serving the index", "listen", s.listener.Addr().String())
	return together(ctx, s.certs.Run, func(ctx context.Context) error {
		err := s.Serve(ctx, s.listener, s.options...)
		if err != nil {
			s.log.Error("the index service has ended", "error", err)
		}
		return err
	})
}

// maxSidecars bounds the connections of the index service: one for each replica of
// the largest fleet, and other routers'.
const maxSidecars = 4096 + 256

// maxReport exceeds every report of a sidecar (about 400 KB). grpc-go receives as
// much by default.
const maxReport = 4 << 20

// ready returns the reason why the service cannot answer, nil when it can or is
// off.
func (s *indexService) ready() error {
	if s.listener == nil || s.Ready() {
		return nil
	}
	return errors.New("the index service is not serving")
}
