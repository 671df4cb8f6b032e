package prefill

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"warmroute/internal/fleet"
	"warmroute/internal/intake"
	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

const patience = time.Minute

// start returns a Sender and a leg to a replica that answers by h.
func start(t *testing.T, h http.HandlerFunc) (*Sender, *Leg) {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	client := must.Get(fleet.HTTPOptions{}.Client(Connections))(t)
	s := New(Options{Client: client, URL: fleet.HTTPOptions{}.URL})
	return s, &Leg{Addr: srv.Listener.Addr().String(), Route: openai.Chat, Body: []byte(`{"model":"m","messages":[]}`), Timeout: patience}
}

// TestAnswersOfLegsAreBounded: however many legs are held, and whatever lengths their answers
// announce, their answers take no more than the budget; those without room count as busy, which
// blames no replica, and others have room again when they have ended.
func TestAnswersOfLegsAreBounded(t *testing.T) {
	const legs, room = 16, 4
	release := make(chan struct{})
	s, leg := start(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", strconv.Itoa(maxAnswer))
		_, _ = w.Write([]byte(`{"kv_transfer_params":{"a":1}`))
		w.(http.Flusher).Flush()
		<-release
	})
	s.Set(Options{URL: s.o.Load().URL, Answers: &intake.Budget{Most: room * 32 << 10}})
	ended := make(chan error, legs)
	for range legs {
		go func() {
			l := *leg
			_, err := s.Send(t.Context(), &l)
			ended <- err
		}()
	}
	for range legs - room {
		if err := <-ended; !errors.Is(err, ErrBusy) {
			t.Errorf("a leg without room: %v", err)
		}
	}
	close(release)
	for range room {
		if err := <-ended; err == nil || errors.Is(err, ErrBusy) {
			t.Errorf("a leg with room, whose answer breaks off: %v", err)
		}
	}
	if _, err := s.Send(t.Context(), leg); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("later: %v", err)
	}
}

// TestLegIsTheBodyWithOneToken: members that would make the answer long, streamed or several
// are replaced, in any place and spelling; every other one is sent byte for byte.
func TestLegIsTheBodyWithOneToken(t *testing.T) {
	const prompt = `"model":"m","messages":[],"prompt":"p","input":"i"`
	for members, want := range map[string]string{
		` { "a" : "m" , "b":[ 1, {"n":2} ] , "seed":12345678901234567890 ,%s} `: `,"a" : "m" , "b":[ 1, {"n":2} ] , "seed":12345678901234567890 ,%s}`,
		`{"stream":true,%s,"n":1}`: `,%s}`,
		`{"a":"m","stream":true,"stream_options":{"a":1,"n":2},"x":"} ,",%s}`:        `,"a":"m","x":"} ,",%s}`,
		"{\"max_tokens\":7 ,\n%s\t,\"min_tokens\":5,\"b\":2,\"best_of\":1}":          `,%s,"b":2}`,
		`{"max_completion_tokens":7,"max_output_tokens":9, %s , "max_tokens":null }`: `,%s}`,
		`{"str\u0065am":true,"a":"\u00e4",%s}`:                                       `,"a":"\u00e4",%s}`,
		"\xef\xbb\xbf{%s}":                                                           `,%s}`,
	} {
		body, want := fmt.Sprintf(members, prompt), fmt.Sprintf(want, prompt)
		for _, route := range openai.Routes {
			if route == openai.Generate { // its prompt is not text, and it is never split
				continue
			}
			req := must.Get(openai.Parse(route, []byte(body)))(t)
			got := string(bytes.Join(appendBody(nil, &Leg{Route: route, Body: []byte(body), Lengths: req.Lengths()}), nil))
			begin := "{" + oneToken(route) + pulled
			if got != begin+want || !json.Valid([]byte(got)) {
				t.Errorf("%s\ngot  %s\nwant %s", body, got, begin+want)
			}
		}
	}
}

func TestParamsAreOpaque(t *testing.T) {
	const params = `{"do_remote_prefill":true, "remote_block_ids":[[12, 13]],"new":1e400,"x":"\u00e4 ä"}`
	var got []byte
	var header http.Header
	s, l := start(t, func(w http.ResponseWriter, r *http.Request) {
		got, _ = io.ReadAll(r.Body)
		header = r.Header
		_, _ = io.WriteString(w, `{"id":"x","kv_transfer_params": `+params+` ,"usage":{"prompt_tokens":48,"prompt_tokens_details":{"cached_tokens":32}}}`)
	})
	l.ID, l.Rank = "request", "3"
	a, err := s.Send(t.Context(), l)
	if err != nil || string(a.Params) != params || a.Tokens != 48 || a.Cached == nil || *a.Cached != 32 {
		t.Errorf("params %s, %d tokens: %v", a.Params, a.Tokens, err)
	}
	if header.Get("X-Request-Id") != "request" || header.Get("X-Data-Parallel-Rank") != "3" || !bytes.Contains(got, []byte(`"do_remote_decode":true`)) {
		t.Errorf("sent %s with %v", got, header)
	}
}

