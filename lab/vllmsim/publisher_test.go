package vllmsim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
)

// zmqTimeout bounds every wait for a message that must come.
const zmqTimeout = 5 * time.Second

// subscribe connects a SUB and waits until the publisher has its subscription.
func subscribe(t *testing.T, s *Sim, rank int, topic string) zmq4.Socket {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	sub := zmq4.NewSub(ctx)
	t.Cleanup(func() { _ = sub.Close(); cancel() })
	if err := sub.Dial(s.EventEndpoint(rank)); err != nil {
		t.Fatal(err)
	}
	if err := sub.SetOption(zmq4.OptionSubscribe, topic); err != nil {
		t.Fatal(err)
	}
	within, stop := context.WithTimeout(ctx, zmqTimeout)
	defer stop()
	if err := s.ranks[rank].events.WaitSubscribers(within, 1); err != nil {
		t.Fatal("the subscription never arrived")
	}
	return sub
}

func receive(t *testing.T, s zmq4.Socket) [][]byte {
	t.Helper()
	type result struct {
		m   zmq4.Msg
		err error
	}
	got := make(chan result, 1)
	go func() { m, err := s.Recv(); got <- result{m, err} }()
	select {
	case r := <-got:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.m.Frames
	case <-time.After(zmqTimeout):
		t.Fatal("no message")
	}
	return nil
}

// prompt sends one prompt of exactly one block.
func oneBlock(t *testing.T, s *Sim, from int, headers ...string) {
	t.Helper()
	ids := ""
	for i := range 16 {
		ids += fmt.Sprintf("%d,", from+i)
	}
	if status, b := call(t, s, "/v1/completions", `{"max_tokens":1,"prompt":[`+ids[:len(ids)-1]+`]}`, headers...); status != http.StatusOK {
		t.Fatalf("%d %s", status, b)
	}
}

func eventOptions() Options {
	return fast(Options{Events: "127.0.0.1:0", Replay: "127.0.0.1:0", Topic: "kv@here", BlockSize: 16})
}

// TestPublish: batches arrive with topic and number, in order, each rank its
// own; a dropped one is missing from the stream and there in the replay.
func TestPublish(t *testing.T) {
	for _, version := range []Version{V021, V032} {
		t.Run(string(version), func(t *testing.T) {
			o := eventOptions()
			o.Version, o.DataParallel, o.Faults.DropEvery = version, 2, 2
			s := startSim(t, o)
			sub := subscribe(t, s, 1, "kv@")
			oneBlock(t, s, 0, rankHeader, "0")
			for i := range 4 {
				oneBlock(t, s, 100*i, rankHeader, "1")
			}
			payloads := map[uint64][]byte{}
			for _, wantSeq := range []uint64{0, 2} { // the second and the fourth are dropped
				m := receive(t, sub)
				if len(m) != 3 || string(m[0]) != "kv@here" || binary.BigEndian.Uint64(m[1]) != wantSeq {
					t.Fatalf("message %q, want number %d", m, wantSeq)
				}
				if b := decodeBatch(t, m[2]); len(b.stored()) != 1 || fmt.Sprint(b[2]) != "1" {
					t.Errorf("batch %v: want one stored block of rank 1", b)
				}
				payloads[wantSeq] = m[2]
			}
			checkReplay(t, s, version, payloads)
		})
	}
}

// awaitBatches waits until a rank has numbered n batches: the last ones may be
// dropped for subscribers, who cannot tell then.
func awaitBatches(t *testing.T, s *Sim, rank int, n uint64) {
	t.Helper()
	for deadline := time.Now().Add(zmqTimeout); ; time.Sleep(time.Millisecond) {
		seq := s.Published(rank)
		if seq >= n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d batches, want %d", seq, n)
		}
	}
}

// askReplay requests from a rank everything from number first on.
func askReplay(t *testing.T, s *Sim, rank int, first uint64) zmq4.Socket {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	dealer := zmq4.NewDealer(ctx)
	t.Cleanup(func() { _ = dealer.Close(); cancel() })
	if err := dealer.Dial(s.ReplayEndpoint(rank)); err != nil {
		t.Fatal(err)
	}
	if err := dealer.SendMulti(zmq4.NewMsgFrom(nil, binary.BigEndian.AppendUint64(nil, first))); err != nil {
		t.Fatal(err)
	}
	return dealer
}

