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
	p.fold(prompt, blocks, s.BlockSize)
	return prefixhash.AppendTokens(dst, p.root, prompt.Tokens[:blocks*s.BlockSize], s.BlockSize, p.extras)
}

func (p *tokenPrompts) Sentinel(s *index.Scope, i int) (content uint64, blocks int) {
	prompt := &p.prompts[i]
	if prompt.Partial || s.BlockSize <= 0 || len(prompt.Tokens) < s.BlockSize {
		return 0, 0
	}
	blocks = len(prompt.Tokens) / s.BlockSize
	p.fold(prompt, blocks, s.BlockSize)
	last := blocks - 1
	var extras [][]prefixhash.ExtraKey
	if last < len(p.extras) {
		extras = p.extras[last:]
	}
	p.contents = prefixhash.AppendContents(p.contents[:0], prompt.Tokens[last*s.BlockSize:blocks*s.BlockSize], s.BlockSize, extras)
	return uint64(p.contents[0]), blocks
}

// fold puts what the request mixes into its blocks into p.extras.
func (p *tokenPrompts) fold(prompt *tokens.Prompt, blocks, blockSize int) {
	mix := p.mix
	mix.MM = prompt.MM
	p.extras = mix.AppendExtras(p.extras[:0], blocks, blockSize)
}
