package kvevents

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
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
	z  *zmq4.Conn
	in *guarded
}

// dial connects to a tcp:// or ipc:// endpoint and shakes hands. The connection closes
// when ctx ends. It reads no more than room allows.
func dial(ctx context.Context, endpoint string, kind zmq4.SocketType, room share) (c *conn, err error) {
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
	if c, err = handshake(ctx, raw, kind, room); err != nil {
		return nil, fmt.Errorf("%s: %w", endpoint, err)
	}
	return c, nil
}

// handshake opens a connection over raw, and closes raw if that fails.
func handshake(ctx context.Context, raw net.Conn, kind zmq4.SocketType, room share) (c *conn, err error) {
	in := newGuarded(ctx, raw, room)
	defer func() {
		// zmq4 indexes the peer's handshake metadata unchecked.
		if r := recover(); r != nil {
			err = errors.New("malformed handshake")
		}
		if err != nil {
			in.Close()
			c = nil
		}
	}()
	if err := raw.SetDeadline(time.Now().Add(dialTimeout)); err != nil {
		return nil, err
	}
	// The protocol's default security and no identity: the peer makes one up.
	z, err := zmq4.Open(in, null.Security(), kind, nil, false, nil)
	if err != nil {
		return nil, err
	}
	in.open, in.total = true, 0
	// Peers of ZMTP 3.0 need not answer a PING, so their silence proves nothing. Replays have
	// deadlines of their own.
	in.beat.on = kind == zmq4.Sub && in.minor > 0
	return &conn{z: z, in: in}, raw.SetDeadline(time.Time{})
}

const (
	// heartbeatEvery is how long a peer may be silent before it is asked for a sign of life,
	// and for each answer.
	heartbeatEvery = 2 * time.Second
	// heartbeatsLost is how many unanswered questions in a row prove that nobody is there.
	heartbeatsLost = 2
)

// ping is the frame of a PING command with no TTL: the peer shall not end the connection
// while this side reads nothing because its memory for events is full.
var ping = []byte{flagCommand, 7, 4, 'P', 'I', 'N', 'G', 0, 0}

var errSilent = fmt.Errorf("the publisher answers nothing for %v, not even heartbeats", (1+heartbeatsLost)*heartbeatEvery)

// heartbeat is a connection whose Read sends a PING whenever nothing has come for a while. It
// is read by one goroutine, which does all writes too.
type heartbeat struct {
	net.Conn
	on    bool
	until time.Time // the deadline of reads
}

// Read implements io.Reader.
func (h *heartbeat) Read(p []byte) (int, error) {
	if !h.on {
		return h.Conn.Read(p)
	}
	if now := time.Now(); h.until.Sub(now) < heartbeatEvery/2 { // a deadline for each read would cost more than reading
		if err := h.extend(now); err != nil {
			return 0, err
		}
	}
	for asked := 0; ; asked++ {
		n, err := h.Conn.Read(p)
		if n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if asked == heartbeatsLost {
			return 0, errSilent
		}
		if err := h.extend(time.Now()); err != nil {
			return 0, err
		}
		if _, err := h.Write(ping); err != nil {
			return 0, err
		}
	}
}

// extend gives reads until heartbeatEvery from now.
func (h *heartbeat) extend(now time.Time) error {
	h.until = now.Add(heartbeatEvery)
	return h.SetReadDeadline(h.until)
}

// CheckEndpoint returns the reason why a subscriber cannot connect to an endpoint.
func CheckEndpoint(endpoint string) error {
	_, _, err := splitEndpoint(endpoint)
	return err
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
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", "", fmt.Errorf("endpoint %q: has no port between 1 and 65535", endpoint)
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
	return c.in.SetReadDeadline(t)
}

// close closes the connection. Only the goroutine that reads calls it.
func (c *conn) close() {
	c.in.Close()
	c.in.giveBack()
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

	ctx   context.Context // of the connection, which ends with it
	stop  func() bool     // ends the watch over ctx
	room  share
	beat  heartbeat
	begun int   // bytes of the handshake that were read
	minor byte  // of the peer's ZMTP 3.x
	open  bool  // the handshake is over
	taken int64 // of room, for messages that recv has not returned yet
}

const (
	greetingSize = 64 // ZMTP 3.0: unframed, first on the wire
	minorVersion = 11 // its byte with the minor version
	flagMore     = 0x01
	flagLong     = 0x02
	flagCommand  = 0x04
)

func newGuarded(ctx context.Context, raw net.Conn, room share) *guarded {
	// 4 KiB: the short frames of a message in one system call. Longer frames are read
	// past the buffer, so a larger one would only take memory.
	g := &guarded{Conn: raw, beat: heartbeat{Conn: raw}, left: greetingSize, ctx: ctx, room: room}
	g.r = bufio.NewReaderSize(&g.beat, 4<<10)
	g.stop = context.AfterFunc(ctx, func() { raw.Close() })
	return g
}

// Close implements net.Conn.
func (g *guarded) Close() error {
	g.stop()
	return g.Conn.Close()
}

// giveBack gives back the room of messages that recv has not returned.
func (g *guarded) giveBack() {
	g.room.give(g.taken)
	g.taken = 0
}

func (g *guarded) Read(p []byte) (int, error) {
	n, err := g.r.Read(p)
	if !g.open {
		if at := minorVersion - g.begun; at >= 0 && at < n {
			g.minor = p[at]
		}
		g.begun += n
	}
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
			size = binary.BigEndian.Uint64(g.head[1:])
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
