package filter

import (
	"warmroute/index"
	"warmroute/internal/openai"
	"warmroute/internal/tokens"
	"warmroute/prefixhash"
)

// Prompts are the block keys of a request's prompts, for whatever scope they
// are wanted.
type Prompts interface {
	// Len is the number of prompts.
	Len() int
	// Tokens is the length of prompt i in tokens.
	Tokens(i int) int
	// AppendKeys appends the keys of those blocks of prompt i that a cache can
	// spare it from computing: all full ones, but never the last token.
	AppendKeys(dst []prefixhash.Key, s *index.Scope, i int) []prefixhash.Key
	// Mark is what the event that stores prompt i's last full block says of
	// that block (its content, or its engine hash where that is the key), and
	// the number of full blocks; 0 when that cannot be known.
	Mark(s *index.Scope, i int) (mark uint64, blocks int)
}

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

func (p *tokenPrompts) set(mv *modelView, req *openai.Request, prompts []tokens.Prompt, most int) {
	p.prompts, p.most = prompts, most
	p.root = prefixhash.TokenRoot(mv.model.Base, mv.model.LoRA)
	p.mix = prefixhash.Request{LoRA: mv.model.LoRA, LoRAPath: mv.model.LoRAPath, CacheSalt: mv.salt(req)}
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

func (p *tokenPrompts) Mark(s *index.Scope, i int) (mark uint64, blocks int) {
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
