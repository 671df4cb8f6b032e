package tokens

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// A body longer than those answered within the budget before is not sent; a
// shorter one is, and after a while a long one again.
func TestPaceSkipsWhatComesTooLate(t *testing.T) {
	var p paces
	now := time.Unix(1000, 0)
	const budget = 50 * time.Millisecond
	both := []Endpoint{{URL: "a", Render: true}, {URL: "b", Render: true}}
	choose := func(size int) string {
		e, _ := p.choose(both, size, budget, now, start{})
		return e.URL
	}
	if got := choose(100 << 10); got != "a" {
		t.Errorf("nothing is known yet: %q", got)
	}
	measure := func(url string, size int, took time.Duration, err error) {
		p.begin(url)
		p.end(url, size, took, now, err)
	}
	measure("a", 1<<10, time.Second, nil) // too short to measure
	measure("a", 100<<10, 166*time.Millisecond, nil)
	if got := choose(100 << 10); got != "b" {
		t.Errorf("a is too slow, b is not known: %q", got)
	}
	measure("b", 50<<10, 2*time.Second, errors.New("it did not answer"))
	for size, want := range map[int]string{100 << 10: "", 32 << 10: "", 20 << 10: "a", 7 << 10: "a", 0: "a"} {
		if got := choose(size); got != want {
			t.Errorf("%d bytes: %q, want %q", size, got, want)
		}
	}
	if _, err := p.choose(both, 100<<10, 0, now, start{}); err != nil {
		t.Error("without a budget nobody is asked")
	}
	now = now.Add(paceFor + 1)
	if got := choose(100 << 10); got != "a" {
		t.Errorf("after a while: %q", got)
	}
	for range 10 { // it got faster
		measure("a", 100<<10, 20*time.Millisecond, nil)
	}
	if got := choose(200 << 10); got != "a" {
		t.Errorf("a faster replica: %q", got)
	}
}

func TestPaceSpreadsByLoad(t *testing.T) {
	var p paces
	all := []Endpoint{{URL: "a", Render: true, Busy: 3}, {URL: "b", Render: true, Busy: 1}, {URL: "c"}, {URL: "d", Render: true, Busy: 1}}
	var got []string
	for turn := range 4 {
		e, _ := p.choose(all, 0, time.Second, time.Unix(0, 0), start{at: turn})
		p.begin(e.URL)
		got = append(got, e.URL)
	}
	if strings.Join(got, "") != "bdad" && strings.Join(got, "") != "bdab" {
		t.Errorf("asked in the order %v", got)
	}
}

// A router that has measured that its replicas are too slow returns ErrTooSlow at
// once and sends no request; the request's text is used instead.
func TestRemoteTooSlow(t *testing.T) {
	f, now := newFakeServer(t), time.Unix(1, 0)
	r := newRemote(t, RemoteOptions{Budget: 50 * time.Millisecond, Endpoints: f.endpoints(true), Now: func() time.Time { return now }})
	r.paces.begin(f.URL)
	r.paces.end(f.URL, 100<<10, 166*time.Millisecond, now, nil)
	if _, err := r.Tokens(t.Context(), chatRequest(t, strings.Repeat("long ", 20<<10)), someModel); !errors.Is(err, ErrTooSlow) || !errors.Is(err, ErrNone) {
		t.Errorf("error %v, want ErrTooSlow", err)
	}
	if n := f.asked.Load(); n != 0 {
		t.Errorf("asked %d times", n)
	}
}
