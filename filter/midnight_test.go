package filter

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/decision/decisiontest"
	"warmroute/internal/decision/policy"
	"warmroute/internal/load"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/testkit/chattest"
)

// datedPrompt has the ids, which are bytes, of a chat on a day by a template that contains
// the day.
func datedPrompt(day time.Time, text string) (ids []uint32) {
	for _, b := range fmt.Appendf(nil, "Today is %s.\n%s", day.Format("02 Jan 2006"), text) {
		ids = append(ids, uint32(b))
	}
	return ids
}

// TestTheDayOfTheReplicasAroundMidnight: while the replicas' clock may be of
// another day than ours, the prompts of both days are looked up, and the request
// goes where more of one of them is cached. At other times ours alone is.
func TestTheDayOfTheReplicasAroundMidnight(t *testing.T) {
	fifth := time.Date(2026, 3, 5, 0, 0, 0, 0, time.UTC)
	sixth := fifth.Add(24 * time.Hour)
	text := strings.Repeat("what was read yesterday is still warm; ", 20)
	model, err := tokens.LoadFolder(chattest.BytesFolder(t, "Today is {{ strftime_now('%d %b %Y') }}.\n{{ messages[0].content }}"),
		tokens.Flags{Transformers: "5.19.0"})
	if err != nil {
		t.Fatal(err)
	}
	var now time.Time
	clock := func() time.Time { return now }
	for _, tt := range []struct {
		name         string
		now          time.Time
		fifth, sixth int // blocks of the day's prompt, on the first and on the second replica
		want         string
		matched      int
		day          time.Time
	}{
		{"before, the replicas' day has not ended", sixth.Add(-3 * time.Minute), 30, 5, "10.0.0.1", 30, fifth},
		{"before, the replicas' next day has begun", sixth.Add(-3 * time.Minute), 5, 30, "10.0.0.2", 30, sixth},
		{"after, the replicas' next day has begun", sixth.Add(3 * time.Minute), 5, 30, "10.0.0.2", 30, sixth},
		{"after, the replicas' day has not ended", sixth.Add(3 * time.Minute), 30, 5, "10.0.0.1", 30, fifth},
		{"after, nothing tells", sixth.Add(3 * time.Minute), 0, 0, "10.0.0.", 0, sixth},
		{"at noon the day before does not count", sixth.Add(12 * time.Hour), 30, 5, "10.0.0.2", 5, sixth},
	} {
		t.Run(tt.name, func(t *testing.T) {
			now = tt.now
			x := index.New(index.Options{Now: clock})
			defer x.Close()
			stored(t, x, "10.0.0.1:8000", datedPrompt(fifth, text)[:tt.fifth*blockSize])
			stored(t, x, "10.0.0.2:8000", datedPrompt(sixth, text)[:tt.sixth*blockSize])
			source := tokens.NewLocal(tokens.LocalOptions{
				LocalSettings: tokens.LocalSettings{TrustUnverified: ^openai.Features(0), SampleEvery: -1}, Now: clock,
				Endpoints: func(string) []tokens.Endpoint { return []tokens.Endpoint{{Version: "0.32.0"}} },
			})
			if err := source.Load("m", model); err != nil {
				t.Fatal(err)
			}
			source.CheckAll(t.Context())
			d := decision.New(decisiontest.NewFleet(replica(1), replica(2)), x, load.NewLedger(clock), newBook(t, policy.Config{}), decision.Options{Now: clock})
			router := NewRouter(d, source, decision.NewRing(8), NewMetrics(prometheus.NewRegistry()), RouterOptions{Now: clock})
			asked := &Query{Route: openai.Chat, Body: fmt.Appendf(nil, `{"model":"m","messages":[{"role":"user","content":%q}]}`, text)}
			got := router.Route(context.Background(), asked)
			if !strings.HasPrefix(got.Chosen, tt.want) || got.Predicted != tt.matched*blockSize {
				t.Errorf("sent to %s, %d tokens cached; want %s, %d", got.Chosen, got.Predicted, tt.want, tt.matched*blockSize)
			}
			if got.Reservation == nil {
				t.Fatal("nothing is reserved")
			}
			// The placed reading, the prompt of one day, is expected to be cached at its
			// replica.
			sent, _, _ := strings.Cut(got.Chosen, ",")
			whole := datedPrompt(tt.day, text)
			if got, want := matched(x, sent, whole), (len(whole)-1)/blockSize; got != want {
				t.Errorf("%d blocks of the placed prompt are expected at %s, want %d", got, sent, want)
			}
		})
	}
}

var datedScope = index.Scope{Model: "m", Scheme: index.SchemeTokens, BlockSize: blockSize}

// stored has a replica publish a prompt's blocks.
func stored(t *testing.T, x *index.Index, addr string, ids []uint32) {
	t.Helper()
	h := index.Holder{Replica: addr}
	e := index.Event{Kind: index.Stored, Scope: datedScope}
	for i, c := range prefixhash.AppendContents(nil, ids, blockSize, nil) {
		e.Hashes = append(e.Hashes, uint64(x.ID(h))<<32+uint64(i)+1)
		e.Content = append(e.Content, c)
	}
	b := &index.Batch{Holder: h, Incarnation: x.Begin(h)}
	if len(e.Hashes) > 0 {
		b.Events = []index.Event{e}
	}
	if _, err := x.Apply(b); err != nil {
		t.Fatal(err)
	}
}

// matched is how many of a prompt's blocks a replica has or is expected to have.
func matched(x *index.Index, addr string, ids []uint32) int {
	keys := prefixhash.AppendTokens(nil, prefixhash.TokenRoot("m", prefixhash.LoRA{}), ids[:len(ids)/blockSize*blockSize], blockSize, nil)
	var f index.Found
	x.FindPrompt(&f, datedScope, keys[:(len(ids)-1)/blockSize], nil)
	id := x.ID(index.Holder{Replica: addr})
	for m := range f.All() {
		if m.ID == id {
			return int(m.Blocks)
		}
	}
	return 0
}
