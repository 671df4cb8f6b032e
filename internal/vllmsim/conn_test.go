package vllmsim

import (
	"bytes"
	"net"
	"time"
)

// bytesConn is a connection whose peer has said its last word already.
type bytesConn struct {
	net.Conn
	r *bytes.Reader
}

func (c *bytesConn) Read(b []byte) (int, error)  { return c.r.Read(b) }
func (c *bytesConn) Write(b []byte) (int, error) { return len(b), nil }
func (c *bytesConn) SetDeadline(time.Time) error { return nil }
