package pyvalue

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"warmroute/render/work"
)

// IsASCII reports whether every character of s is one byte: byte and character offsets
// are equal then.
func IsASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Len returns len(s), in characters.
func Len(s string) int {
	return utf8.RuneCountInString(s)
}

// IsSpace reports str.isspace of one character.
func IsSpace(r rune) bool {
	switch {
	case r <= ' ':
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r < 0x85:
		return false
	}
	return r == 0x85 || r == 0xa0 || r == 0x1680 || r >= 0x2000 && r <= 0x200a ||
		r == 0x2028 || r == 0x2029 || r == 0x202f || r == 0x205f || r == 0x3000
}

// partBytes is the memory of a part of a text, as a value.
const partBytes = 48

// Strip returns s.strip(). Like every function here that walks over a text, it charges
// b; its caller defers work.Catch.
func Strip(b *work.Budget, s string) string { return LStrip(b, RStrip(b, s)) }

// LStrip returns s.lstrip().
func LStrip(b *work.Budget, s string) string {
	for i, r := range s {
		b.Step(1)
		if !IsSpace(r) {
			return s[i:]
		}
	}
	return ""
}

// RStrip returns s.rstrip().
func RStrip(b *work.Budget, s string) string {
	for len(s) > 0 {
		r, n := utf8.DecodeLastRuneInString(s)
		if !IsSpace(r) {
			break
		}
		b.Step(1)
		s = s[:len(s)-n]
	}
	return s
}

// Fields returns s.split(None, limit); limit < 0 means no limit.
func Fields(b *work.Budget, s string, limit int) []string {
	var out []string
	for s = LStrip(b, s); s != ""; s = LStrip(b, s) {
		b.Step(1)
		b.Memory(partBytes)
		if limit >= 0 && len(out) == limit {
			return append(out, s) // trailing space stays
		}
		end := strings.IndexFunc(s, func(r rune) bool { b.Step(1); return IsSpace(r) })
		if end < 0 {
			return append(out, s)
		}
		out = append(out, s[:end])
		s = s[end:]
	}
	return out
}

