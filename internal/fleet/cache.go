package fleet

import (
	"strconv"
	"strings"

	"warmroute/internal/problems"
)

// CacheOptions are facts about a replica's KV cache groups that its events do not
// contain. All may be left out: predictions may then be wrong, and are called inexact.
type CacheOptions struct {
	// DraftGroups are the groups with layers of a draft model (EAGLE, MTP), which drop a block on every hit: "none",
	// "all", or numbers, "0,2"; "" = none, exact where /metrics shows no speculative decoding.
	DraftGroups string `yaml:"draft_groups,omitempty"`
	// PrefixMatchUnit is vLLM's --prefix-match-unit, where the replica does not report it.
	PrefixMatchUnit int `yaml:"prefix_match_unit,omitempty" unit:"tokens"`
	// ChunkSize is the model's attention_chunk_size.
	ChunkSize int `yaml:"attention_chunk_size,omitempty" unit:"tokens"`
	// ReplayWindow is the window that DeepSeek V4.1 computes again after each hit.
	ReplayWindow int `yaml:"replay_window,omitempty" unit:"tokens"`
}

// maxCacheGroups is more than any model has.
const maxCacheGroups = 32

func (c CacheOptions) validate(p *problems.List, at string) {
	_, ok := c.Drafts()
	p.Refuse(!ok, at+".draft_groups", "%q is none of \"none\", \"all\" and a list of group numbers", c.DraftGroups)
	p.Refuse(c.PrefixMatchUnit < 0, at+".prefix_match_unit", "%d is negative", c.PrefixMatchUnit)
	p.Refuse(c.ChunkSize < 0, at+".attention_chunk_size", "%d is negative", c.ChunkSize)
	p.Refuse(c.ReplayWindow < 0, at+".replay_window", "%d is negative", c.ReplayWindow)
}

// Drafts are DraftGroups as bits; ok is false when they cannot be read.
func (c CacheOptions) Drafts() (mask uint32, ok bool) {
	switch c.DraftGroups {
	case "", "none":
		return 0, true
	case "all":
		return ^uint32(0), true
	}
	for one := range strings.SplitSeq(c.DraftGroups, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(one))
		if err != nil || n < 0 || n >= maxCacheGroups {
			return 0, false
		}
		mask |= 1 << n
	}
	return mask, true
}
