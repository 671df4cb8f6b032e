package prefixhash

import (
	"github.com/cespare/xxhash/v2"
	"github.com/zeebo/xxh3"
)

const (
	// TextToken is the assumed length in bytes of a token of text, as in English.
	TextToken = 4
	// TextUnit is the unit in tokens of the marks of texts, which are TextMarks.
	TextUnit = 64
)

// TextMarks are the marks of texts, in tokens of TextToken bytes.
var TextMarks = newMarks(TextUnit, textSteps)

// MaxText is the number of bytes of a prompt that AppendText reads at most.
var MaxText = TextToken * TextMarks.End(TextMarks.Len())

// AppendText appends the keys of the prompt's windows, which end at TextMarks: xxhash64
// (seed 0) of the bytes of each, linked behind a root that depends on model, the served
// model id after resolving aliases. It reads at most MaxText bytes. Prompts shorter than
// one window have no key.
func AppendText(dst []Key, model string, prompt []byte) []Key {
	return appendWindows(dst, textRoot(model), prompt, 0)
}

// textRoot returns the root of a text chain. The model enters the chain here
// alone.
func textRoot(model string) Key {
	return notZero(xxh3.HashStringSeed(model, seedTextRoot))
}

// appendWindows appends the keys of the windows of text that follow the first ones.
func appendWindows(dst []Key, parent Key, text []byte, first int) []Key {
	begin := TextToken * TextMarks.End(first)
	for i := first; i < TextMarks.Len(); i++ {
		end := TextToken * TextMarks.End(i+1)
		if end > len(text) {
			break
		}
		parent = Link(parent, Content(xxhash.Sum64(text[begin:end])))
		dst, begin = append(dst, parent), end
	}
	return dst
}
