package filter

import (
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
	"warmroute/render/openai"
	"warmroute/render/work"
)

// maxLookup bounds the hashed tokens of a prompt, from its start: 1 Mi exceeds every
// context length, and takes 20 ms to hash.
const maxLookup = 1 << 20

// tokenPrompts are prompts as token ids.
type tokenPrompts struct {
	prompts []tokens.Prompt
	root    prefixhash.Key
	base    string // the model's name in root
	mix     prefixhash.Request
	most    int          // tokens of a prompt that are looked up
	budget  *work.Budget // of hashing; nil: no limits
	stopped bool         // the budget has ended: keys are missing

	extras   [][]prefixhash.ExtraKey
	contents []prefixhash.Content
	digests  []prefixhash.Digest
}

func (p *tokenPrompts) set(mv *decision.View, req *openai.Request, prompts []tokens.Prompt, most int) {
	p.prompts, p.most = prompts, most
	p.base = mv.Model().Base
	p.root = prefixhash.TokenRoot(mv.Model().Base, mv.Model().LoRA)
	p.mix = prefixhash.Request{LoRA: mv.Model().LoRA, LoRAPath: mv.Model().LoRA.Path, CacheSalt: mv.Salt(req), Namespace: req.ExtraKey}
}

func (p *tokenPrompts) Len() int { return len(p.prompts) }

func (p *tokenPrompts) Tokens(i int) int { return len(p.prompts[i].Tokens) }

// AppendKeys implements decision.Prompts. The chains after it are of the scope's adapter, too.
func (p *tokenPrompts) AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key {
	if s.LoRA.Same(p.mix.LoRA) && s.LoRA != p.mix.LoRA { // replicas have it from different paths
		p.mix.LoRA, p.mix.LoRAPath, p.root = s.LoRA, s.LoRA.Path, prefixhash.TokenRoot(p.base, s.LoRA)
	}
	prompt := &p.prompts[i]
	usable := len(prompt.Tokens)
	if !prompt.Partial {
		usable-- // vLLM always computes the last prompt token
	}
	usable = min(usable, p.most)
	usable = min(usable, maxLookup)
	if s.BlockSize <= 0 || usable < s.BlockSize {
		return dst
	}
	blocks := usable / s.BlockSize
	p.fold(prompt, blocks, s.BlockSize, 0)
	return p.appendTokens(dst, prompt.Tokens[:blocks*s.BlockSize], s.BlockSize, 0)
}

// The budget is asked between pieces of a prompt. Hashing costs about 20 ns a token, and by
// vLLM's own algorithms five times as much.
const (
	pieceTokens  = 4096
	pieceSteps   = 2 * pieceTokens
	digestFactor = 5
)

// appendTokens is prefixhash.AppendTokens behind the prompt's root, piece by piece. It
// ends early when the budget does.
func (p *tokenPrompts) appendTokens(dst []prefixhash.Key, ids []uint32, unit, ahead int) []prefixhash.Key {
	parent, piece := p.root, max(1, pieceTokens/unit)
	for at := 0; len(ids) >= unit+ahead && p.pay(pieceSteps); at += piece {
		extras := p.extras[min(at, len(p.extras)):]
		n := min(len(ids), piece*unit+ahead)
		dst = prefixhash.AppendTokens(dst, parent, ids[:n], prefixhash.Blocks{Size: unit, Ahead: ahead}, extras)
		parent, ids = dst[len(dst)-1], ids[min(len(ids), piece*unit):]
	}
	return dst
}

// pay charges the budget, and reports whether it may go on.
func (p *tokenPrompts) pay(steps int) bool {
	p.stopped = p.stopped || p.budget != nil && charge(p.budget, steps) != nil
	return !p.stopped
}

func charge(b *work.Budget, steps int) (err error) {
	defer work.Catch(&err)
	b.Step(steps)
	return nil
}

// Length implements decision.Prompts.
func (p *tokenPrompts) Length(i int) int {
	n := min(len(p.prompts[i].Tokens), p.most, maxLookup)
	if p.prompts[i].Partial || n < len(p.prompts[i].Tokens) {
		n++
	}
	return n
}

