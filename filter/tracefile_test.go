package filter

import (
	"context"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/sessions"
	"warmroute/internal/tokens"
	"warmroute/internal/tracefile"
	"warmroute/internal/tracefile/tracereader"
	"warmroute/prefixhash"
	"warmroute/render/testkit/must"
)

func traceWriter(t *testing.T) *tracefile.Writer {
	t.Helper()
	w := tracefile.New(tracefile.Options{Path: filepath.Join(t.TempDir(), "trace.jsonl")}, prometheus.NewRegistry())
	return w
}

// written ends w and returns what it has written.
func written(t *testing.T, w *tracefile.Writer) (requests []tracereader.Request, ends []tracefile.Ended) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Do(t, w.Run(ctx))
	f := must.Get(os.Open(w.Path()))(t)
	defer f.Close()
	r := tracereader.Reader{
		Request: func(q *tracereader.Request) error { requests = append(requests, *q); return nil },
		Ended:   func(_ int, e *tracefile.Ended) error { ends = append(ends, *e); return nil },
	}
	must.Do(t, r.Read(f))
	return requests, ends
}

// TestRequestsAreTraced: a line has the decision's numbers and the prompt's blocks, by ids
// or by text, and a second line its end. Requests without a served model have none.
func TestRequestsAreTraced(t *testing.T) {
	b := newBench(t, fakeTokens{n: 1000}, replica(1), replica(2), replica(3))
	b.router.o.Requests = traceWriter(t)
	b.holds("10.0.0.2:8000", 0, 40)
	b.holds("10.0.0.3:8000", 0, 20)
	held := query()
	held.Waited = sessions.Wait{Ahead: 2, Live: 3, Context: 1000, Lacking: 40, Waited: 3 * time.Second}
	first := b.route(held)
	st := NewServer(b.router, ServerOptions{}).stream(buffered, new(hint))
	served := statusHeaders("200", true)
	for _, m := range []*request{headers(buffered, "POST", chatPath, false), body(chat, true)} {
		st.step(t.Context(), m, nil)
	}
	at := index.Holder{Replica: "10.0.0.2:8000"}
	b.ledger.Applied(&index.Batch{Holder: at, Events: []index.Event{{ // the prompt's last block: its first token has come
		Kind: index.Stored, Tier: index.TierGPU, Hashes: make([]uint64, 1), Content: lastContent(1000)}}})
	firstAt := st.d.Reservation.FirstTokenAt()
	st.step(t.Context(), served, nil)
	st.close()
	unknown := query()
	unknown.Body = []byte(strings.Replace(chat, `"m"`, `"another"`, 1))
	b.route(unknown)
	b.router.Skip(query(), "busy")
	if dry := b.router.Explain(t.Context(), query()); dry.Model == "" {
		t.Error("no explanation")
	}
	b.router.tokens = fakeTokens{err: tokens.ErrNone}
	text := query()
	text.Body = []byte(`{"model":"m","messages":[{"role":"user","content":"` + strings.Repeat("word ", 1000) + `"}]}`)
	b.route(text)
	text.Withheld = decision.WithheldShadow
	b.route(text)

	got, ends := written(t, b.router.o.Requests)
	if len(got) != 4 {
		t.Fatalf("%d lines: %+v", len(got), got)
	}
	for i, q := range got {
		if want := [...]string{3: string(decision.WithheldShadow)}[i]; q.Withheld != want {
			t.Errorf("line %d: withheld %q, want %q", i, q.Withheld, want)
		}
	}
	for i, q := range got[:2] { // the second finds what the first leaves, up to the last mark
		cached := [...]int{40 * blockSize, 960}[i]
		if q.Model != "m" || q.Route != chatPath || q.Tokens != 1000 || q.BlockTokens != blockSize || q.Replica != "10.0.0.2:8000" ||
			q.Cached != cached || q.Held != cached || q.Reason != "warm" || !reflect.DeepEqual(q.Spans, []tracefile.Span{{First: 0, Count: 999 / blockSize}}) {
			t.Errorf("line %+v", q)
		}
	}
	if want := (tracefile.Session{Waited: 3 * time.Second, Lacked: 40, Behind: 2}); got[0].Session != want || got[1].Session != (tracefile.Session{}) {
		t.Errorf("held: %+v, the next: %+v", got[0].Session, got[1].Session)
	}
	if !first.Traced || got[0].Number != first.Seq {
		t.Errorf("line %d for decision %d", got[0].Number, first.Seq)
	}
	if q := got[2]; q.Reason != "learned_cold" || q.Blocks() < 5 || q.Spans[0].First != 999/blockSize || q.Tokens < 1000 || q.Tokens > 1500 {
		t.Errorf("by text: %+v", q)
	}
	if len(ends) != 1 || ends[0].Number != got[1].Number || ends[0].Status != 200 || firstAt.IsZero() || ends[0].First.Sub(firstAt).Abs() > time.Millisecond {
		t.Errorf("ends %+v, the first token came at %v", ends, firstAt)
	}
}

// lastContent is the content of the last whole block of fakeTokens' prompt of n tokens.
func lastContent(n int) []prefixhash.Content {
	var ids []uint32
	for i := (n/blockSize - 1) * blockSize; len(ids) < blockSize; i++ {
		ids = append(ids, uint32(i))
	}
	return prefixhash.AppendContents(nil, ids, prefixhash.Blocks{Size: blockSize}, nil)
}

// TestTraceHasTheSession: a line has all that a record tells of its session.
func TestTraceHasTheSession(t *testing.T) {
	b := newBench(t, fakeTokens{n: 1000}, replica(2))
	b.router.o.Requests = traceWriter(t)
	s := b.router.scratch.Get().(*scratch)
	rec := s.begin()
	rec.Model, rec.At = "m", time.Now()
	rec.Session = &decision.SessionRecord{Number: 3, Turn: 2, Idle: 90 * time.Second, Working: true, Held: 4 * time.Second, Ahead: 5, Live: 6, Context: 7, Lacking: 8}
	b.router.write(s, 9)
	got, _ := written(t, b.router.o.Requests)
	want := tracefile.Session{Number: 3, Turn: 2, Idle: 90 * time.Second, Live: true, Waited: 4 * time.Second, Lacked: 8, Behind: 5}
	if len(got) != 1 || got[0].Session != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