// FieldsRight returns s.rsplit(None, limit).
func FieldsRight(b *work.Budget, s string, limit int) []string {
	if limit < 0 {
		return Fields(b, s, -1)
	}
	var out []string
	for s = RStrip(b, s); s != ""; s = RStrip(b, s) {
		b.Step(1)
		b.Memory(partBytes)
		if len(out) == limit {
			out = append(out, s) // leading space stays
			break
		}
		start := strings.LastIndexFunc(s, func(r rune) bool { b.Step(1); return IsSpace(r) })
		if start < 0 {
			out = append(out, s)
			break
		}
		_, n := utf8.DecodeRuneInString(s[start:])
		out = append(out, s[start+n:])
		s = s[:start]
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}

// SplitLines returns s.splitlines(keepEnds).
func SplitLines(b *work.Budget, s string, keepEnds bool) []string {
	b.Step(len(s) / 4)
	var out []string
	start := 0
	for i := 0; i < len(s); {
		r, n := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, n = utf8.DecodeRuneInString(s[i:])
		}
		if !isLineBreak(r) {
			i += n
			continue
		}
		end := i
		i += n
		if r == '\r' && i < len(s) && s[i] == '\n' {
			i++
		}
		if keepEnds {
			end = i
		}
		b.Memory(partBytes)
		out = append(out, s[start:end])
		start = i
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

func isLineBreak(r rune) bool {
	return r >= '\n' && r <= '\r' || r >= 0x1c && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// Upper returns s.upper().
func Upper(b *work.Budget, s string) string { return mapRunes(b, s, appendUpper) }

func appendUpper(dst []byte, r rune) []byte {
	if r < utf8.RuneSelf {
		if r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		return append(dst, byte(r))
	}
	if u, ok := specialUpper(r); ok {
		return append(dst, u...)
	}
	return utf8.AppendRune(dst, unicode.ToUpper(r))
}

func appendTitle(dst []byte, r rune) []byte {
	if u, ok := titleSpecial[r]; ok {
		return append(dst, u...)
	}
	return utf8.AppendRune(dst, unicode.ToTitle(r))
}

func mapRunes(b *work.Budget, s string, f func([]byte, rune) []byte) string {
	b.Memory(2 * len(s))
	dst := make([]byte, 0, len(s)+8)
	for _, r := range s {
		b.Step(1)
		dst = f(dst, r)
	}
	return string(dst)
}

// Lower returns s.lower(), the final sigma included.
func Lower(b *work.Budget, s string) string {
	b.Step(len(s) / 8)
	if IsASCII(s) {
		b.Memory(len(s))
		return strings.ToLower(s)
	}
	b.Memory(2 * len(s))
	dst := make([]byte, 0, len(s)+8)
	for i, r := range s {
		b.Step(1)
		dst = appendLower(b, dst, r, s, i)
	}
	return string(dst)
}

// appendLower appends the lower case of r, the character at s[i:].
func appendLower(b *work.Budget, dst []byte, r rune, s string, i int) []byte {
	switch r {
	case 'Σ':
		if finalSigma(b, s, i) {
			return append(dst, "ς"...)
		}
	case 'İ':
		return append(dst, "i\u0307"...)
	}
	return utf8.AppendRune(dst, unicode.ToLower(r))
}

// finalSigma reports whether the sigma at s[i:] is final: a cased letter is before it
// and none after it, with ignorable characters skipped.
func finalSigma(b *work.Budget, s string, i int) bool {
	before := s[:i]
	for {
		r, n := utf8.DecodeLastRuneInString(before)
		if n == 0 {
			return false
		}
		b.Step(1)
		if !isIgnorable(r) {
			if !isCased(r) {
				return false
			}
			break
		}
		before = before[:len(before)-n]
	}
	for _, r := range s[i+len("Σ"):] {
		b.Step(1)
		if !isIgnorable(r) {
			return !isCased(r)
		}
	}
	return true
}

// CaseFold returns s.casefold().
func CaseFold(b *work.Budget, s string) string {
	return mapRunes(b, s, appendFold)
}

// Capitalize returns s.capitalize().
func Capitalize(b *work.Budget, s string) string {
	b.Memory(2 * len(s))
	dst := make([]byte, 0, len(s)+8)
	for i, r := range s {
		b.Step(1)
		if i == 0 {
			dst = appendTitle(dst, r)
		} else {
			dst = appendLower(b, dst, r, s, i)
		}
	}
	return string(dst)
}

// Title returns s.title().
func Title(b *work.Budget, s string) string {
	b.Memory(2 * len(s))
	dst := make([]byte, 0, len(s)+8)
	inWord := false
	for i, r := range s {
		b.Step(1)
		if inWord {
			dst = appendLower(b, dst, r, s, i)
		} else {
			dst = appendTitle(dst, r)
		}
		inWord = isCased(r)
	}
	return string(dst)
}

// SwapCase returns s.swapcase().
func SwapCase(b *work.Budget, s string) string {
	b.Memory(2 * len(s))
	dst := make([]byte, 0, len(s)+8)
	for i, r := range s {
		b.Step(1)
		switch {
		case isUpper(r):
			dst = appendLower(b, dst, r, s, i)
		case isLower(r):
			dst = appendUpper(dst, r)
		default:
			dst = utf8.AppendRune(dst, r)
		}
	}
	return string(dst)
}

func isLower(r rune) bool { return unicode.IsLower(r) || unicode.Is(unicode.Other_Lowercase, r) }
func isUpper(r rune) bool { return unicode.IsUpper(r) || unicode.Is(unicode.Other_Uppercase, r) }
func isCased(r rune) bool { return isLower(r) || isUpper(r) || unicode.IsTitle(r) }

// IsDecimal reports str.isdecimal of one character.
func IsDecimal(r rune) bool { return unicode.Is(unicode.Nd, r) }

// IsAlnum reports str.isalnum of one character.
func IsAlnum(r rune) bool { return unicode.IsLetter(r) || IsNumeric(r) }

// IsPrintable reports str.isprintable of one character.
func IsPrintable(r rune) bool { return unicode.IsPrint(r) }

// IsLowerText reports s.islower().
func IsLowerText(b *work.Budget, s string) bool {
	cased := false
	for _, r := range s {
		b.Step(1)
		if isUpper(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isLower(r)
	}
	return cased
}

// IsUpperText reports s.isupper().
func IsUpperText(b *work.Budget, s string) bool {
	cased := false
	for _, r := range s {
		b.Step(1)
		if isLower(r) || unicode.IsTitle(r) {
			return false
		}
		cased = cased || isUpper(r)
	}
	return cased
}

// IsTitleText reports s.istitle().
func IsTitleText(b *work.Budget, s string) bool {
	cased, inWord := false, false
	for _, r := range s {
		b.Step(1)
		switch {
		case isUpper(r) || unicode.IsTitle(r):
			if inWord {
				return false
			}
			inWord, cased = true, true
		case isLower(r):
			if !inWord {
				return false
			}
			inWord, cased = true, true
		default:
			inWord = false
		}
	}
	return cased
}

// IsIdentifier reports s.isidentifier().
func IsIdentifier(b *work.Budget, s string) bool {
	for i, r := range s {
		b.Step(8)
		if i == 0 && !isIDStart(r) || i > 0 && !isIDContinue(r) {
			return false
		}
	}
	return s != ""
}
