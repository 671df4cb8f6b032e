package kvevents

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"

	"warmroute/internal/kvevents/kvtest"
	"warmroute/render/testkit/must"
)

// TestPausesGrowAndAreForgiven: a few troubles have no consequence; without end,
// they come once per forgivenEvery.
func TestPausesGrowAndAreForgiven(t *testing.T) {
	var tr troubles
	now := time.Unix(0, 0)
	all := uint64(0)
	for range toleratedTroubles {
		all++
		if p := tr.judge(all, 0, now); p != 0 {
			t.Fatalf("a pause of %v after %d troubles", p, all)
		}
	}
	tries, last := 0, time.Duration(0)
	for end := now.Add(time.Hour); now.Before(end); tries++ {
		all++
		pause := tr.judge(all, 0, now)
		if tries < 5 && pause <= last || pause > longestPause {
			t.Fatalf("pause %d is %v after %v", tries, pause, last)
		}
		last = pause
		now = now.Add(pause + time.Millisecond)
	}
	if most := int(2 * time.Hour / forgivenEvery); tries > most {
		t.Errorf("%d attempts in an hour, want at most %d", tries, most)
	}
	now = now.Add(time.Hour)
	if p := tr.judge(all+1, 0, now); p != 0 {
		t.Errorf("a pause of %v for one trouble in an hour", p)
	}
	if p := tr.judge(all+1, 0, now); p != 0 {
		t.Errorf("a pause of %v without a trouble", p)
	}
	huge := troubles{}
	if p := huge.judge(1<<40, 0, now); p != longestPause {
		t.Errorf("a pause of %v", p)
	}
}

// TestLossesAreToleratedLonger than batches that cannot be decoded: a few a second have
// no consequence, and a publisher that does nothing but lose costs a few replays a second.
func TestLossesAreToleratedLonger(t *testing.T) {
	var few, many troubles
	now := time.Unix(0, 0)
	for lost := range uint64(4 * 3600) {
		if p := few.judge(0, lost, now.Add(time.Duration(lost)*time.Second/4)); p != 0 {
			t.Fatalf("a pause of %v after %d losses, 4 a second", p, lost)
		}
	}
	lost := uint64(0)
	for end := now.Add(time.Hour); now.Before(end); now = now.Add(many.judge(0, lost, now) + time.Millisecond) {
		lost++
	}
	if most := uint64(6 * 3600); lost > most {
		t.Errorf("%d losses were followed in an hour, want at most %d", lost, most)
	}
}

// TestLossesWithoutReplay lead to no pause: the next batch would come in it, and be
// unknown without an end.
func TestLossesWithoutReplay(t *testing.T) {
	r := newRig(t, kvtest.Options{NoReplay: true}, nil)
	r.run()
	r.subscribed()
	for range 10 * toleratedTroubles {
		r.pub.Fault(func(uint64) kvtest.Fate { return kvtest.Drop })
		r.store(1)
		r.pub.Fault(nil)
		clear(r.want)
		r.store(1)
	}
	r.exact("the last batch")
	r.until("the losses are counted", func(_ map[uint64]int, s Status) bool { return s.Lost >= 10*toleratedTroubles-1 })
	if s := r.sub.Status(); s.Pauses != 0 {
		t.Errorf("%d losses, %d pauses", s.Lost, s.Pauses)
	}
}

// counting is a listener that counts the connections it accepts.
type counting struct {
	net.Listener
	n atomic.Int64
}

func (c *counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}

