package hybrid

// Trust says how reliable the predictions for a cache are.
type Trust struct {
	Exact bool   `json:"exact"`
	Above bool   `json:"above,omitempty"` // it is an upper bound: a count below it is no fault
	Why   string `json:"why"`             // one sentence, when not exact
	None  bool   `json:"-"`               // nothing is hit: it is not known what the groups need

	repeats bool // Why is about blocks that were announced again: prompts without such blocks are exact
	gone    bool // Why is about blocks of the tier that may be gone: prompts without such blocks are exact
}

// String returns the verdict in one word.
func (t Trust) String() string {
	if t.Exact {
		return "exact"
	}
	return "inexact"
}

// Trust returns how reliable the member's answers are; false: no event has told, or only events without
// the keys of their blocks.
func (m *Member) Trust() (t Trust, ok bool) {
	if p := m.trust.Load(); p != nil && m.keyed.Load() {
		if why := m.unseenWhy(Mix{}); why != "" && p.Exact {
			return Trust{Above: true, Why: why}, true
		}
		return *p, true
	}
	return Trust{}, false
}

// updateTrust publishes how reliable the member's plan is, if it has one.
func (m *Member) updateTrust() {
	p := m.plan.Load()
	if p == nil {
		return
	}
	t := m.judge(p)
	if was := m.trust.Load(); was == nil || *was != t {
		m.trust.Store(&t)
	}
}

// judge returns the first reason against a plan, if any.
func (m *Member) judge(p *Plan) Trust {
	told := m.told()
	inexact := func(why string) Trust { return Trust{Why: why} }
	switch byHash := !m.plain && !p.layout.ByTokens(); {
	case !p.layout.Known:
		return Trust{None: true, Why: "its events do not name the kinds of its cache groups, or name one that is not known here, so it counts as holding nothing: update vLLM to 0.27 or later, or this router"}
	case m.observed.doubt != "":
		return Trust{Above: true, Why: m.observed.doubt}
	case m.held.lost:
		return inexact("it holds more blocks than are kept of one cache, so less may be credited than is hit")
	case byHash && m.observed.ahead > 0:
		return inexact("its blocks lie where only vLLM's own hashes show, and those cover the tokens behind a block, which is not followed, so less may be credited than is hit: set disable_lookahead_block_hashes in its speculative configuration")
	case byHash && p.keying.Hash == nil:
		return inexact("its blocks lie where only vLLM's own hashes show, and its hash algorithm or seed is not known, so less may be credited than is hit: set hash_seed")
	case p.layout.lacksChunk():
		return inexact("the chunk size of its attention is not known: set attention_chunk_size, or keep the model's config.json beside its tokenizer")
	case told.Limit != "" && (!p.layout.Plain() || told.Rule == RuleSGLang):
		return Trust{Above: told.Rule == RuleSGLang, Why: told.Limit}
	case told.Loads && m.observed.ahead > 0:
		return inexact("it drafts, so what it loads from the host's memory is not predicted, and less may be credited than is hit")
	case p.layout.one() && p.layout.Specs[0].Spec == "" && told.Rule != RuleSGLang:
		return inexact("its events do not name the kind of its cache, as those of vLLM before 0.27 do not: it is taken for full attention")
	case !told.EagleKnown:
		return inexact("it drafts, or does not show that it does not, and which groups drop a block for a draft model is not known, so a block too many may be credited: set draft_groups")
	case m.belowWhy(p) != "":
		return inexact(m.belowWhy(p))
	case m.goneWhy() != "":
		return Trust{gone: true, Why: m.goneWhy()}
	case m.reports.doubt():
		return Trust{repeats: true, Why: "it announces blocks again that requests have hit (kv_cache_report_mode full), which cannot always be told from copies, so less may be credited than is hit"}
	}
	return Trust{Exact: true}
}