// AppendChain implements decision.Prompts.
func (p *tokenPrompts) AppendChain(dst []prefixhash.Key, c index.Keying, i int) []prefixhash.Key {
	prompt := &p.prompts[i]
	n := min(len(prompt.Tokens), p.most, maxLookup)
	if c.Unit <= 0 || n < c.Unit {
		return dst
	}
	if c.Hash == nil {
		return p.appendSeen(dst, prompt, c, n)
	}
	root, ok := c.Hash.Root()
	if !ok || p.mix.LoRA.Set && p.mix.LoRAPath == "" && c.Hash.Generation() == prefixhash.Tagged {
		return dst // the adapter's path is in the hash
	}
	mix := p.mix
	mix.MM = prompt.MM
	blocks, piece := n/c.Unit, max(1, pieceTokens/c.Unit)
	for at := 0; at < blocks && p.pay(digestFactor*pieceSteps); at += piece {
		end := min(at+piece, blocks)
		p.digests = c.Hash.AppendDigests(p.digests[:0], prefixhash.Position{Parent: root, Block: at}, prompt.Tokens[at*c.Unit:end*c.Unit], c.Unit, mix)
		for _, d := range p.digests {
			dst = append(dst, d.Key())
		}
		root = p.digests[len(p.digests)-1]
	}
	return dst
}

// appendSeen appends the keys of a prompt's first n tokens on a chain of this project, as far
// as the request's values show in it.
func (p *tokenPrompts) appendSeen(dst []prefixhash.Key, prompt *tokens.Prompt, c index.Keying, n int) []prefixhash.Key {
	ids, b := prompt.Tokens[:n], prefixhash.Blocks{Size: c.Unit, Ahead: c.Ahead}
	if c.Sight == index.SightUsual {
		p.fold(prompt, n/c.Unit, c.Unit, c.Ahead)
		return p.appendTokens(dst, ids, c.Unit, c.Ahead)
	}
	mix, root, known := c.Sight.Seen(p.mix), p.root, p.extras
	mix.MM = prompt.MM
	if !mix.LoRA.Set && p.mix.LoRA.Set {
		root = prefixhash.TokenRoot(p.base, mix.LoRA)
	}
	p.extras = mix.InNamespace(mix.AppendExtras(nil, n/c.Unit, c.Unit, c.Ahead), ids, b)
	usual := p.root
	p.root = root
	dst = p.appendTokens(dst, ids, c.Unit, c.Ahead)
	p.extras, p.root = known, usual
	return dst
}

// Mixes returns the values that the request mixes into its blocks.
func (p *tokenPrompts) Mixes() index.Mix {
	return index.Mix{Salt: p.mix.CacheSalt != nil && *p.mix.CacheSalt != "", LoRA: p.mix.LoRA.Set, Namespace: p.mix.Namespace != ""}
}

func (p *tokenPrompts) Sentinel(s *index.Scope, i int) (content uint64, blocks int) {
	prompt := &p.prompts[i]
	if prompt.Partial || s.BlockSize <= 0 || len(prompt.Tokens) < s.BlockSize {
		return 0, 0
	}
	blocks = len(prompt.Tokens) / s.BlockSize
	p.fold(prompt, blocks, s.BlockSize, 0)
	last := blocks - 1
	var extras [][]prefixhash.ExtraKey
	if last < len(p.extras) {
		extras = p.extras[last:]
	}
	p.contents = prefixhash.AppendContents(p.contents[:0], prompt.Tokens[last*s.BlockSize:blocks*s.BlockSize], prefixhash.Blocks{Size: s.BlockSize}, extras)
	return uint64(p.contents[0]), blocks
}

// fold adds the request's extra keys of its blocks to p.extras. The keys of a block cover
// the ahead tokens behind it too.
func (p *tokenPrompts) fold(prompt *tokens.Prompt, blocks, blockSize, ahead int) {
	mix := p.mix
	mix.MM = prompt.MM
	p.extras = mix.AppendExtras(p.extras[:0], blocks, blockSize, ahead)
}
