package pyvalue

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// This file has the properties of characters that CPython 3.12's str uses and Go's
// unicode package lacks; both have Unicode 15.0. Tests compare every function over all
// code points with the digests that gen/unicode_digest.py makes with CPython
// (testdata/unicode.txt).

// upperSpecial and titleSpecial map characters to their upper and title case of several
// characters. Each word below is a character and its case. The Greek letters with
// ypogegrammeni of U+1F80 to U+1FAF follow a rule; see specialUpper.
var (
	upperSpecial = special("\u00dfSS \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 \u0587\u0535\u0552 \u1e96H\u0331 " +
		"\u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be \u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 " +
		"\u1f56\u03a5\u0313\u0342 \u1fb2\u1fba\u0399 \u1fb3\u0391\u0399 \u1fb4\u0386\u0399 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0399 " +
		"\u1fbc\u0391\u0399 \u1fc2\u1fca\u0399 \u1fc3\u0397\u0399 \u1fc4\u0389\u0399 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0399 " +
		"\u1fcc\u0397\u0399 \u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 \u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 " +
		"\u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 \u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 " +
		"\u1ff2\u1ffa\u0399 \u1ff3\u03a9\u0399 \u1ff4\u038f\u0399 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0399 \u1ffc\u03a9\u0399 \ufb00FF " +
		"\ufb01FI \ufb02FL \ufb03FFI \ufb04FFL \ufb05ST \ufb06ST \ufb13\u0544\u0546 \ufb14\u0544\u0535 \ufb15\u0544\u053b " +
		"\ufb16\u054e\u0546 \ufb17\u0544\u053d")
	titleSpecial = special("\u00dfSs \u0149\u02bcN \u01f0J\u030c \u0390\u0399\u0308\u0301 \u03b0\u03a5\u0308\u0301 \u0587\u0535\u0582 \u1e96H\u0331 " +
		"\u1e97T\u0308 \u1e98W\u030a \u1e99Y\u030a \u1e9aA\u02be \u1f50\u03a5\u0313 \u1f52\u03a5\u0313\u0300 \u1f54\u03a5\u0313\u0301 " +
		"\u1f56\u03a5\u0313\u0342 \u1fb2\u1fba\u0345 \u1fb4\u0386\u0345 \u1fb6\u0391\u0342 \u1fb7\u0391\u0342\u0345 \u1fc2\u1fca\u0345 " +
		"\u1fc4\u0389\u0345 \u1fc6\u0397\u0342 \u1fc7\u0397\u0342\u0345 \u1fd2\u0399\u0308\u0300 \u1fd3\u0399\u0308\u0301 " +
		"\u1fd6\u0399\u0342 \u1fd7\u0399\u0308\u0342 \u1fe2\u03a5\u0308\u0300 \u1fe3\u03a5\u0308\u0301 \u1fe4\u03a1\u0313 " +
		"\u1fe6\u03a5\u0342 \u1fe7\u03a5\u0308\u0342 \u1ff2\u1ffa\u0345 \u1ff4\u038f\u0345 \u1ff6\u03a9\u0342 \u1ff7\u03a9\u0342\u0345 " +
		"\ufb00Ff \ufb01Fi \ufb02Fl \ufb03Ffi \ufb04Ffl \ufb05St \ufb06St \ufb13\u0544\u0576 \ufb14\u0544\u0565 \ufb15\u0544\u056b " +
		"\ufb16\u054e\u0576 \ufb17\u0544\u056d")
)

func special(words string) map[rune]string {
	m := map[rune]string{}
	for _, w := range strings.Split(words, " ") {
		r, n := utf8.DecodeRuneInString(w)
		m[r] = w[n:]
	}
	return m
}

// specialUpper returns the upper case of r if it has several characters.
func specialUpper(r rune) (string, bool) {
	if r >= 0x1f80 && r <= 0x1faf {
		capital := [...]rune{0x1f08, 0x1f28, 0x1f68}[(r-0x1f80)>>4]
		return string(capital+r&7) + "Ι", true
	}
	s, ok := upperSpecial[r]
	return s, ok
}

// appendFold appends the case folding of r: the lower case of its upper case.
// Exceptions are Cherokee, which folds to upper case, and two letters.
func appendFold(dst []byte, r rune) []byte {
	switch {
	case r == 'ı':
		return append(dst, "ı"...)
	case r == 'ẞ':
		return append(dst, "ss"...)
	case r >= 0x13a0 && r <= 0x13fd || r >= 0xab70 && r <= 0xabbf:
		return appendUpper(dst, r)
	}
	for _, u := range string(appendUpper(nil, r)) {
		dst = appendLower(nil, dst, u, "", 0) // there is no text to charge for
	}
	return dst
}

// digits are the characters of Numeric_Type Digit, in pairs of first and last.
const digits = "²³¹¹\u1369\u1371\u19da\u19da⁰⁰⁴⁹₀₉①⑨⑴⑼⒈⒐⓪⓪⓵⓽⓿⓿❶❾➀➈➊➒\U00010a40\U00010a43\U00010e60\U00010e68\U00011052\U0001105a\U0001f100\U0001f10a"

// numerals are the ideographs that have a numeric value.
const numerals = "㐅㒃㠪㭍一七万三九二五亖亿什仟仨伍佰億兆兩八六十千卄卅卌叁参參叄四壱壹幺廾廿弌弍弎弐拾捌柒漆玖百肆萬貮貳贰阡陆陌陸零\uf96b\uf973\uf978\uf9b2\uf9d1\uf9d3\uf9fd𠀁𠁤𠃢𠄡𠤪𠦃𠦌𠦜𠫪𠫽𠬙𢎐𢦘𣬛𦉭\U0002f890"

// IsDigit reports str.isdigit of one character.
func IsDigit(r rune) bool { return unicode.Is(unicode.Nd, r) || inPairs(digits, r) }

// inPairs reports whether r is in one of the ranges of pairs, each a first and a last
// character.
func inPairs(pairs string, r rune) bool {
	for pairs != "" {
		lo, n := utf8.DecodeRuneInString(pairs)
		hi, m := utf8.DecodeRuneInString(pairs[n:])
		if lo <= r && r <= hi {
			return true
		}
		pairs = pairs[n+m:]
	}
	return false
}

// IsNumeric reports str.isnumeric of one character.
func IsNumeric(r rune) bool {
	return unicode.IsNumber(r) || r >= 0x3405 && strings.ContainsRune(numerals, r)
}

// isIgnorable reports Case_Ignorable: the final sigma ignores such characters inside
// words.
func isIgnorable(r rune) bool {
	return unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf, unicode.Lm, unicode.Sk) ||
		strings.ContainsRune("'.:·\u0387\u055f\u05f4\u2018\u2019\u2024\u2027\ufe13\ufe52\ufe55\uff07\uff0e\uff1a", r)
}

// isIDStart reports XID_Start or the underscore, isIDContinue XID_Continue: the classes
// of UAX 31 less the characters that normalization takes out of them.
func isIDStart(r rune) bool {
	return isIDBase(r) && !strings.ContainsRune("\u0e33\u0eb3\uff9e\uff9f", r)
}

func isIDContinue(r rune) bool {
	return isIDBase(r) || unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)
}

func isIDBase(r rune) bool {
	switch {
	case r == '_':
		return true
	case unicode.In(r, unicode.Pattern_Syntax, unicode.Pattern_White_Space), !unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start):
		return false
	}
	return !inPairs("\u037a\u037a\u309b\u309c\ufc5e\ufc63\ufdfa\ufdfb", r) && (r < 0xfe70 || r > 0xfe7e || r&1 != 0)
}
