package main

import (
	"os"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"warmroute/internal/certs"
	"warmroute/internal/extprocwire"
)

const (
	// maxMessage is what grpc-go receives at most. Its default of 4 MiB would cut
	// multimodal bodies; Envoy's own buffer limit is the one to set.
	maxMessage = 256 << 20
	// streamWindow and connWindow let a usual body come in one flight, without
	// window updates and the pings that estimate them; the connection's bounds
	// what one Envoy worker can have under way.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
	// pingEvery is how often Envoy may ping a connection: twice as often as
	// configured there. By default grpc-go allows a ping in five minutes and
	// ends the connection, with every stream on it, at the third that comes sooner.
	pingEvery = 500 * time.Millisecond
	// ioBuffer holds a few messages of one connection.
	ioBuffer = 64 << 10
	// gcPercent is GOGC where the environment does not set it or a memory limit:
	// the tokenizers' tables are most of the live heap, and marking them is half
	// as dear when it is half as often.
	gcPercent = 200
)

// grpcOptions are those of the server Envoy dials.
func grpcOptions(tls *certs.Source) []grpc.ServerOption {
	options := []grpc.ServerOption{
		grpc.ForceServerCodecV2(extprocwire.NewCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
	}
	if tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tls.Server("h2"))))
	}
	return options
}

// tuneMemory sets what the environment leaves open.
func tuneMemory() {
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
