package main

import (
	"bufio"
	"encoding/json"
	"io"
	"math/bits"
	"math/rand"
	"strconv"
	"strings"
)

// genConfig describes a reproducible set of request bodies. Every session
// belongs to one shared system prompt; each request of a session repeats that
// session's first user turn and ends in a fresh question, so a prefix-aware
// picker has a shared part, a session part and a new part.
type genConfig struct {
	size, count, prefixes, sessions int
	share                           float64
	seed                            int64
	model                           string
	ids                             bool // /v1/completions with token ids, not chats

	drawn []int // the session of each of the last bodies
}

// pick draws the next body's session.
func (g *genConfig) pick(rng *rand.Rand) int {
	s := rng.Intn(g.sessions)
	g.drawn = append(g.drawn, s)
	return s
}

// firsts returns the index of the first body of every session.
func (g *genConfig) firsts() (at []int) {
	seen := map[int]bool{}
	for i, s := range g.drawn {
		if !seen[s] {
			seen[s] = true
			at = append(at, i)
		}
	}
	return at
}

// shares returns the sizes of a body's shared, session and fresh parts, whose sum is
// room.
func (g *genConfig) shares(room int) (shared, session, fresh int) {
	shared = int(float64(room) * g.share)
	session = (room - shared) * 2 / 3
	return shared, session, room - shared - session
}

// sources are the random generators of the shared parts, of the sessions and of the rest.
func (g *genConfig) sources() (prefix, session func(i int) *rand.Rand, rest *rand.Rand) {
	of := func(salt int64) func(int) *rand.Rand {
		return func(i int) *rand.Rand { return rand.New(rand.NewSource(g.seed*salt + int64(i))) }
	}
	return of(1000003), of(7000003), rand.New(rand.NewSource(g.seed))
}

// path returns the route for the bodies.
func (g *genConfig) path() string {
	if g.ids {
		return "/v1/completions"
	}
	return "/v1/chat/completions"
}

// bodies makes the set in memory.
func (g *genConfig) bodies() ([][]byte, error) {
	g.drawn = nil
	if g.ids {
		return encode(g.completions())
	}
	return encode(g.chats())
}

func encode[T any](list []T) ([][]byte, error) {
	out := make([][]byte, len(list))
	for i := range list {
		var err error
		if out[i], err = json.Marshal(list[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (g *genConfig) write(w io.Writer) error {
	bodies, err := g.bodies()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 1<<20)
	for _, b := range bodies {
		if _, err := out.Write(append(b, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

type chatBody struct {
	Model       string        `json:"model"`
	Messages    []chatMessage `json:"messages"`
	MaxTokens   int           `json:"max_tokens"`
	Temperature float64       `json:"temperature"`
	Seed        int64         `json:"seed"`
	User        string        `json:"user"`
	Stream      bool          `json:"stream"`
}

type chatMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func (g *genConfig) chats() []chatBody {
	const overhead = 260 // JSON around the texts
	shared, session, fresh := g.shares(max(g.size-overhead, 60))
	ofPrefix, ofSession, rng := g.sources()
	voc := words()
	system, first := make([]string, g.prefixes), make([]string, g.sessions)
	for i := range system {
		system[i] = text(ofPrefix(i), voc, shared)
	}
	for i := range first {
		first[i] = text(ofSession(i), voc, session)
	}
	out := make([]chatBody, g.count)
	for i := range out {
		s := g.pick(rng)
		out[i] = chatBody{
			Model: g.model,
			Messages: []chatMessage{
				{"system", system[s%g.prefixes]},
				{"user", first[s]},
				{"assistant", "Understood."},
				{"user", text(rng, voc, fresh)},
			},
			MaxTokens: 128, Temperature: 0.7, Seed: rng.Int63n(1 << 31), User: "session-" + strconv.Itoa(s), Stream: true,
		}
	}
	return out
}

type idsBody struct {
	Model     string   `json:"model"`
	Prompt    []uint32 `json:"prompt"`
	MaxTokens int      `json:"max_tokens"`
	Stream    bool     `json:"stream"`
}

// completions fills the same bytes with token ids: six for a token and its comma, as in a
// vocabulary of 150,000.
func (g *genConfig) completions() []idsBody {
	const overhead, perToken = 60, 6
	shared, session, fresh := g.shares(max(g.size-overhead, 60) / perToken)
	ofPrefix, ofSession, rng := g.sources()
	out := make([]idsBody, g.count)
	for i := range out {
		s := g.pick(rng)
		prompt := ids(ofPrefix(s%g.prefixes), nil, shared)
		prompt = ids(ofSession(s), prompt, session)
		out[i] = idsBody{Model: g.model, Prompt: ids(rng, prompt, fresh), MaxTokens: 128, Stream: true}
	}
	return out
}

// ids appends n token ids of five digits.
func ids(rng *rand.Rand, dst []uint32, n int) []uint32 {
	for range n {
		dst = append(dst, uint32(10_000+rng.Intn(90_000)))
	}
	return dst
}

// Texts consist of vocabularySize made-up words, drawn by Zipf's law, which words of any
// language follow.
const (
	vocabularySize = 50_000
	zipf           = 1.07
)

// words is the vocabulary, short words first as in a language.
func words() []string {
	const consonants, vowels = "bcdfghjklmnprstvw", "aeiou"
	rng := rand.New(rand.NewSource(1))
	out := make([]string, vocabularySize)
	for i := range out {
		var b []byte
		for range 1 + rng.Intn(1+bits.Len(uint(i))/4) {
			b = append(b, consonants[rng.Intn(len(consonants))], vowels[rng.Intn(len(vowels))])
		}
		out[i] = string(b) + " "
	}
	return out
}

// text returns n bytes of words.
func text(rng *rand.Rand, vocabulary []string, n int) string {
	z := rand.NewZipf(rng, zipf, 1, vocabularySize-1)
	var b strings.Builder
	b.Grow(n + 16)
	for b.Len() < n {
		b.WriteString(vocabulary[z.Uint64()])
	}
	return b.String()[:n]
}
