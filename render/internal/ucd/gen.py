#!/usr/bin/env python3
"""Writes ucd.bin: Unicode as the reference tokenizer (Python package
`tokenizers`) has it, read out of that package itself.

The reference mixes several Unicode versions: its regular expressions
(Oniguruma) know Unicode 16, its normalizer and its Punctuation splitter are
older, the rest is whatever its Rust compiler shipped. No published table set
is all of these, so each one is measured: every code point is put through the
component that uses the table.

    pip install tokenizers==0.23.3 && python3 gen.py > ucd.bin
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
TEXT = "".join(map(chr, ALL))

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cn Co".split()
PROPERTIES = "Alphabetic Uppercase Lowercase White_Space Emoji Ideographic Join_Control".split()
SCRIPTS = """Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali
Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian Chakma Cham
Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari Dives_Akuru Dogra
Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Garay Georgian Glagolitic Gothic Grantha Greek Gujarati
Gunjala_Gondi Gurmukhi Gurung_Khema Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew Hiragana Imperial_Aramaic
Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kawi Kayah_Li Kharoshthi
Khitan_Small_Script Khmer Khojki Khudawadi Kirat_Rai Lao Latin Lepcha Limbu Linear_A Linear_B Lisu Lycian Lydian
Mahajani Makasar Malayalam Mandaic Manichaean Marchen Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui
Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari
New_Tai_Lue Newa Nko Nushu Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Ol_Onal Old_Hungarian Old_Italic
Old_North_Arabian Old_Permic Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya
Pahawh_Hmong Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada
Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Sunuwar Syloti_Nagri Syriac Tagalog
Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan Tifinagh Tirhuta Todhri
Toto Tulu_Tigalari Ugaritic Unknown Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square""".split()
POSIX = "alnum alpha blank cntrl digit graph lower print punct space upper xdigit word".split()


def ranges(pre):
    """Runs of code points that the splitter keeps, as inclusive ranges."""
    out = []
    for _, (s, e) in pre.pre_tokenize_str(TEXT):
        for i in range(s, e):
            c = ALL[i]
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def regex(p):
    return ranges(pre_tokenizers.Split(Regex(p), "removed", invert=True))


def probe(keep):
    """Ranges of the code points for which keep(splitter output) says so, one text per code point in one pass."""
    out = []
    for c in ALL:
        if keep(chr(c)):
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


class Writer:
    def __init__(self):
        self.b = bytearray()

    def num(self, n):
        while n >= 0x80:
            self.b.append(n & 0x7F | 0x80)
            n >>= 7
        self.b.append(n)

    def text(self, s):
        self.num(len(s))
        self.b += s.encode()

    def ranges(self, name, rs):
        self.text(name)
        self.num(len(rs))
        last = 0
        for lo, hi in rs:
            self.num(lo - last)
            self.num(hi - lo)
            last = hi


def classes():
    out = {}
    for c in CATEGORIES:
        out[c] = regex(r"\p{%s}+" % c)
    for name in PROPERTIES + SCRIPTS:
        out[name] = regex(r"\p{%s}+" % name)
    for name in POSIX:
        out["posix_" + name] = regex(r"[[:%s:]]+" % name)
    out[r"\w"], out[r"\s"], out[r"\d"], out[r"\h"] = (regex(c + "+") for c in (r"\w", r"\s", r"\d", r"\h"))
    # The reference's own (Rust) classes, each through the component that uses it.
    out["rust_space"] = complement(ranges(pre_tokenizers.WhitespaceSplit()))
    out["rust_digit"] = probe_digits()
    out["rust_punct"] = complement(ranges(pre_tokenizers.Punctuation("removed")))
    # \w of the Rust regex crate: the Whitespace splitter is \w+|[^\w\s]+, so a
    # word character sticks to the letter before it.
    ws = pre_tokenizers.Whitespace()
    joined = ws.pre_tokenize_str("".join("a" + chr(c) + " " for c in ALL))
    word = []
    for tok, (s, e) in joined:
        if e - s == 2 and s % 3 == 0:
            c = ALL[s // 3]
            if word and word[-1][1] == c - 1:
                word[-1][1] = c
            else:
                word.append([c, c])
    out["rust_word"] = word
    return out


def complement(rs):
    out, at = [], 0
    for lo, hi in rs:
        if lo > at:
            out.append([at, lo - 1])
        at = hi + 1
    if at <= 0x10FFFF:
        out.append([at, 0x10FFFF])
    # surrogates are no characters
    clean = []
    for lo, hi in out:
        if hi < 0xD800 or lo > 0xDFFF:
            clean.append([lo, hi])
            continue
        if lo < 0xD800:
            clean.append([lo, 0xD7FF])
        if hi > 0xDFFF:
            clean.append([0xE000, hi])
    return clean


def probe_digits():
    # individual digits: a digit never sticks to the letter before it
    d = pre_tokenizers.Digits(individual_digits=True)
    text = "".join("a" + chr(c) for c in ALL)
    starts = {s for _, (s, e) in d.pre_tokenize_str(text)}
    out = []
    for i, c in enumerate(ALL):
        if 2 * i + 1 in starts:
            if out and out[-1][1] == c - 1:
                out[-1][1] = c
            else:
                out.append([c, c])
    return out


def many(norm, texts):
    sep = "\n"
    got = norm.normalize_str(sep.join(texts)).split(sep)
    assert len(got) == len(texts), (len(got), len(texts))
    return got


def normalization(w):
    nfd, nfkd, nfc = normalizers.NFD(), normalizers.NFKD(), normalizers.NFC()
    chars = [chr(c) for c in ALL if c != 10]
    canon = {c: d for c, d in zip(chars, many(nfd, chars)) if c != d and not 0xAC00 <= ord(c) <= 0xD7A3}
    compat = {c: d for c, d in zip(chars, many(nfkd, chars)) if c != d and d != canon.get(c) and not 0xAC00 <= ord(c) <= 0xD7A3}

    # Combining classes: two marks swap when the first one's class is higher
    # and the second one's is not 0. One witness of each class orders the rest.
    plain = [c for c in chars if c not in canon]
    low, high = "\u0334", "\u0345"  # classes 1 and 240
    swapped = many(nfd, ["a" + c + low for c in plain])
    marks = {c for c, s in zip(plain, swapped) if s == "a" + low + c}
    swapped = many(nfd, ["a" + high + c for c in plain])
    marks |= {c for c, s in zip(plain, swapped) if s == "a" + c + high}
    marks |= {low, high}
    marks = sorted(marks)
    witness = {}
    for c in marks:
        witness.setdefault(unicodedata.combining(c), c)
    witness.pop(0, None)
    levels = sorted(witness)
    ccc = {}
    for c in marks:
        lower = many(nfd, ["a" + c + witness[l] for l in levels])
        upper = many(nfd, ["a" + witness[l] + c for l in levels])
        below = [l for l, s in zip(levels, lower) if s == "a" + witness[l] + c and witness[l] != c]
        above = [l for l, s in zip(levels, upper) if s == "a" + c + witness[l] and witness[l] != c]
        same = [l for l in levels if l not in below and l not in above]
        assert len(same) == 1, (hex(ord(c)), same)
        assert all(l < same[0] for l in below) and all(l > same[0] for l in above), hex(ord(c))
        ccc[c] = same[0]

    # Compositions: a character is a primary composite when composing its
    # decomposition gives it back; its pair is (composition of all but the last, last).
    comp = {}
    back = many(nfc, [canon[c] for c in canon])
    for c, b in zip(canon, back):
        d = canon[c]
        if b != c or len(d) < 2:
            continue
        first = nfc.normalize_str(d[:-1])
        assert len(first) == 1, hex(ord(c))
        comp[(first, d[-1])] = c

    w.num(len(ccc))
    last = 0
    for c in sorted(ccc):
        w.num(ord(c) - last)
        w.num(ccc[c])
        last = ord(c)
    for table in (canon, compat):
        w.num(len(table))
        last = 0
        for c in sorted(table):
            w.num(ord(c) - last)
            w.num(len(table[c]))
            for x in table[c]:
                w.num(ord(x))
            last = ord(c)
    w.num(len(comp))
    for (a, b), c in sorted(comp.items()):
        w.num(ord(a))
        w.num(ord(b))
        w.num(ord(c))
    print(len(marks), "marks", len(canon), "canonical", len(compat), "compatibility", len(comp), "compositions", file=sys.stderr)


def main():
    w = Writer()
    cs = classes()
    w.num(len(cs))
    for name in sorted(cs):
        w.ranges(name, cs[name])
    normalization(w)
    sys.stdout.buffer.write(w.b)


main()
