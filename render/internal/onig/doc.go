// Package onig matches the regular expressions of tokenizer.json files as their
// reference does: Oniguruma, Ruby syntax, UTF-8, Unicode 16. It compiles the part of
// the syntax that pre-tokenizers use, and refuses the rest with a sentence that names
// it; it never guesses.
//
// Matching is by backtracking, first alternative first, as Oniguruma's is. The cost is
// bounded on any text: a match that takes too many steps begins to mark the
// instructions and positions from which it fails, and tries none of them again. Then
// the whole run over a text costs O(pattern × text). Marks are valid only in a pattern
// without back references whose look-arounds have bounded length; Compile refuses
// others.
//
// A Regexp is immutable and safe for concurrent use; a Machine belongs to one
// goroutine. Texts must be valid UTF-8; offsets are bytes.
package onig
