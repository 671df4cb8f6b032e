// Package ucd holds the Unicode tables of the reference tokenizer (the Hugging
// Face `tokenizers` library, 0.23.3): character classes for its regular
// expressions (Oniguruma, Unicode 16) and for its Rust code, and the four
// normalization forms with the older tables of its normalizer. Go's unicode
// and x/text/unicode/norm have other versions (thousands of code points
// differ), and one differing code point is a different token.
//
// gen.py writes the tables, ucd.bin, out of the reference itself. Units: code
// points as runes. Sets and forms are immutable and safe for concurrent use; a
// Scratch belongs to one goroutine. The package does no I/O.
package ucd
