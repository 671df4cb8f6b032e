package prefixhash

import (
	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

const (
	// TextWindow is the size in bytes of a block of the text chain: about 64
	// tokens of English, a few of vLLM's blocks, so that a prompt of a thousand
	// tokens has more than a dozen keys.
	TextWindow = 256
	// TextWindows bounds the keys of a prompt. The first 16 KiB distinguish
	// conversations; their later text goes to the same replica.
	TextWindows = 64
)

// AppendText appends the keys of the prompt's full windows: xxhash64 (seed 0) of
// TextWindow bytes each, counted from the prompt's first byte, at most
// TextWindows of them, linked behind a root that depends on model, the served
// model id after resolving aliases. Prompts shorter than one window have no key.
func AppendText(dst []Key, model string, prompt []byte) []Key {
	return appendWindows(dst, textRoot(model), prompt, TextWindows)
}

// textRoot returns the root of a text chain. The model enters the chain here
// alone.
func textRoot(model string) Key {
	return notZero(xxh3.HashStringSeed(model, seedTextRoot))
}

func appendWindows(dst []Key, parent Key, text []byte, most int) []Key {
	for ; most > 0 && len(text) >= TextWindow; most-- {
		parent = Link(parent, Content(xxhash.Sum64(text[:TextWindow])))
		dst = append(dst, parent)
		text = text[TextWindow:]
	}
	return dst
}
