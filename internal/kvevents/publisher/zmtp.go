package publisher

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// zmtpConn is the listening side of one ZMTP 3.0 connection with the NULL
// mechanism (https://rfc.zeromq.org/spec/23/): all that ZeroMQ's SUB and DEALER
// need. One goroutine may read while another writes.
type zmtpConn struct {
	c net.Conn
	r *bufio.Reader
	w *bufio.Writer
}

const (
	zmtpMore, zmtpLong, zmtpCommand = 1, 2, 4

	// zmtpMaxFrame bounds the memory that a peer can claim: subscribers send
	// topics and sequence numbers.
	zmtpMaxFrame = 1 << 20

	// zmtpHandshake is how long a peer may take to introduce itself (libzmq's
	// default handshake interval).
	zmtpHandshake = 30 * time.Second
)

var errZMTP = errors.New("not a ZMTP 3 peer")

// acceptZMTP shakes hands on c as a socket of the given type ("PUB", "ROUTER").
func acceptZMTP(c net.Conn, socketType string) (*zmtpConn, error) {
	z := &zmtpConn{c: c, r: bufio.NewReader(c), w: bufio.NewWriter(c)}
	if err := c.SetDeadline(time.Now().Add(zmtpHandshake)); err != nil {
		return nil, err
	}
	var greeting [64]byte
	greeting[0], greeting[9], greeting[10] = 0xff, 0x7f, 3
	copy(greeting[12:], "NULL")
	if _, err := c.Write(greeting[:]); err != nil {
		return nil, err
	}
	if _, err := io.ReadFull(z.r, greeting[:]); err != nil {
		return nil, err
	}
	if greeting[0] != 0xff || greeting[9]&1 != 1 || greeting[10] < 3 || string(greeting[12:17]) != "NULL\x00" {
		return nil, errZMTP
	}
	ready := append([]byte{zmtpCommand, 0, 5}, "READY"...)
	ready = append(append(ready, 11), "Socket-Type"...)
	ready = append(binary.BigEndian.AppendUint32(ready, uint32(len(socketType))), socketType...)
	ready[1] = byte(len(ready) - 2)
	if _, err := c.Write(ready); err != nil {
		return nil, err
	}
	flags, _, err := z.frame()
	if err != nil {
		return nil, err
	}
	if flags&zmtpCommand == 0 {
		return nil, errZMTP
	}
	return z, c.SetDeadline(time.Time{})
}

func (z *zmtpConn) frame() (flags byte, body []byte, err error) {
	if flags, err = z.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	var n uint64
	if flags&zmtpLong != 0 {
		var b [8]byte
		if _, err := io.ReadFull(z.r, b[:]); err != nil {
			return 0, nil, err
		}
		n = binary.BigEndian.Uint64(b[:])
	} else {
		b, err := z.r.ReadByte()
		if err != nil {
			return 0, nil, err
		}
		n = uint64(b)
	}
	if n > zmtpMaxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errZMTP, n)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(z.r, body)
	return flags, body, err
}

// receive returns the next message's frames. It skips commands.
func (z *zmtpConn) receive() (frames [][]byte, err error) {
	for {
		flags, body, err := z.frame()
		if err != nil {
			return nil, err
		}
		if flags&zmtpCommand != 0 {
			continue
		}
		if frames = append(frames, body); flags&zmtpMore == 0 {
			return frames, nil
		}
		if len(frames) > 8 {
			return nil, fmt.Errorf("%w: a message of more than 8 frames", errZMTP)
		}
	}
}

// send buffers one message; flush sends it.
func (z *zmtpConn) send(frames ...[]byte) error {
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = zmtpMore
		}
		var head []byte
		if len(f) > 255 {
			head = binary.BigEndian.AppendUint64(append(z.w.AvailableBuffer(), flags|zmtpLong), uint64(len(f)))
		} else {
			head = append(z.w.AvailableBuffer(), flags, byte(len(f)))
		}
		if _, err := z.w.Write(head); err != nil {
			return err
		}
		if _, err := z.w.Write(f); err != nil {
			return err
		}
	}
	return nil
}

func (z *zmtpConn) flush() error { return z.w.Flush() }
