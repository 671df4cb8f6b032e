package main

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// occupied is a listener that counts its open connections.
type occupied struct {
	net.Listener
	open atomic.Int64
}

func (o *occupied) Accept() (net.Conn, error) {
	conn, err := o.Listener.Accept()
	if err != nil {
		return nil, err
	}
	o.open.Add(1)
	return &occupant{Conn: conn, left: sync.OnceFunc(func() { o.open.Add(-1) })}, nil
}

// notes says that nobody is connected.
func (o *occupied) notes() []string {
	if o.open.Load() > 0 {
		return nil
	}
	return []string{fmt.Sprintf("no Envoy is connected to %s, so no request gets a hint; an Envoy connects with its first request", o.Addr())}
}

type occupant struct {
	net.Conn
	left func()
}

func (c *occupant) Close() error {
	c.left()
	return c.Conn.Close()
}

// lookForEnvoys is how often lameDuck looks whether anybody is connected.
const lookForEnvoys = 50 * time.Millisecond

// lameDuck waits for the time in which Envoys notice that the router is not healthy any
// more, or until none is connected.
func lameDuck(most time.Duration, connected func() bool) {
	for end := time.Now().Add(most); time.Now().Before(end) && connected(); {
		time.Sleep(min(lookForEnvoys, time.Until(end)))
	}
}
