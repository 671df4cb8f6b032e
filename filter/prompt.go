package filter

import (
	"warmroute/index"
	"warmroute/internal/decision"
	"warmroute/internal/openai"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
)

// maxLookup bounds the tokens of a prompt that are hashed, from its start: 1 Mi
// is beyond every context length there is, and 20 ms of hashing.
const maxLookup = 1 << 20

// tokenPrompts are prompts as token ids.
type tokenPrompts struct {
	prompts []tokens.Prompt
	root    prefixhash.Key
	mix     prefixhash.Request
	most    int // tokens of a prompt that are looked up

	extras   [][]prefixhash.ExtraKey
	contents []prefixhash.Content
	digests  []prefixhash.Digest
}

func (p *tokenPrompts) set(mv *decision.View, req *openai.Request, prompts []tokens.Prompt, most int) {
	p.prompts, p.most = prompts, most
	p.root = prefixhash.TokenRoot(mv.Model().Base, mv.Model().LoRA)
	p.mix = prefixhash.Request{LoRA: mv.Model().LoRA, LoRAPath: mv.Model().LoRAPath, CacheSalt: mv.Salt(req)}
}

func (p *tokenPrompts) Len() int { return len(p.prompts) }

func (p *tokenPrompts) Tokens(i int) int { return len(p.prompts[i].Tokens) }

func (p *tokenPrompts) AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key {
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
	return prefixhash.AppendTokens(dst, p.root, prompt.Tokens[:blocks*s.BlockSize], s.BlockSize, p.extras)
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
func (p *tokenPrompts) AppendChain(dst []prefixhash.Key, c index.Chain, i int) []prefixhash.Key {
	prompt := &p.prompts[i]
	n := min(len(prompt.Tokens), p.most, maxLookup)
	if c.Unit <= 0 || n < c.Unit {
		return dst
	}
	if c.Hash == nil {
		blocks := n / c.Unit
		p.fold(prompt, blocks, c.Unit, c.Ahead)
		return prefixhash.AppendTokensAhead(dst, p.root, prompt.Tokens[:n], c.Unit, c.Ahead, p.extras)
	}
	root, ok := c.Hash.Root()
	if !ok || p.mix.LoRA.Set && p.mix.LoRAPath == "" && c.Hash.Generation() == prefixhash.Tagged {
		return dst // the adapter's path is in the hash
	}
	mix := p.mix
	mix.MM = prompt.MM
	p.digests = c.Hash.AppendDigests(p.digests[:0], root, prompt.Tokens[:n], 0, c.Unit, mix)
	for _, d := range p.digests {
		dst = append(dst, d.Key())
	}
	return dst
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
	p.contents = prefixhash.AppendContents(p.contents[:0], prompt.Tokens[last*s.BlockSize:blocks*s.BlockSize], s.BlockSize, extras)
	return uint64(p.contents[0]), blocks
}

// fold puts the request's extra keys of its blocks, which cover the ahead tokens
// behind them, too, into p.extras.
func (p *tokenPrompts) fold(prompt *tokens.Prompt, blocks, blockSize, ahead int) {
	mix := p.mix
	mix.MM = prompt.MM
	p.extras = mix.AppendExtrasAhead(p.extras[:0], blocks, blockSize, ahead)
}
