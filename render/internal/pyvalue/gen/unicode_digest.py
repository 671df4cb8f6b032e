"""Prints the digests of what CPython's str says of every code point, which
text_test.go holds unicode.go and text.go to. Run with CPython 3.12 (Unicode 15.0):
    python3.12 render/internal/pyvalue/gen/unicode_digest.py > render/internal/pyvalue/testdata/unicode.txt
"""
import hashlib
import unicodedata

ALL = [chr(i) for i in range(0x110000) if not 0xD800 <= i < 0xE000]
assert unicodedata.unidata_version == "15.0.0", unicodedata.unidata_version

fields = [
    ("upper", str.upper), ("lower", str.lower), ("title", str.title), ("casefold", str.casefold),
    ("swapcase", str.swapcase), ("capitalize", str.capitalize), ("repr", repr),
    ("isalpha", str.isalpha), ("isdecimal", str.isdecimal), ("isdigit", str.isdigit),
    ("isnumeric", str.isnumeric), ("isalnum", str.isalnum), ("isspace", str.isspace),
    ("islower", str.islower), ("isupper", str.isupper), ("istitle", str.istitle),
    ("isprintable", str.isprintable), ("isidentifier", str.isidentifier),
    ("iscontinue", lambda c: ("a" + c).isidentifier()), ("sigma", lambda c: ("A" + c + "\u03a3" + c).lower()),
]
for name, f in fields:
    h = hashlib.sha256()
    for c in ALL:
        h.update(f"{f(c)}\n".encode())
    print(name, h.hexdigest())
