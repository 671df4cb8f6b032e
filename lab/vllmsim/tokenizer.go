package vllmsim

import "strings"

// The simulator's own tokenizer splits text into words (with the space before them),
// numbers, punctuation and white space. From the left it splits each of them into pieces:
// three bytes of lower-case letters, digits and spaces, or at most two of any bytes. A
// piece's id is the number that its bytes form. So every text has one token sequence,
// decode gives the text back, and the text of a sequence's first tokens encodes to those
// tokens. The tokenizer needs no files; WriteModel writes files with which other
// tokenizers give the same tokens.
const (
	oneByte     = 0
	twoBytes    = oneByte + 1<<8
	threeBytes  = twoBytes + 1<<16
	firstMarker = threeBytes + dense*dense*dense
)

// dense is the number of different bytes of which three make a piece; denseBytes are
// these bytes.
const (
	dense      = uint32(len(denseBytes))
	denseBytes = " 0123456789abcdefghijklmnopqrstuvwxyz"
)

// denseAt returns the index of b in denseBytes, or -1.
func denseAt(b byte) int {
	switch {
	case b == ' ':
		return 0
	case '0' <= b && b <= '9':
		return int(b-'0') + 1
	case 'a' <= b && b <= 'z':
		return int(b-'a') + 11
	}
	return -1
}

// markers are the special tokens, with ids from firstMarker on.
var markers = []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|image|>"}

const imageMarker = firstMarker + 3

func vocabulary() uint32 { return firstMarker + uint32(len(markers)) }

// markerAt returns the index of the special token at the start of s, or -1.
func markerAt(s string) int {
	if !strings.HasPrefix(s, "<|") {
		return -1
	}
	for i, m := range markers {
		if strings.HasPrefix(s, m) {
			return i
		}
	}
	return -1
}

type byteClass uint8

const (
	letters byteClass = iota // and every byte of a non-ASCII character
	digits
	spaces
	others
)

func classOf(b byte) byteClass {
	switch {
	case b >= 0x80, 'a' <= b && b <= 'z', 'A' <= b && b <= 'Z':
		return letters
	case '0' <= b && b <= '9':
		return digits
	case b == ' ', b == '\n', b == '\t', b == '\r':
		return spaces
	}
	return others
}

// encode appends the tokens of text. A special token written out in text counts as one,
// as with real tokenizers.
func encode(dst []uint32, text string) []uint32 {
	for len(text) > 0 {
		if m := markerAt(text); m >= 0 {
			dst = append(dst, firstMarker+uint32(m))
			text = text[len(markers[m]):]
			continue
		}
		n := wordLen(text)
		for i := 0; i < n; {
			size := pieceLen(text[i:n])
			dst = append(dst, pieceID(text[i:i+size]))
			i += size
		}
		text = text[n:]
	}
	return dst
}

// wordLen returns the length of the first word of text: at most one space, then a run of
// one class that ends before a special token. White space leaves its last space to the
// next word.
func wordLen(text string) int {
	i := 0
	if text[0] == ' ' && len(text) > 1 && classOf(text[1]) != spaces && markerAt(text[1:]) < 0 {
		i = 1
	}
	class := classOf(text[i])
	for i++; i < len(text) && classOf(text[i]) == class && markerAt(text[i:]) < 0; {
		i++
	}
	if class == spaces && i > 1 && i < len(text) && text[i-1] == ' ' && markerAt(text[i:]) < 0 {
		i--
	}
	return i
}

// pieceLen returns the length of a word's first piece.
func pieceLen(word string) int {
	if len(word) >= 3 && denseAt(word[0]) >= 0 && denseAt(word[1]) >= 0 && denseAt(word[2]) >= 0 {
		return 3
	}
	return min(len(word), 2)
}

func pieceID(p string) uint32 {
	switch len(p) {
	case 1:
		return oneByte + uint32(p[0])
	case 2:
		return twoBytes + uint32(p[0])<<8 + uint32(p[1])
	}
	id := uint32(0)
	for i := range 3 {
		id = id*dense + uint32(denseAt(p[i]))
	}
	return threeBytes + id
}

// decode appends the text of one token. An id beyond the vocabulary has no text; only
// prompts of token ids and Options.Generate can contain one.
func decode(dst []byte, id uint32) []byte {
	switch {
	case id >= vocabulary():
		return dst
	case id >= firstMarker:
		return append(dst, markers[id-firstMarker]...)
	case id >= threeBytes:
		id -= threeBytes
		return append(dst, denseBytes[id/dense/dense], denseBytes[id/dense%dense], denseBytes[id%dense])
	case id >= twoBytes:
		id -= twoBytes
		return append(dst, byte(id>>8), byte(id))
	}
	return append(dst, byte(id))
}

func decodeAll(ids []uint32) string {
	var b []byte
	for _, id := range ids {
		b = decode(b, id)
	}
	return string(b)
}
