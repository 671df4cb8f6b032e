package main

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"warmroute/internal/certs"
	"warmroute/internal/extprocwire"
)

const (
	// maxMessage is the largest message that grpc-go receives. Its default of 4 MiB
	// would cut multimodal bodies; Envoy's own buffer limit is the one to set.
	maxMessage = 256 << 20
	// streamWindow and connWindow let a usual body come in one flight, without
	// window updates and the pings that estimate them; connWindow bounds the bytes
	// of one Envoy worker under way.
	streamWindow = 1 << 20
	connWindow   = 16 << 20
	// pingEvery is the least time between pings of a connection: half the time
	// configured in Envoy. By default grpc-go allows a ping in five minutes and
	// ends the connection, with every stream on it, at the third that comes sooner.
	pingEvery = 500 * time.Millisecond
	// maxEnvoys bounds the connections of the port for Envoy: two or three for each
	// worker of each Envoy, and health checks.
	maxEnvoys = 1024
	// handshake is how long a new connection may take to speak HTTP/2.
	handshake = 5 * time.Second
	// askAfter is how long a client may send nothing before it must answer a ping,
	// within askFor: so a client that is gone holds no connection.
	askAfter = 30 * time.Second
	askFor   = 10 * time.Second
	// ioBuffer holds a few messages of one connection.
	ioBuffer = 64 << 10
)

// grpcOptions are the options of the server that Envoy dials.
func grpcOptions(tls *certs.Source) []grpc.ServerOption {
	options := append(lasting(),
		grpc.ForceServerCodecV2(extprocwire.NewCodec()),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.InitialWindowSize(streamWindow), grpc.InitialConnWindowSize(connWindow),
		grpc.ReadBufferSize(ioBuffer), grpc.WriteBufferSize(ioBuffer),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingEvery, PermitWithoutStream: true}),
	)
	if tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(tls.Server("h2"))))
	}
	return options
}

// lasting bounds the life of an unused connection.
func lasting() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ConnectionTimeout(handshake), grpc.KeepaliveParams(keepalive.ServerParameters{Time: askAfter, Timeout: askFor}),
	}
}
