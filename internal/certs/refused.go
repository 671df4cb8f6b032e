package certs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"
)

// refusedFor is how long a handshake that failed is named: an Envoy that waits longest tries again
// after 30 s.
const refusedFor = time.Minute

// refusal is a handshake that failed.
type refusal struct {
	from, why string
	at        time.Time
}

// Credentials is Server for a gRPC server, which says nothing of handshakes that fail: here the log
// and Refused do.
func (s *Source) Credentials() credentials.TransportCredentials {
	return watched{credentials.NewTLS(s.Server("h2")), s}
}

type watched struct {
	credentials.TransportCredentials
	of *Source
}

func (w watched) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := w.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		w.of.refused(conn.RemoteAddr().String(), err)
	}
	return secured, info, err
}

func (w watched) Clone() credentials.TransportCredentials {
	return watched{w.TransportCredentials.Clone(), w.of}
}

// refused keeps a handshake that failed, but not for a client that left or said nothing, as probes do.
func (s *Source) refused(addr string, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrDeadlineExceeded) {
		return
	}
	host, _, _ := net.SplitHostPort(addr)
	now := &refusal{from: host, why: fmt.Sprintf("%.300s", err.Error()), at: s.now()}
	if before := s.last.Swap(now); before == nil || now.at.Sub(before.at) > refusedFor {
		s.log.Warn("a TLS handshake failed", "client", host, "error", now.why)
	}
}

// Refused says, for people, which client of a section's port could not connect of late.
func (s *Source) Refused(section string) []string {
	if s == nil {
		return nil
	}
	last := s.last.Load()
	if last == nil || s.now().Sub(last.at) > refusedFor {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s could not connect: %s", section, last.from, last.why)}
}
