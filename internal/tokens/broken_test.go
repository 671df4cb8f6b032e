package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"warmroute/render/testkit/must"
)

// outcomes counts the outcomes of questions.
type outcomes struct {
	mu sync.Mutex
	of map[string]int
}

func (o *outcomes) add(outcome string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil {
		o.of = map[string]int{}
	}
	o.of[outcome]++
}

// A replica whose answers are broken is asked less and less often; a good answer ends
// that, and another replica is asked meanwhile.
func TestRemotePausesGrowWithBrokenAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"garbage":  `<html>`,
		"nested":   strings.Repeat("[", 20_000),
		"outside":  `{"token_ids":[1,2],"features":{"mm_placeholders":{"image":[{"offset":5,"length":9}]}}}`,
		"negative": `{"token_ids":[-1]}`,
		"large":    `{"token_ids":[4294967296]}`,
	} {
		var asked atomic.Int64
		var good atomic.Bool
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked.Add(1)
			if good.Load() {
				_, _ = io.WriteString(w, `{"token_ids":[1,2]}`)
				return
			}
			_, _ = io.WriteString(w, answer)
		}))
		now := time.Unix(1000, 0)
		var seen outcomes
		list := []Endpoint{{URL: s.URL, Render: true}}
		r := newRemote(t, RemoteOptions{Endpoints: func(Served) []Endpoint { return list }, Budget: 10 * time.Second, Timeout: 10 * time.Second,
			Now: func() time.Time { return now }, Questioned: seen.add})
		n := 0
		ask := func() error { // another text each time: answers are remembered
			n++
			_, err := r.Tokens(t.Context(), chatRequest(t, fmt.Sprint("text ", n)), someModel)
			return err
		}
		for range 3600 { // an hour of a request each second
			_ = ask()
			now = now.Add(time.Second)
		}
		if got := asked.Load(); got < 60 || got > 70 {
			t.Errorf("%s: %d questions in an hour of 3,600 requests", name, got)
		}
		if seen.of[questionInvalid] != int(asked.Load()) || len(seen.of) != 1 {
			t.Errorf("%s: counted %v", name, seen.of)
		}
		if _, err := r.Ask(t.Context(), chatRequest(t, "check"), "m", list); !errors.Is(err, errInvalid) {
			t.Errorf("%s: a check during the pause: %v", name, err)
		}
		good.Store(true)
		now = now.Add(brokenRest)
		for i := range 3 {
			if err := ask(); err != nil {
				t.Errorf("%s: question %d after a good answer: %v", name, i, err)
			}
		}
		s.Close()
	}
}

// An answer is read up to the size that the ids of its body may take, and all answers
// together up to a limit of their own.
func TestRemoteAnswersAreBounded(t *testing.T) {
	var sent atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"token_ids":[1`)
		for piece := []byte(strings.Repeat(",1", 1<<15)); ; {
			n, err := w.Write(piece)
			sent.Add(int64(n))
			if err != nil {
				return
			}
		}
	}))
	defer s.Close()
	var seen outcomes
	r := newRemote(t, RemoteOptions{Endpoints: func(Served) []Endpoint { return []Endpoint{{URL: s.URL, Render: true}} },
		Budget: time.Minute, Timeout: time.Minute, Questioned: seen.add})
	if _, err := r.Tokens(t.Context(), chatRequest(t, "hi"), someModel); !errors.Is(err, errTooLong) {
		t.Errorf("an endless answer: %v", err)
	}
	if seen.of[questionTooLong] != 1 {
		t.Errorf("counted %v", seen.of)
	}
	s.Close()                                                         // the sent request is known now
	if got := sent.Load(); got < answerBytes || got > 8*answerBytes { // the kernel's buffers hold some megabytes
		t.Errorf("%d bytes were taken of an endless answer", got)
	}
}

// A status that a request may be the cause of is counted and begins no pause: a client
// must not be able to keep others from asking.
func TestRemoteFailuresBeginNoPause(t *testing.T) {
	f := newFakeServer(t)
	var seen outcomes
	r := newRemote(t, RemoteOptions{Endpoints: f.endpoints(true), Budget: time.Minute, Timeout: time.Minute, Questioned: seen.add})
	f.status.Store(http.StatusInternalServerError)
	for i := range 10 {
		_, _ = r.Tokens(t.Context(), chatRequest(t, fmt.Sprint(i)), someModel)
	}
	f.status.Store(http.StatusNotFound)
	_, _ = r.Tokens(t.Context(), chatRequest(t, "refused"), someModel)
	f.status.Store(0)
	if _, err := r.Tokens(t.Context(), chatRequest(t, "good"), someModel); err != nil {
		t.Error(err)
	}
	if seen.of[questionFailed] != 10 || seen.of[questionRefused] != 1 || seen.of[questionAnswered] != 1 {
		t.Errorf("counted %v", seen.of)
	}
}

// Among several replicas the answering ones are asked; paces of replicas that have left
// are forgotten.
func TestPaceAvoidsBrokenReplicas(t *testing.T) {
	var p paces
	now := time.Unix(1000, 0)
	both := []Endpoint{{URL: "a", Render: true}, {URL: "b", Render: true}}
	p.begin("a")
	p.end("a", 0, time.Millisecond, now, errInvalid)
	for turn := range 2 {
		if e, err := p.choose(both, 0, time.Second, now, start{at: turn}); err != nil || e.URL != "b" {
			t.Errorf("turn %d: %v, %v", turn, e, err)
		}
		if e, err := p.choose(both, 0, 0, now, start{at: turn}); err != nil || e.URL != "b" {
			t.Errorf("turn %d of a check: %v, %v", turn, e, err)
		}
		if e, err := p.choose([]Endpoint{{URL: "a"}, {URL: "b"}}, 0, time.Second, now, start{at: turn}); err != nil || e.URL != "b" {
			t.Errorf("turn %d of /tokenize: %v, %v", turn, e, err)
		}
	}
	if _, err := p.choose(both[:1], 0, time.Second, now, start{}); !errors.Is(err, ErrNone) || errors.Is(err, ErrTooSlow) {
		t.Errorf("the broken one alone: %v", err)
	}
	for i := range 3 * mostPaces {
		p.begin(fmt.Sprint(i))
		p.end(fmt.Sprint(i), 0, time.Millisecond, now, nil)
	}
	if len(p.of) > mostPaces {
		t.Errorf("%d paces are kept", len(p.of))
	}
}

// stopped compiles no template after its context has ended.
type stopped struct{ Model }

func (m stopped) Renderer(ctx context.Context, version string, byClass bool) (Renderer, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return m.Model.Renderer(ctx, version, byClass)
}

// TestAStopIsNoError: a check that the end of the process cuts off is in no log.
func TestAStopIsNoError(t *testing.T) {
	var log bytes.Buffer
	f := newFakeServer(t)
	l, _ := newLocal(t, f, LocalOptions{Log: slog.New(slog.NewTextHandler(&log, nil))})
	must.Do(t, l.Load("m", stopped{fakeModel(t)}))
	v, _ := l.models.Load("m")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if l.check(ended, v.(*localModel), false); log.Len() > 0 {
		t.Errorf("%s", &log)
	}
}
