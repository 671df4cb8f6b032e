package testenv

import (
	"fmt"
	"io"
	"net"
	"sync"
)

// Gate is a TCP port before another one that can be closed, with every
// connection through it, and opened again.
type Gate struct {
	Addr string // of the port
	to   string

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]bool
	wg       sync.WaitGroup
}

// NewGate returns an open gate on a free port of the loopback interface.
func NewGate(to string) (*Gate, error) {
	ports, err := FreePorts(1)
	if err != nil {
		return nil, err
	}
	g := &Gate{Addr: fmt.Sprint("127.0.0.1:", ports[0]), to: to}
	return g, g.Open()
}

// Open lets later connections through.
func (g *Gate) Open() error {
	l, err := net.Listen("tcp", g.Addr)
	if err != nil {
		return fmt.Errorf("testenv: open a gate: %w", err)
	}
	g.mu.Lock()
	g.listener, g.conns = l, map[net.Conn]bool{}
	g.mu.Unlock()
	g.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d, err := net.Dial("tcp", g.to)
			if err != nil {
				c.Close()
				continue
			}
			g.wg.Go(func() { g.pipe(l, c, d) })
			g.wg.Go(func() { g.pipe(l, d, c) })
		}
	})
	return nil
}

func (g *Gate) pipe(l net.Listener, from, to net.Conn) {
	defer to.Close()
	defer from.Close()
	g.mu.Lock()
	open := g.listener == l
	if open {
		g.conns[from] = true
	}
	g.mu.Unlock()
	if open {
		_, _ = io.Copy(to, from)
	}
}

// Close refuses connections from now on and breaks the open ones.
func (g *Gate) Close() {
	g.mu.Lock()
	if g.listener != nil {
		g.listener.Close()
	}
	g.listener = nil
	for c := range g.conns {
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}