// TestOutcomes: each way in which a replica brings nothing has its error; other failures have none of these.
func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		h       http.HandlerFunc
		timeout time.Duration
		is      error
	}{
		"refused": {h: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 400) }, is: ErrRefused},
		"failed":  {h: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 500) }},
		"busy":    {h: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "later", http.StatusTooManyRequests) }},
		"locked":  {h: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no key", http.StatusUnauthorized) }},
		"redirected": {h: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusTemporaryRedirect)
		}},
		"without params":   {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"usage":{}}`) }, is: ErrNoParams},
		"null params":      {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kv_transfer_params":null}`) }, is: ErrNoParams},
		"params no object": {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kv_transfer_params":"x"}`) }, is: ErrNoParams},
		"long params": {h: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kv_transfer_params":{"a":"`+strings.Repeat("x", MaxParams)+`"}}`)
		}, is: ErrNoParams},
		"params not UTF-8": {h: func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"kv_transfer_params":{"a":"`+"\xff"+`"}}`)
		}},
		"no JSON": {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"kv_transfer_params":{}`) }},
		"endless": {h: func(w http.ResponseWriter, _ *http.Request) {
			for piece := bytes.Repeat([]byte(" "), 1<<20); ; {
				if _, err := w.Write(piece); err != nil {
					return
				}
			}
		}},
		"cut": {h: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"kv`)
		}},
		"silent": {h: func(_ http.ResponseWriter, r *http.Request) { _, _ = io.ReadAll(r.Body); <-r.Context().Done() }, timeout: 50 * time.Millisecond, is: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			s, l := start(t, c.h)
			if c.timeout > 0 {
				l.Timeout = c.timeout
			}
			_, err := s.Send(t.Context(), l)
			if err == nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("error %v, want %v", err, c.is)
			}
			for _, named := range []error{ErrBusy, ErrRefused, ErrNoParams, context.DeadlineExceeded, context.Canceled} {
				if c.is == nil && errors.Is(err, named) {
					t.Errorf("%v counts as %v", err, named)
				}
			}
		})
	}
}

func TestADeadReplicaIsAFailure(t *testing.T) {
	s, l := start(t, nil)
	dead := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	l.Addr = dead.Addr().String()
	dead.Close()
	if _, err := s.Send(t.Context(), l); err == nil {
		t.Errorf("error %v", err)
	}
}

// TestALegEndsWithItsRequest: the replica sees the end, and the body is free again.
func TestALegEndsWithItsRequest(t *testing.T) {
	came, gone := make(chan bool), make(chan bool)
	s, l := start(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		close(came)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-came; cancel() }()
	if _, err := s.Send(ctx, l); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	<-gone
}

// TestTheBodyIsFreeAfterwards: a replica that answers before it has read the body leaves
// nobody who reads it. The race detector sees the others.
func TestTheBodyIsFreeAfterwards(t *testing.T) {
	s, l := start(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", 400) })
	l.Body = []byte(`{"model":"` + strings.Repeat("x", 8<<20) + `"}`)
	for range 5 {
		if _, err := s.Send(t.Context(), l); err == nil {
			t.Error("no error")
		}
		for i := 10; i < len(l.Body)-2; i++ {
			l.Body[i] = 'y'
		}
	}
}

func TestLegsAreLimited(t *testing.T) {
	come, leave := make(chan bool), make(chan bool)
	s, l := start(t, func(w http.ResponseWriter, _ *http.Request) {
		come <- true
		<-leave
		_, _ = io.WriteString(w, `{"kv_transfer_params":{}}`)
	})
	o := *s.o.Load()
	o.Legs = 1
	s.Set(o)
	done := make(chan error)
	go func() { _, err := s.Send(t.Context(), l); done <- err }()
	<-come
	if _, err := s.Send(t.Context(), l); !errors.Is(err, ErrBusy) {
		t.Errorf("error %v", err)
	}
	leave <- true
	if err := <-done; err != nil {
		t.Error(err)
	}
}
