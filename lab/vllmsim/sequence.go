package vllmsim

import (
	"time"
)

// adapter is a LoRA and its number in vLLM.
type adapter struct {
	LoRA
	id int
}

// image is the place of one multimodal item in a prompt.
type image struct {
	id             string
	offset, length int
}

// sequence is one prompt and its answer. An engine owns it from submit until its last
// token.
type sequence struct {
	// Set by the caller of submit.
	prompt    int      // prompt tokens
	tokens    []uint32 // the prompt, later the answer too
	maxTokens int
	lora      *adapter
	salt      string
	images    []image
	noRead    bool // reads nothing from the cache, as with prompt_logprobs
	session   string
	report    bool // announces the blocks of a hit, too: 0.32's kv_cache_report_mode "full"
	next      func(n int) uint32
	index     int        // position among the sequences of its request
	out       chan token // shared by a request's sequences, with capacity for maxTokens+1 of each: the engine never waits

	aborted bool // set under the engine's lock

	hashes    []digest // one of each full hash unit so far
	tables    []table  // by group
	junction  int      // see hit
	computed  int      // tokens whose KV is computed, or in computation
	scheduled int      // tokens of the current step
	admitted  bool
	preempted bool
	hit       int // tokens read from the cache at first admission

	leg         *leg  // its prompt is handed out to another replica; nil: it is not
	pull        *pull // its prompt comes from another replica; nil: it does not
	transferred int   // prompt tokens that came from elsewhere

	arrived, started, firstToken, lastToken time.Time
}

// token is one token of an answer, or the news that the engine dropped its sequence.
type token struct {
	index   int // of its sequence
	id      uint32
	hit     int    // prompt tokens read from the cache
	created int    // prompt tokens put into the cache, full blocks only
	last    bool   // the answer is complete
	gone    bool   // the engine dropped the sequence: no id
	params  []byte // with which another replica can pull the prompt; nil: none
}

// hashBlocks extends hashes to every full unit of tokens.
func (s *sequence) hashBlocks(h *hasher, unit int) {
	for i := len(s.hashes); (i+1)*unit <= len(s.tokens); i++ {
		parent := &h.root
		if i > 0 {
			parent = &s.hashes[i-1]
		}
		s.hashes = append(s.hashes, h.block(parent, s.tokens[i*unit:(i+1)*unit], s.extraKeys(i*unit, (i+1)*unit)))
	}
}

// extraKeys returns the extra keys of the block [start, end) in vLLM's order: LoRA, the
// images that overlap the block, and in the first block the salt.
func (s *sequence) extraKeys(start, end int) (keys []extraKey) {
	if s.lora != nil {
		keys = append(keys, extraKey{tag: "lora", text: s.lora.Name, path: s.lora.Path})
	}
	for _, m := range s.images {
		if m.offset < end && start < m.offset+m.length {
			keys = append(keys, extraKey{tag: "mm", text: m.id, offset: m.offset - start})
		}
	}
	if start == 0 && s.salt != "" {
		keys = append(keys, extraKey{tag: "cache_salt", text: s.salt})
	}
	return keys
}
