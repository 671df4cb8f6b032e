package publisher

import (
	"bytes"
	"net"
	"testing"
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

// FuzzZMTP wants the connection code to survive any bytes a peer sends.
func FuzzZMTP(f *testing.F) {
	greeting := make([]byte, 64)
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	ready := append(bytes.Clone(greeting), 4, 6, 5, 'R', 'E', 'A', 'D', 'Y')
	f.Add(append(bytes.Clone(ready), 0, 1, 1))
	f.Add(append(bytes.Clone(ready), 1, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1))
	f.Add(append(bytes.Clone(ready), 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, data []byte) {
		z, err := acceptZMTP(&bytesConn{r: bytes.NewReader(data)}, "ROUTER")
		for err == nil {
			_, err = z.receive()
		}
	})
}
