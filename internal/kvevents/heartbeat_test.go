package kvevents

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zeromq/zmq4"

	"warmroute/render/testkit/must"
)

// TestSilence: a connection that carries nothing is lost within seconds if its peer speaks
// ZMTP 3.1 and does not answer a PING. Answers, messages and older peers keep it.
func TestSilence(t *testing.T) {
	message := []byte{flagMore, 1, 't', 0, 2, 'o', 'k'}
	cases := map[string]struct {
		minor   byte
		answers time.Duration // how long the peer answers PINGs
		every   time.Duration // how often it publishes; 0: never
		partial []byte        // sent before it falls silent
		lost    bool
		pings   bool
	}{
		"never answers":       {minor: 1, lost: true, pings: true},
		"answers for an hour": {minor: 1, answers: time.Hour, lost: true, pings: true},
		"half a frame":        {minor: 1, partial: message[:5], lost: true, pings: true},
		"publishes":           {minor: 1, every: heartbeatEvery / 4},
		"publishes slowly":    {minor: 1, every: time.Minute, answers: 100 * time.Hour, pings: true},
		"newer":               {minor: 2, lost: true, pings: true},
		"ZMTP 3.0":            {minor: 0},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				near, far := net.Pipe()
				go func() {
					far.Write(append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, c.minor, 'N', 'U', 'L', 'L'}, make([]byte, 48)...))
					far.Write([]byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"))
				}()
				var pings atomic.Int32
				began := time.Now()
				go func() { // reads what the subscriber sends, and answers
					buf := make([]byte, 256)
					for {
						n, err := far.Read(buf)
						if err != nil {
							return
						}
						if bytes.Contains(buf[:n], []byte("PING")) {
							pings.Add(1)
							if time.Since(began) < c.answers {
								go far.Write([]byte("\x04\x05\x04PONG"))
							}
						}
					}
				}()
				conn := must.Get(handshake(ctx, near, zmq4.Sub, NewRoom().live))(t)
				stop := make(chan struct{})
				go func() {
					far.Write(c.partial)
					for c.every > 0 {
						select {
						case <-time.After(c.every):
							far.Write(message)
						case <-stop:
							return
						}
					}
				}()
				time.AfterFunc(2*time.Hour, cancel) // ends the wait
				var failed error
				for failed == nil {
					_, _, failed = conn.recv()
				}
				took := time.Since(began)
				close(stop)
				switch {
				case c.lost && (!errors.Is(failed, errSilent) || took > c.answers+10*time.Second):
					t.Errorf("lost after %v: %v; want silence within seconds of the last answer", took, failed)
				case !c.lost && took < 2*time.Hour:
					t.Errorf("lost after %v: %v; want never", took, failed)
				case (pings.Load() > 0) != c.pings:
					t.Errorf("%d PINGs, want some: %v", pings.Load(), c.pings)
				}
				cancel()
				conn.close()
				far.Close()
				io.Copy(io.Discard, far)
			})
		})
	}
}
