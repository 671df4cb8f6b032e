package agents

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
)

// Turn is one request of a session.
type Turn struct {
	Input, Output int
	Same          int     // tokens of the input that begin the input before it, too; of a first input, that begin other sessions
	After         float64 // s from the answer before it
}

// longest bounds an input and its answer, in tokens.
const longest = 1 << 30

// UnmarshalJSON reads a turn as [input, output, same, after].
func (t *Turn) UnmarshalJSON(text []byte) error {
	var v [4]float64
	if err := json.Unmarshal(text, &v); err != nil {
		return fmt.Errorf("turn: %w", err)
	}
	if v[0] < 1 || v[0]+v[1] > longest || v[1] < 0 || v[2] < 0 || v[2] > v[0] || v[3] < 0 {
		return fmt.Errorf("turn: %s: lengths must be positive, and what is the same no longer than the input", text)
	}
	*t = Turn{int(v[0]), max(1, int(v[1])), int(v[2]), v[3]} // an answer that was cut off had a token
	return nil
}

// Load reads sessions: a list of lists of turns in JSON, which may be compressed with gzip.
func Load(path string) (all [][]Turn, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("agents: %w", err)
	}
	defer f.Close()
	in := bufio.NewReader(f)
	text := io.Reader(in)
	if head, _ := in.Peek(2); string(head) == "\x1f\x8b" {
		if text, err = gzip.NewReader(in); err != nil {
			return nil, fmt.Errorf("agents: %s: %w", path, err)
		}
	}
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		return nil, fmt.Errorf("agents: %s: %w", path, err)
	}
	if all = slices.DeleteFunc(all, func(s []Turn) bool { return len(s) == 0 }); len(all) == 0 {
		return nil, fmt.Errorf("agents: %s has no sessions", path)
	}
	return all, nil
}

// Generate returns n sessions with the laws of recorded ones of coding agents: the middle half of
// the first prompts has 19,000 to 110,000 tokens, a turn adds 720 in the median, answers have 220,
// the next turn comes after 10 s, and one in sixty rewrites all behind the first 15,000 tokens.
func Generate(n int, seed uint64) [][]Turn {
	rng := rand.New(rand.NewPCG(seed, 91))
	drawn := func(median, deviation, least, most float64) float64 {
		return min(most, max(least, median*math.Exp(deviation*rng.NormFloat64())))
	}
	all := make([][]Turn, n)
	for i := range all {
		t := Turn{Input: int(drawn(42_000, 1, 11_000, 400_000)), Output: int(drawn(220, 1, 50, 8000))}
		all[i] = []Turn{t}
		for range int(drawn(42, 1.2, 2, 400)) {
			before := t.Input
			t = Turn{Output: int(drawn(220, 1, 50, 8000)), After: drawn(10, 1.7, 2, 10_000)}
			switch grown := int(drawn(720, 1.15, 100, 40_000)); {
			case before > 450_000 || before > 30_000 && rng.IntN(60) == 0:
				t.Same = int(drawn(15_000, 0.15, 8000, 24_000)) / block * block
				t.Input = t.Same + int(float64(before)*(0.3+0.5*rng.Float64()))
			default:
				t.Same = before / block * block
				t.Input = t.Same + grown
			}
			all[i] = append(all[i], t)
		}
	}
	return all
}
