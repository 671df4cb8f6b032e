package filter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"warmroute/internal/decision"
	"warmroute/internal/fleet"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
)

// askedTokens are the bytes of a request's body, of which a replica was asked.
type askedTokens struct{ likely []string }

func (a *askedTokens) Tokens(_ context.Context, req *openai.Request, served tokens.Served) (tokens.Result, error) {
	a.likely = append(a.likely, served.Likely())
	var ids []uint32
	for _, b := range req.Raw(openai.FieldMessages) {
		ids = append(ids, uint32(b))
	}
	return tokens.Result{Source: tokens.FromTokenize, Prompts: []tokens.Prompt{{Tokens: ids}}}, nil
}

// silent returns replica 10.0.0.n, whose cache is known from what it was sent.
func silent(n int) *fleet.Replica {
	r := replica(n)
	r.Events = nil
	return r
}

// conversation returns the body of a turn, which begins with the bodies of former ones but for
// their ends.
func conversation(session, turn int) string {
	var messages []string
	for i := range turn + 1 {
		messages = append(messages, fmt.Sprintf(`{"role":"user","content":"%s"}`, strings.Repeat(fmt.Sprintf("session %d turn %d ", session, i), 40)))
	}
	return `{"model":"m","messages":[` + strings.Join(messages, ",") + `]}`
}

// TestTheReplicaThatAnswersIsAsked: of a request whose token ids a replica computes, no other
// replica reads the text than the one that it then goes to.
func TestTheReplicaThatAnswersIsAsked(t *testing.T) {
	now := time.Unix(1e9, 0)
	var source askedTokens
	b := newBenchAt(t, func() time.Time { return now }, &source, silent(1), silent(2), silent(3), silent(4))
	to := map[string]int{}
	for turn := range 6 {
		for i := range 25 {
			session := (7*i + 11*turn) % 25 // in another order each time
			d := b.route(&Query{Route: openai.Chat, Body: []byte(conversation(session, turn))})
			addr := d.First()
			if got := source.likely[len(source.likely)-1]; addr == "" || got != addr {
				t.Errorf("session %d, turn %d: %q was asked, %q answers (%s)", session, turn, got, addr, d.Reason)
			}
			to[addr]++
			now = now.Add(200 * time.Millisecond)
			d.Reservation.FirstToken()
			now = now.Add(200 * time.Millisecond)
			d.Reservation.Ended(true)
			d.Reservation.Release()
		}
	}
	if len(to) != 4 {
		t.Errorf("requests went to %v", to)
	}
	if n := len(b.ring.Last(1000, nil)); n != 64 {
		t.Errorf("%d records", n)
	}
}

// TestLikelyHasNoEffect: what is asked before the decision changes neither it nor its record, and
// an explanation leaves nothing.
func TestLikelyHasNoEffect(t *testing.T) {
	now := time.Unix(1e9, 0)
	clock := func() time.Time { return now }
	var asked askedTokens
	with := newBenchAt(t, clock, &asked, silent(1), silent(2), silent(3))
	without := newBenchAt(t, clock, tokensOnly{&askedTokens{}}, silent(1), silent(2), silent(3))
	for i := range 60 {
		q := &Query{Route: openai.Chat, Body: []byte(conversation(i%7, i/7))}
		with.router.Explain(t.Context(), q)
		a, b := with.route(q), without.route(q)
		if a.Chosen != b.Chosen || a.Reason != b.Reason || a.Predicted != b.Predicted {
			t.Fatalf("request %d: %+v, without asking %+v", i, a, b)
		}
		now = now.Add(100 * time.Millisecond)
	}
	with.route(&Query{Route: openai.Chat, Body: []byte(conversation(8, 0)), Withheld: decision.WithheldShare}) // goes elsewhere
	if n := len(with.router.visits.young); n != 60 {
		t.Errorf("%d visits of 60 requests are kept", n)
	}
}

// tokensOnly is a source that asks for no likely replica.
type tokensOnly struct{ of *askedTokens }

func (o tokensOnly) Tokens(ctx context.Context, req *openai.Request, served tokens.Served) (tokens.Result, error) {
	served.Likely = func() string { return "" }
	return o.of.Tokens(ctx, req, served)
}

// TestVisitsAreBounded, and the last ones are known.
func TestVisitsAreBounded(t *testing.T) {
	var v visits
	key := func(i int) prefixhash.Key { return prefixhash.Key(i + 1) }
	for i := range 5 * mostVisits {
		v.put(key(i), fmt.Sprint(i))
	}
	if n := len(v.young) + len(v.old); n > 2*mostVisits {
		t.Errorf("%d are kept", n)
	}
	for i := range mostVisits {
		at := 5*mostVisits - 1 - i
		if got := v.last([]prefixhash.Key{key(0), key(at), key(5 * mostVisits)}); got != fmt.Sprint(at) {
			t.Fatalf("visit %d of the last: %q", i, got)
		}
	}
	if got := v.last([]prefixhash.Key{key(0)}); got != "" {
		t.Errorf("the first one is known: %q", got)
	}
}

// TestNoLikelyReplica: one that the request's gateway does not allow is not likely, although the
// text went there.
func TestNoLikelyReplica(t *testing.T) {
	var source askedTokens
	b := newBenchAt(t, nil, &source, silent(1), silent(2))
	for _, subset := range []string{"10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000", ""} {
		q := &Query{Route: openai.Chat, Body: []byte(conversation(1, 0)), Subset: []string{subset}}
		want := strings.TrimPrefix(subset, "10.0.0.3:8000")
		if b.route(q); source.likely[len(source.likely)-1] != want {
			t.Errorf("of %q alone: %q", subset, source.likely[len(source.likely)-1])
		}
	}
}
