package brain

import (
	"encoding/binary"

	"warmroute/index"
	"warmroute/prefixhash"
)

// prompt is a prompt by its keys.
type prompt struct {
	keys  []prefixhash.Key
	input int
	last  uint64 // content of the last block if keys are a chain, else 0
}

// chain replaces keys, which name blocks, by the index's chain of the full blocks, so that
// events can report the blocks of each group separately.
func (p *prompt) chain(block int) {
	p.keys = p.keys[:min(len(p.keys), p.input/block)]
	parent := prefixhash.TokenRoot(model, prefixhash.LoRA{})
	for i, k := range p.keys {
		p.last = uint64(k)
		parent = prefixhash.Link(parent, prefixhash.Content(k))
		p.keys[i] = parent
	}
}

func (p *prompt) Len() int       { return 1 }
func (p *prompt) Tokens(int) int { return p.input }

func (p *prompt) AppendKeys(dst []prefixhash.Key, _ *index.Scope, _ int) []prefixhash.Key {
	return append(dst, p.keys...)
}

func (p *prompt) Length(int) int { return p.input }

// AppendChain implements decision.Prompts: block ids are the only chain.
func (p *prompt) AppendChain(dst []prefixhash.Key, c index.Keying, _ int) []prefixhash.Key {
	if c.Hash != nil {
		return dst
	}
	return append(dst, p.keys...)
}

func (p *prompt) Sentinel(*index.Scope, int) (content uint64, blocks int) {
	if len(p.keys) == 0 {
		return 0, 0
	}
	if p.last != 0 {
		return p.last, len(p.keys)
	}
	return uint64(p.keys[len(p.keys)-1]), len(p.keys)
}

// readText asks by a text of the prompt in place of its ids: its bytes are the blocks'
// ids, and each token has as many as the router assumes.
func (b *Brain) readText(input int, blocks []int64) {
	b.text = b.text[:0]
	size := b.o.Block * prefixhash.TextToken
	for _, block := range blocks {
		for range size / 8 {
			b.text = binary.LittleEndian.AppendUint64(b.text, uint64(block))
		}
	}
	b.text = b.text[:min(len(b.text), input*prefixhash.TextToken)]
	b.chain = prefixhash.AppendText(b.chain[:0], model, b.text)
	b.ask.Prompts, b.ask.Text, b.ask.TextTokens = nil, b.chain, input
}