// checkReplay requests from rank 1 everything from number 1 on and expects 1 to 3 and
// the end, in the version's frames.
func checkReplay(t *testing.T, s *Sim, version Version, payloads map[uint64][]byte) {
	t.Helper()
	awaitBatches(t, s, 1, 4)
	dealer := askReplay(t, s, 1, 1)
	frames := 3
	if version == V032 {
		frames = 4
	}
	for want := uint64(1); want < 4; want++ {
		m := receive(t, dealer)
		if len(m) != frames || len(m[0]) != 0 {
			t.Fatalf("replay %q: want %d frames, the first empty", m, frames)
		}
		if seq := binary.BigEndian.Uint64(m[frames-2]); seq != want {
			t.Fatalf("replayed number %d, want %d", seq, want)
		}
		if p, ok := payloads[want]; ok && !bytes.Equal(p, m[frames-1]) {
			t.Errorf("number %d replayed other bytes than it published", want)
		}
	}
	end := receive(t, dealer)
	if len(end) != frames || !bytes.Equal(end[frames-2], bytes.Repeat([]byte{0xff}, 8)) || len(end[frames-1]) != 0 {
		t.Errorf("the end is %q", end)
	}
}

// TestReplayBuffer: only the last BufferSteps batches can be replayed.
func TestReplayBuffer(t *testing.T) {
	o := eventOptions()
	o.BufferSteps = 2
	s := startSim(t, o)
	for i := range 5 {
		oneBlock(t, s, 100*i)
	}
	for replay := askReplay(t, s, 0, 4); binary.BigEndian.Uint64(receive(t, replay)[2]) != 4; { // until the fifth batch is published
		replay = askReplay(t, s, 0, 4)
	}
	sub := subscribe(t, s, 0, "")
	oneBlock(t, s, 900)
	if m := receive(t, sub); binary.BigEndian.Uint64(m[1]) != 5 {
		t.Fatalf("a late subscriber's first message is %q", m)
	}
	replay := askReplay(t, s, 0, 0)
	var seqs []uint64
	for len(seqs) == 0 || seqs[len(seqs)-1] != ^uint64(0) {
		seqs = append(seqs, binary.BigEndian.Uint64(receive(t, replay)[2]))
	}
	if fmt.Sprint(seqs[:len(seqs)-1]) != "[4 5]" {
		t.Errorf("replay holds %v", seqs)
	}
}

// TestClearTravels: the clear goes out with the next request's batch, ahead of the blocks
// that the request stored.
func TestClearTravels(t *testing.T) {
	s := startSim(t, eventOptions())
	sub := subscribe(t, s, 0, "")
	oneBlock(t, s, 0)
	receive(t, sub)
	if status, b := call(t, s, "/reset_prefix_cache", "{}"); status != http.StatusOK || !bytes.Contains(b, []byte("true")) {
		t.Fatalf("%d %s", status, b)
	}
	if got := s.Held(0, 0); len(got) != 0 {
		t.Errorf("%d blocks held after the reset", len(got))
	}
	oneBlock(t, s, 0)
	b := decodeBatch(t, receive(t, sub)[2])
	events := b[1].([]any)
	if len(events) != 2 || events[0].(map[string]any)["type"] != "AllBlocksCleared" || len(b.stored()) != 1 {
		t.Errorf("batch %v", b)
	}
}

// TestReportMode: with kv_cache_report_mode "full" the blocks that were hit are
// announced again, in a batch that also names the session.
func TestReportMode(t *testing.T) {
	s := startSim(t, eventOptions())
	sub := subscribe(t, s, 0, "")
	body := `{"max_tokens":1,"vllm_xargs":{"kv_cache_report_mode":"full"},"prompt":` + quoted(long) + `}`
	call(t, s, "/v1/completions", body)
	first := decodeBatch(t, receive(t, sub)[2]).stored()
	call(t, s, "/v1/completions", body, sessionHeader, "s-1")
	b := decodeBatch(t, receive(t, sub)[2])
	again := b.stored()
	if len(first) != 1 || len(again) == 0 || len(again[0].hashes) == 0 || again[0].hashes[0] != first[0].hashes[0] {
		t.Fatalf("%d events, then %v", len(first), b)
	}
	if got := b[1].([]any)[0].(map[string]any)["session_id"]; got != "s-1" {
		t.Errorf("session %v", got)
	}
}

// TestEventSources: an address is enough to find a rank's events.
func TestEventSources(t *testing.T) {
	o := eventOptions()
	o.DataParallel = 2
	s := startSim(t, o)
	got := want[map[string]struct {
		Endpoint string
		Replay   string `json:"replay_endpoint"`
		Topic    string
	}](t, s, "/kv_event_sources", "")
	for r, key := range []string{"0", "1"} {
		if e := got[key]; e.Endpoint != s.EventEndpoint(r) || e.Replay != s.ReplayEndpoint(r) || e.Topic != "kv@here" {
			t.Errorf("rank %d: %+v", r, e)
		}
	}
	if w := wildcard("tcp://[::]:5557"); w != "tcp://*:5557" {
		t.Errorf("every interface is told as %s", w)
	}
	none := startSim(t, fast(Options{}))
	if got := want[map[string]any](t, none, "/kv_event_sources", ""); len(got) != 0 {
		t.Errorf("without events: %v", got)
	}
}
