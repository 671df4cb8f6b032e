package tokens

import (
	"context"
	"slices"
	"testing"
	"time"

	"warmroute/render/openai"
	"warmroute/render/testkit/must"
)

// TestNearMidnight: while the servers' day may be another than the router's, a
// prompt that contains the day has the ids of both days, the likelier first. The day is that of the
// wall clock as it is set.
func TestNearMidnight(t *testing.T) {
	model := bytesModel(t, "{{ strftime_now('%d %b') }} {{ messages[0].content }}", Flags{})
	var now time.Time
	l := NewLocal(LocalOptions{TrustUnverified: ^openai.Features(0), SampleEvery: 1,
		Now:       func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }, // a router whose wall clock was set since its start
		Wall:      func() time.Time { return now },
		Reference: NewRemote(RemoteOptions{}), Endpoints: func(string) []Endpoint { return []Endpoint{{Version: "0.32.0"}} }})
	must.Do(t, l.Load("m", model))
	ask := func(route openai.Route, body string, at time.Time) Result {
		t.Helper()
		now = at
		req := must.Get(openai.Parse(route, []byte(body)))(t)
		return must.Get(l.Tokens(context.Background(), req, Served{Model: "m"}))(t)
	}
	const chatBody = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
	day := func(d int) []uint32 {
		t.Helper()
		r := ask(openai.Chat, chatBody, time.Date(2026, 3, d, 12, 0, 0, 0, time.UTC))
		if r.Other != nil {
			t.Error("at noon there are two days")
		}
		return r.Prompts[0].Tokens
	}
	now = time.Date(2026, 3, 5, 23, 57, 0, 0, time.UTC)
	l.CheckAll(context.Background())
	if v, _ := l.models.Load("m"); !v.(*localModel).next.IsZero() {
		t.Error("a replica is asked near midnight, when it may use another day")
	}
	fifth, sixth := day(5), day(6)
	sampled := len(l.samples)
	if slices.Equal(fifth, sixth) || sampled != 2 {
		t.Fatalf("the days are equal, or not sampled: %d", sampled)
	}
	for _, c := range []struct {
		at           time.Time
		first, other []uint32
	}{
		{time.Date(2026, 3, 5, 23, 57, 0, 0, time.UTC), fifth, sixth},
		{time.Date(2026, 3, 6, 0, 3, 0, 0, time.UTC), sixth, fifth},
	} {
		r := ask(openai.Chat, chatBody, c.at)
		if !slices.Equal(r.Prompts[0].Tokens, c.first) || len(r.Other) != 1 || !slices.Equal(r.Other[0].Tokens, c.other) {
			t.Errorf("%v: not the ids of both days", c.at)
		}
		if r := ask(openai.Completions, `{"model":"m","prompt":"x"}`, c.at); r.Other != nil {
			t.Errorf("%v: a text tells no day", c.at)
		}
	}
	if got := len(l.samples) - sampled; got != 2 { // the texts
		t.Errorf("%d requests near midnight wait to be compared with a replica, want 2", got)
	}
}