// TestAPublisherOfGarbageIsLeftAlone: tens of thousands of batches that cannot be
// decoded cost a few refusals; the sink holds nothing meanwhile, and follows again
// once there is something to follow.
func TestAPublisherOfGarbageIsLeftAlone(t *testing.T) {
	r := newRig(t, kvtest.Options{BufferSteps: 100}, nil)
	r.run()
	r.subscribed()
	r.store(3)
	r.exact("three blocks")
	for range 50_000 {
		r.pub.PublishRaw([]byte("no msgpack"))
	}
	r.until("it is left alone", func(held map[uint64]int, s Status) bool {
		return s.Pauses > 2 && s.Paused > firstPause && len(held) == 0
	})
	if s := r.sub.Status(); s.Rejected > 3*toleratedTroubles || s.Replays > 3*toleratedTroubles || s.Connects > 10 {
		t.Errorf("%d batches refused, %d replays, %d connections", s.Rejected, s.Replays, s.Connects)
	}
	clear(r.want)
	for range 101 { // the buffer holds nothing but these
		r.store(1)
	}
	r.until("it is followed again", func(held map[uint64]int, s Status) bool { return len(held) >= 100 && s.Paused == 0 })
}

// TestConnectionsThatBreakAreMadeMoreRarely: the wait before the next one doubles,
// until one lasts.
func TestConnectionsThatBreakAreMadeMoreRarely(t *testing.T) {
	wait, n := time.Duration(0), 0
	for at := time.Duration(0); at < time.Hour; n++ {
		wait = nextRetry(200*time.Millisecond, wait, time.Millisecond)
		at += wait
	}
	if n > int(time.Hour/longestRetry)+10 {
		t.Errorf("%d connections in an hour", n)
	}
	if wait != longestRetry || nextRetry(time.Second, wait, lasting) != time.Second {
		t.Errorf("%v, then %v", wait, nextRetry(time.Second, wait, lasting))
	}
	if got := nextRetry(time.Minute, time.Minute, 0); got != time.Minute {
		t.Errorf("%v where a minute is configured", got)
	}
}

// claimant is a publisher that shakes hands, and then writes the given bytes.
func claimant(t *testing.T, then func(net.Conn)) *counting {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	c := &counting{Listener: l}
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		for {
			conn, err := c.Accept()
			if err != nil {
				return
			}
			then(conn)
		}
	}()
	return c
}

// TestClaimsOfMessagesTakeNoMoreThanTheRoom: connections that announce messages of
// the largest size and never send them share one room; a connection that finds none
// waits before it reads.
func TestClaimsOfMessagesTakeNoMoreThanTheRoom(t *testing.T) {
	greeting := append([]byte{0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0}, make([]byte, 52)...)
	copy(greeting[12:], "NULL")
	ready := []byte("\x04\x19\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB")
	huge := []byte{flagLong, 0, 0, 0, 0, 0, 0xff, 0, 0} // 16 MiB - 64 KiB
	l := claimant(t, func(c net.Conn) {
		t.Cleanup(func() { c.Close() })
		_, _ = c.Write(append(append(append([]byte{}, greeting...), ready...), huge...))
	})
	room := NewRoom().live
	ctx := t.Context()
	reading := make(chan *conn, 6)
	for range 6 {
		c := must.Get(dial(ctx, "tcp://"+l.Addr().String(), zmq4.Sub, room))(t)
		reading <- c
		go func() { _, _, _ = c.recv(); c.close() }()
	}
	const size = 0xff0000 + frameCost
	for end := time.Now().Add(10 * time.Second); room.TryAcquire(size); room.give(size) {
		if time.Now().After(end) {
			t.Fatal("messages of 6 times 16 MiB left room")
		}
		time.Sleep(time.Millisecond)
	}
	for range 6 {
		(<-reading).in.Close()
	}
	for end := time.Now().Add(10 * time.Second); !room.TryAcquire(roomBytes); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("closed connections keep their room")
		}
	}
}

// TestAReplayWithoutEndIsCutOff: a replay that takes too long ends, and the live events
// go on after it.
func TestAReplayWithoutEndIsCutOff(t *testing.T) {
	r := newRig(t, kvtest.Options{}, func(o *Options) { o.ReplayWithin = time.Millisecond })
	r.pub.Endless(kvtest.Encoding{}.Batch(0, 0))
	r.run()
	r.until("live events after a replay that was cut off", func(held map[uint64]int, s Status) bool {
		r.store(1)
		return s.ReplayFails > 0 && len(held) > 0
	})
}
