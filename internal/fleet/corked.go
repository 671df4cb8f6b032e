package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// corked is a connection on which a request's header waits for the first bytes of its body,
// so that most prompts are one packet to the kernel. net/http sends the header in one of its
// own before it reads a body that it does not know to be in memory, and takes new memory to
// copy the body. The callers' bodies are in memory: the wait is short.
type corked struct {
	net.Conn
	head []byte // the header that waits
}

// corks returns a dial function whose connections are corked.
func corks(dial func(context.Context, string, string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &corked{Conn: c}, nil
	}
}

var (
	post, headerEnd, noBody = []byte("POST "), []byte("\r\n\r\n"), []byte("\r\nContent-Length: 0\r\n")

	bodyBuffers = sync.Pool{New: func() any { return new([bodyBuffer]byte) }}
)

// Write implements io.Writer. TLS writes no text that begins as a header.
func (c *corked) Write(p []byte) (int, error) {
	if len(c.head) == 0 {
		if !bytes.HasPrefix(p, post) || !bytes.HasSuffix(p, headerEnd) || bytes.Contains(p, noBody) || len(p) > bodyBuffer/2 {
			return c.Conn.Write(p)
		}
		c.head = append(c.head, p...)
		return len(p), nil
	}
	n, err := c.ReadFrom(bytes.NewReader(p))
	return int(n), err
}

// ReadFrom implements io.ReaderFrom. It returns the number of bytes read.
func (c *corked) ReadFrom(r io.Reader) (n int64, err error) {
	buf := bodyBuffers.Get().(*[bodyBuffer]byte)
	defer bodyBuffers.Put(buf)
	for {
		held := copy(buf[:], c.head)
		k, err := r.Read(buf[held:])
		n += int64(k)
		if k > 0 {
			c.head = c.head[:0]
			if _, err := c.Conn.Write(buf[:held+k]); err != nil {
				return n, err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}
