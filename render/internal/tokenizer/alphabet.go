package tokenizer

import "unicode/utf8"

// The byte-level alphabet writes every byte as a printable character: a byte that is
// printable in Latin-1 as that character, the other bytes from U+0100 on in order (GPT-2's
// bytes_to_unicode).
var byteRune, runeByte = byteAlphabet()

func byteAlphabet() (runes [256]rune, bytes [256 + 68]int16) {
	for i := range bytes {
		bytes[i] = -1
	}
	next := rune(256)
	for b := range runes {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			runes[b] = rune(b)
		} else {
			runes[b] = next
			next++
		}
		bytes[runes[b]] = int16(b)
	}
	return runes, bytes
}

// appendMapped appends text in the byte-level alphabet.
func appendMapped(dst, text []byte) []byte {
	for _, b := range text {
		dst = utf8.AppendRune(dst, byteRune[b])
	}
	return dst
}

// appendUnmapped appends the bytes of a text in the byte-level alphabet; ok is false if the
// text has any other character.
func appendUnmapped(dst, text []byte) (out []byte, ok bool) {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		if int(r) >= len(runeByte) || runeByte[r] < 0 {
			return dst, false
		}
		dst = append(dst, byte(runeByte[r]))
		text = text[n:]
	}
	return dst, true
}
