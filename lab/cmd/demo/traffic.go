package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"warmroute/internal/testenv"
)

// message is one turn of a conversation.
type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk is one user's conversation: a system prompt that many share, and the user's
// message of each turn. The times of the turns are part of the traffic.
type talk struct {
	system   string
	messages []string
	starts   time.Duration   // after the traffic's start
	pauses   []time.Duration // before each further turn, after the previous answer
}

// traffic is the same for the same shape, whoever serves it.
type traffic struct {
	talks []talk
	shape shape
}

// shape states the amount of traffic. A word is about 1.8 tokens.
type shape struct {
	seed        uint64
	talks       int
	turns       int
	systems     int           // different system prompts
	systemWords int           //
	userWords   int           // of each turn
	answer      int           // tokens of each answer
	window      time.Duration // conversations start within it
	pause       time.Duration // mean pause of a user between turns
}

func makeTraffic(s shape) *traffic {
	r := rand.New(rand.NewPCG(s.seed, 0x74726166)) // reproducible traffic
	systems := make([]string, s.systems)
	for i := range systems {
		systems[i] = prose(r, s.systemWords)
	}
	t := &traffic{shape: s}
	for range s.talks {
		k := talk{system: systems[r.IntN(len(systems))], starts: time.Duration(r.Float64() * float64(s.window))}
		for range s.turns {
			k.messages = append(k.messages, prose(r, s.userWords))
			k.pauses = append(k.pauses, time.Duration(r.ExpFloat64()*float64(s.pause)))
		}
		t.talks = append(t.talks, k)
	}
	return t
}

var words = strings.Fields(`the quiet router reads a long prompt and finds its prefix where another replica keeps many blocks that
	nobody asked for while new words arrive from each user who wants an answer soon because time passes and tokens cost more than they seem`)

// prose returns n words of text.
func prose(r *rand.Rand, n int) string {
	out := make([]string, n)
	for i := range out {
		out[i] = words[r.IntN(len(words))]
	}
	return strings.Join(out, " ") + "."
}

// exchange is one request and its answer.
type exchange struct {
	talk, turn int
	messages   []message     // as sent
	sum        [32]byte      // of the request's body
	sent       time.Duration // after the traffic's start
	testenv.Answer
	err error
}

// report is the client's view of one run of the traffic.
type report struct {
	exchanges []exchange
	failed    int
	firstErr  error
}

// checksum covers every body, in the order of talk and turn.
func (r *report) checksum() string {
	sorted := slices.Clone(r.exchanges)
	slices.SortFunc(sorted, func(a, b exchange) int { return (a.talk-b.talk)*1000 + a.turn - b.turn })
	h := sha256.New()
	for _, e := range sorted {
		h.Write(e.sum[:])
	}
	return hex.EncodeToString(h.Sum(nil))[:16]
}

// send plays the traffic against url and calls progress after each request. A
// conversation ends with its first failure.
func (t *traffic) send(ctx context.Context, url, model string, progress func(done, failed int)) *report {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: len(t.talks)}}
	defer client.CloseIdleConnections()
	start := time.Now()
	var mu sync.Mutex
	r := &report{}
	var wg sync.WaitGroup
	for i := range t.talks {
		wg.Go(func() {
			t.converse(ctx, i, func(msgs []message, turn int) (string, error) {
				e := exchange{talk: i, turn: turn, messages: msgs, sent: time.Since(start)}
				t.ask(ctx, client, url, model, &e)
				mu.Lock()
				defer mu.Unlock()
				r.exchanges = append(r.exchanges, e)
				if e.err != nil {
					r.failed++
					r.firstErr = e.err
				}
				progress(len(r.exchanges), r.failed)
				return e.Text, e.err
			})
		})
	}
	wg.Wait()
	return r
}

// converse plays one talk. Each turn contains all turns before it.
func (t *traffic) converse(ctx context.Context, i int, ask func([]message, int) (string, error)) {
	k := t.talks[i]
	if !sleep(ctx, k.starts) {
		return
	}
	msgs := []message{{"system", k.system}}
	for turn, says := range k.messages {
		if turn > 0 && !sleep(ctx, k.pauses[turn]) {
			return
		}
		msgs = append(msgs, message{"user", says})
		answer, err := ask(slices.Clone(msgs), turn)
		if err != nil {
			return
		}
		msgs = append(msgs, message{"assistant", answer})
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// body returns the request of one exchange.
func (t *traffic) body(model string, msgs []message) ([]byte, error) {
	return json.Marshal(map[string]any{
		"model": model, "messages": msgs, "max_tokens": t.shape.answer, "stream": true,
		"stream_options": map[string]any{"include_usage": true},
	})
}

// ask sends one request and notes its answer in e.
func (t *traffic) ask(ctx context.Context, client *http.Client, url, model string, e *exchange) {
	body, err := t.body(model, e.messages)
	if err != nil {
		e.err = err
		return
	}
	e.sum = sha256.Sum256(body)
	e.Answer, e.err = testenv.Ask(ctx, client, url+"/v1/chat/completions", body)
}
