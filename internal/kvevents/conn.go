package kvevents

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

const (
	// dialTimeout bounds connecting and the ZMTP handshake, each. A replica that does
	// not answer within it is tried again.
	dialTimeout = 2 * time.Second
	// messageLimit bounds one ZeroMQ message. The largest batch a scheduler step
	// can publish is a few MB (a million token ids at five bytes each).
	messageLimit = 16 << 20
	// handshakeLimit bounds a handshake. A socket's properties take some hundred bytes.
	handshakeLimit = 64 << 10
	// frameCost is charged per frame in addition to its bytes, so that endless empty
	// frames reach messageLimit too.
	frameCost = 64
)

var (
	errMessageTooLarge   = fmt.Errorf("message above %d MiB", messageLimit>>20)
	errHandshakeTooLarge = fmt.Errorf("malformed handshake: above %d KiB, or a message of more than %d MiB", handshakeLimit>>10, messageLimit>>20)
)

// conn is one ZMTP connection. It does not use zmq4's own sockets: these stop
// reconnecting when a handshake fails once, wait for a handshake without end, and
// allocate any size that a frame's header claims.
type conn struct {
	z   *zmq4.Conn
	raw net.Conn
	in  *guarded
}

// dial connects to a tcp:// or ipc:// endpoint and shakes hands. The connection closes
// when ctx ends. It reads no more than room has room for.
func dial(ctx context.Context, endpoint string, kind zmq4.SocketType, room *Room) (c *conn, err error) {
	network, address, err := splitEndpoint(endpoint)
	if err != nil {
		return nil, err
	}
	d := net.Dialer{
		Timeout: dialTimeout,
		// The probes notice a host that vanishes without a word in 30 s.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
	raw, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	in := newGuarded(ctx, raw, room)
	closing := &closer{Conn: in, stop: stop}
	defer func() {
		// zmq4 indexes the peer's handshake metadata unchecked.
		if r := recover(); r != nil {
			err = errors.New("malformed handshake")
		}
		if err != nil {
			closing.Close()
			c, err = nil, fmt.Errorf("%s: %w", endpoint, err)
		}
	}()
	if err := raw.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	// The protocol's default security and no identity: the peer makes one up.
	z, err := zmq4.Open(closing, null.Security(), kind, nil, false, nil)
	if err != nil {
		return nil, err
	}
	in.open, in.total = true, 0
	return &conn{z: z, raw: closing, in: in}, raw.SetDeadline(time.Time{})
}

// splitEndpoint splits "tcp://host:port" or "ipc://path" for net.Dial.
func splitEndpoint(endpoint string) (network, address string, err error) {
	scheme, rest, ok := strings.Cut(endpoint, "://")
	switch {
	case ok && scheme == "ipc" && rest != "":
		return "unix", rest, nil
	case ok && scheme == "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			return "", "", fmt.Errorf("endpoint %q: %w", endpoint, err)
		}
		if host == "" || host == "*" || port == "" || port == "*" {
			return "", "", fmt.Errorf("endpoint %q: a host and a port to connect to are needed, not a wildcard to bind", endpoint)
		}
		return "tcp", rest, nil
	}
	return "", "", fmt.Errorf("endpoint %q: want tcp://host:port or ipc://path", endpoint)
}

// recv returns the next message's frames, and the room that they take until the caller
// gives it back. zmq4 answers commands (heartbeats); recv skips them.
func (c *conn) recv() (frames [][]byte, taken int64, err error) {
	for {
		m, err := c.z.RecvMsg()
		if err != nil {
			return nil, 0, err
		}
		if m.Type == zmq4.UsrMsg {
			taken, c.in.taken = c.in.taken, 0
			return m.Frames, taken, nil
		}
		c.in.giveBack()
	}
}

func (c *conn) send(frames ...[]byte) error { return c.z.SendMsg(zmq4.NewMsgFrom(frames...)) }

// patience bounds the wait for the next message; zero waits for ever.
func (c *conn) patience(d time.Duration) error {
	var t time.Time
	if d > 0 {
		t = time.Now().Add(d)
	}
	return c.raw.SetReadDeadline(t)
}

// close closes the connection. Only the goroutine that reads calls it.
func (c *conn) close() {
	c.raw.Close()
	c.in.giveBack()
}

// closer also ends the watch over the context.
type closer struct {
	net.Conn
	stop func() bool
}

func (c *closer) Close() error {
	c.stop()
	return c.Conn.Close()
}

// guarded reads through a buffer (zmq4 reads headers of two bytes) and follows the ZMTP
// 3.0 framing, to refuse a message above messageLimit before memory is taken for it.
type guarded struct {
	net.Conn
	r     *bufio.Reader
	head  [9]byte // flags and length, 2 or 9 bytes
	have  int     // known bytes of head
	left  uint64  // body bytes still to come
	total uint64  // of the message under way

	ctx   context.Context // of the connection
	room  *Room
	open  bool  // the handshake is over
	taken int64 // of room, for messages that recv has not returned yet
}

const (
	greetingSize = 64 // ZMTP 3.0: unframed, first on the wire
	flagMore     = 0x01
	flagLong     = 0x02
)

func newGuarded(ctx context.Context, raw net.Conn, room *Room) *guarded {
	// 4 KiB: the short frames of a message in one system call. Longer frames are read
	// past the buffer, so a larger one would only take memory.
	return &guarded{Conn: raw, r: bufio.NewReaderSize(raw, 4<<10), left: greetingSize, ctx: ctx, room: room}
}

// giveBack gives back the room of messages that recv has not returned.
func (g *guarded) giveBack() {
	g.room.give(g.taken)
	g.taken = 0
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if e := g.watch(p[:n]); e != nil {
		return 0, e
	}
	return n, err
}

// admit takes room for a frame before it is read. A handshake has a limit of its own
// and takes none.
func (g *guarded) admit(size, cost uint64) error {
	limit, refusal := uint64(messageLimit), errMessageTooLarge
	if !g.open {
		limit, refusal = handshakeLimit, errHandshakeTooLarge
	}
	if size > limit || g.total+cost > limit {
		return refusal
	}
	g.total += cost
	if !g.open {
		return nil
	}
	if err := g.room.take(g.ctx, int64(cost)); err != nil {
		return err
	}
	g.taken += int64(cost)
	return nil
}

func (g *guarded) watch(b []byte) error {
	for len(b) > 0 {
		if g.left > 0 {
			k := min(g.left, uint64(len(b)))
			g.left -= k
			b = b[k:]
			continue
		}
		g.head[g.have] = b[0]
		g.have++
		b = b[1:]
		long := g.head[0]&flagLong != 0
		if g.have < 2 || long && g.have < 9 {
			continue
		}
		size := uint64(g.head[1])
		if long {
			size = 0
			for _, x := range g.head[1:9] {
				size = size<<8 | uint64(x)
			}
		}
		if err := g.admit(size, size+frameCost); err != nil {
			return err
		}
		if g.head[0]&flagMore == 0 {
			g.total = 0
		}
		g.left, g.have = size, 0
	}
	return nil
}
