package certs

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
)

// renewed is a gRPC client's TLS with the files as they are at each connection.
type renewed struct {
	credentials.TransportCredentials // of the files as they were first
	files                            ClientOptions
}

// ClientCredentials returns Client for a gRPC client: it takes the authorities, too, from their file at each
// connection. While a file cannot be used, the first authorities and the previous certificate stay.
func ClientCredentials(o ClientOptions) (credentials.TransportCredentials, error) {
	first, err := Client(o)
	if err != nil {
		return nil, err
	}
	return renewed{credentials.NewTLS(first), o}, nil
}

func (r renewed) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	now := r.TransportCredentials
	if c, err := Client(r.files); err == nil {
		now = credentials.NewTLS(c)
	}
	return now.ClientHandshake(ctx, authority, conn)
}

func (r renewed) Clone() credentials.TransportCredentials {
	return renewed{r.TransportCredentials.Clone(), r.files}
}
