package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"google.golang.org/grpc"

	"warmroute/internal/indexrpc"
)

// IndexServiceConfig is the index over gRPC, for sidecars that report to it and
// for whoever asks it.
type IndexServiceConfig struct {
	Listen string `yaml:"listen"` // "" = off; loopback unless changed: it has no authentication
}

// indexService serves the router's index. Without an address it only counts.
type indexService struct {
	*indexrpc.Server
	listener net.Listener // nil when off
}

// listen takes the address, so that a taken port is an error at the start.
func (s *indexService) listen(c IndexServiceConfig) error {
	if c.Listen == "" {
		return nil
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("index_service: %w", err)
	}
	s.listener = l
	return nil
}

// run serves until ctx ends, calls under way included. A service that breaks
// leaves the router not ready, but requests are still answered.
func (s *indexService) run(ctx context.Context, log *slog.Logger) error {
	if s.listener == nil {
		return nil
	}
	log.Info("serving the index", "listen", s.listener.Addr().String())
	err := s.Serve(ctx, s.listener, grpc.MaxRecvMsgSize(maxReport))
	if err != nil {
		log.Error("the index service has ended", "error", err)
	}
	return err
}

// maxReport is more than any report of a sidecar (about 400 KB) and what
// grpc-go receives by default.
const maxReport = 4 << 20

// ready is why the service cannot answer, nil when it can or is off.
func (s *indexService) ready() error {
	if s.listener == nil || s.Ready() {
		return nil
	}
	return errors.New("the index service is not serving")
}
