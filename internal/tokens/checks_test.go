package tokens

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"warmroute/render/testkit/must"
	"warmroute/render/work"
)

// A replica that does not answer delays the check of no other model, nor the status
// of its own.
func TestLocalSlowReplicaDelaysItsModelOnly(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	asked := make(chan struct{}, 100)
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // the server notices an ended connection from then on
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer stuck.Close()
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	l.o.Hooks = Hooks{} // the hooks of newLocal are for one check at a time
	l.o.Endpoints = func(model string) []Endpoint {
		url := f.URL
		if strings.HasPrefix(model, "slow") {
			url = stuck.URL
		}
		return []Endpoint{{URL: url, Version: "0.32.0", Render: true}}
	}
	l.Unload("m")
	for _, name := range []string{"slow 1", "slow 2", "slow 3", "slow 4"} {
		must.Do(t, l.Load(name, fakeModel(t)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Run(ctx) }()
	for range 4 {
		<-asked
	}
	must.Do(t, l.Load("m", fakeModel(t)))
	waitFor(t, func() bool { _, err := l.Tokens(ctx, chatRequest(t, "hi"), someModel); return err == nil })
	busy := l.Busy()
	if len(l.Status()) != 5 || len(busy) < 4 || busy[len(busy)-1].Model != "slow 4" || busy[len(busy)-1].Phase != phaseComparing {
		t.Errorf("under way: %+v", busy)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A model whose replicas do not answer in time is asked again after pauses that grow,
// and a round of questions ends early.
func TestLocalPausesGrow(t *testing.T) {
	m := &localModel{name: "m"}
	now := time.Unix(0, 0)
	var pauses []time.Duration
	for range 8 {
		m.postpone(now, 5*time.Second)
		pauses = append(pauses, m.next.Sub(now))
	}
	for i, want := range []int{5, 10, 20, 40, 80, 160, 300, 300} {
		if pauses[i] != time.Duration(want)*time.Second {
			t.Errorf("pause %d: %v, want %d s", i, pauses[i], want)
		}
	}
}

// A template that loops for ever costs the budgets of a few conversations, in a check as
// in a request, and delays no other model.
func TestLocalEndlessTemplate(t *testing.T) {
	f := newFakeServer(t)
	f.answer = honest(t)
	l, _ := newLocal(t, f, LocalOptions{SampleEvery: -1})
	l.o.Hooks = Hooks{}
	bad := bytesModel(t, `{% for i in range(100000) %}{% for j in range(100000) %}{% for k in range(100000) %}{% endfor %}{% endfor %}{% endfor %}`, Flags{})
	for _, name := range []string{"bad 1", "bad 2"} {
		if err := l.Load(name, bad); err != nil && !work.Is(err) {
			t.Fatal(err)
		}
	}
	l.CheckAll(t.Context())
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), someModel); err != nil {
		t.Errorf("the model beside it: %v", err)
	}
	if _, err := l.Tokens(t.Context(), chatRequest(t, "hi"), Served{Model: "bad 1"}); !errors.Is(err, ErrNone) {
		t.Errorf("the endless one: %v", err)
	}
	if len(l.Busy()) != 0 {
		t.Errorf("still under way: %v", l.Busy())
	}
}
