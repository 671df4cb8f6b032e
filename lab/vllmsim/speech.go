package vllmsim

import (
	"hash/fnv"
	"math/rand/v2"
)

// speech makes up an answer, word by word. Its text encodes to the very tokens that next
// returned, so that a conversation's next turn finds the answer's blocks cached, as with
// a real model.
type speech struct {
	r     *rand.Rand
	ahead []uint32
	words int // words so far
	text  []byte
}

var vocables = []string{
	"the", "cache", "holds", "what", "was", "read", "before", "so", "every", "next", "turn", "starts", "from", "a", "warm",
	"prefix", "and", "only", "new", "words", "are", "computed", "again", "while", "others", "wait", "for", "their", "place",
}

// newSpeech returns the answer to prompt: the same for the same seed and prompt.
func newSpeech(seed int64, prompt []uint32) *speech {
	h := fnv.New64a()
	var b [4]byte
	for _, t := range prompt {
		b[0], b[1], b[2], b[3] = byte(t), byte(t>>8), byte(t>>16), byte(t>>24)
		_, _ = h.Write(b[:])
	}
	return &speech{r: rand.New(rand.NewPCG(uint64(seed), h.Sum64()))} // made-up words need no secrecy
}

// next returns the next token.
func (s *speech) next() uint32 {
	for len(s.ahead) == 0 {
		s.text = s.text[:0]
		if s.words > 0 {
			s.text = append(s.text, ' ')
		}
		s.text = append(s.text, vocables[s.r.IntN(len(vocables))]...)
		s.words++
		s.ahead = encode(s.ahead[:0], string(s.text))
		if s.words%12 == 0 {
			s.ahead = encode(s.ahead, ".")
		}
	}
	t := s.ahead[0]
	s.ahead = s.ahead[1:]
	return t
}
